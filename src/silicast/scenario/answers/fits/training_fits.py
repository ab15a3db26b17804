"""Which ways of training a model fit a device, with which batch and length: full, LoRA, QLoRA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import msgspec

from silicast.composition.engines.engine import default_engine
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
from silicast.core.prediction import Quantity
from silicast.distributed.pipeline.chunk import Rank
from silicast.scenario.answer import Answer, answer
from silicast.scenario.answerer import ignored
from silicast.scenario.answers.fits.candidates import (
    devices_of_catalog,
    made_for,
    models_of_catalog,
)
from silicast.scenario.answers.training.answerer import per
from silicast.scenario.answers.training.training_memory import rank_memory
from silicast.scenario.answers.training.training_runs import TrainingRun, again, half_of, prepared
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import device_of, model_of
from silicast.scenario.resolving.deployments import check_trains
from silicast.scenario.schema import LoraTable, PrecisionTable
from silicast.scenario.workloads import FitsWorkload, TrainingWorkload
from silicast.workload.models.counting import parameters
from silicast.workload.training.recomputation import Recompute

WAYS = ("full", "lora", "qlora")
"""Everything is trained; adapters beside weights of 16 bits; beside weights of 4."""
LEAST_FIRST: tuple[Recompute, ...] = ("none", "selective", "full")
DEFAULT = "fine-tuning"
"""The kind of run whose usual engine stands where none is stated."""
PACKED = "nf4"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK = 16
"""Of adapters where the scenario has no table ``lora``."""
MOST_SEQUENCES, MOST_TOKENS = 1 << 12, 1 << 22
UNUSED = ("host", "seed", "router", "precision", "parallel")
GB = 1e9


@final
@dataclass(frozen=True)
class TrainingWay:
    """One way of training a model on a device.

    Attributes:
        model, device: their names in the catalog.
        recompute: the least with which it fits, else full.
        needed: bytes of a device with that; ``usable``: that it has.
        batch: the most sequences of a micro-batch at the stated length, 0 = none.
        context: the longest sequence with the stated micro-batch, 0 = none.
    """

    scenario: Scenario
    model: str
    device: str
    way: str
    recompute: Recompute
    needed: int
    usable: int
    batch: int
    context: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable

    def run(self) -> TrainingRun:
        """A step of one micro-batch a device."""
        work = self.scenario.workload
        assert isinstance(work, TrainingWorkload)
        work = msgspec.structs.replace(work, recompute=self.recompute)
        return prepared(self.scenario, work).run()


def training_ways(scenario: Scenario, work: FitsWorkload) -> Answer:
    """The answer of task ``fits`` where the workload trains.

    Raises:
        SilicastError: nothing fits; says by how much.
    """
    if scenario.raw.device is not None:
        check_trains(device_of(scenario))
    if scenario.raw.model is not None and scenario.raw.device is not None:
        ways = [way_of(scenario, work, way) for way in WAYS]
        tried = len(ways)
    else:
        candidates = list(_candidates(scenario))
        tried = len(candidates)
        ways = [
            best for each in candidates if (best := _widest(each, work)) is not None and best.fits
        ]
        if scenario.raw.model is not None:
            ways.sort(key=lambda each: (WAYS.index(each.way), -each.usable))
    fitting = [each for each in ways if each.fits]
    if not fitting:
        raise _nothing(work, ways)
    shown = ways[: work.most]
    rows = [_row(each) for each in shown]
    return _answer(scenario, work, fitting[0], rows, {"tried": tried, "fitting": len(fitting)})


def way_of(scenario: Scenario, work: FitsWorkload, way: str) -> TrainingWay:
    """One way, as task ``training`` would run it with one micro-batch a device."""
    gpus = (scenario.raw.cluster.gpus if scenario.raw.cluster is not None else None) or 1
    lora = scenario.raw.lora or LoraTable(rank=RANK, targets=TARGETS)
    wide = scenario.raw.precision
    if wide is None and half_of(device_of(scenario)) == "fp16":
        wide = PrecisionTable(recipe="fp16")
    raw = msgspec.structs.replace(
        scenario.raw,
        task="training",
        engine=scenario.raw.engine or default_engine(DEFAULT),
        lora=None if way == "full" else lora,
        precision=PrecisionTable(weights=PACKED) if way == "qlora" else wide,
    )
    trained = TrainingWorkload(
        seq_len=work.context,
        global_batch=work.users * gpus,
        micro_batch=work.users,
        task="sft" if way == "full" else "lora",
        recompute="full",
    )
    made = msgspec.structs.replace(scenario, raw=raw, workload=trained)
    ready = prepared(made, trained)
    rank, bits = ready.rank, ready.overlap.gradient_bits
    deployment = rank.deployment
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction

    def needed(each: Rank) -> int:
        return int(rank_memory(each, 1, ready.optimizer, bits).total.max())

    recompute, size = LEAST_FIRST[-1], 0
    for recompute in LEAST_FIRST:
        size = needed(again(rank, recompute))
        if size <= usable:
            break
    full = again(rank, "full")
    batch = largest(
        lambda count: needed(replace(full, micro_batch=count)) <= usable, MOST_SEQUENCES, guess=1
    )
    longest = deployment.model.max_positions or MOST_TOKENS
    context = largest(
        lambda tokens: needed(replace(full, seq_len=tokens)) <= usable, longest, guess=1
    )
    names = deployment.model.name, deployment.device.name
    return TrainingWay(made, *names, way, recompute, size, int(usable), batch, context)


def _widest(scenario: Scenario, work: FitsWorkload) -> TrainingWay | None:
    """The way that trains most and fits, else the last one; None = the device or model cannot."""
    last = None
    for way in WAYS:
        try:
            last = way_of(scenario, work, way)
        except SilicastError:
            continue
        if last.fits:
            return last
    return last


def _candidates(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario with each model of the catalog, or each device."""
    raw = scenario.raw
    work = scenario.workload
    assert isinstance(work, FitsWorkload)
    if raw.model is None:
        device_of(scenario)  # an unknown one is an error
        names = [
            ("model", model.name)
            for model in models_of_catalog(work.context)
            if made_for(model, work.context)
        ]
    else:
        model_of(scenario)
        names = [("device", device.name) for device in devices_of_catalog(servers=work.servers)]
    for field, name in names:
        yield msgspec.structs.replace(scenario, raw=msgspec.structs.replace(raw, **{field: name}))


def _nothing(work: FitsWorkload, ways: Sequence[TrainingWay]) -> SilicastError:
    least = min(ways, key=lambda each: each.needed) if ways else None
    if least is None:
        return SilicastError(
            f"nothing of the catalog trains with {work.users} x {work.context} tokens",
            field="workload",
            hint="less context, fewer sequences, or more devices: cluster.gpus",
        )
    short = (least.needed - least.usable) / GB
    return SilicastError(
        f"does not fit: {least.way} with recompute {least.recompute} needs "
        f"{least.needed / GB:.1f} GB of {least.usable / GB:.1f} GB usable, {short:.1f} too much",
        field="workload",
        hint=(
            f"at most {least.context} tokens fit"
            if least.context
            else "more devices (cluster.gpus), or a smaller model"
        ),
    )


def _row(way: TrainingWay) -> dict[str, Any]:
    """One way for people and programs."""
    made: dict[str, Any] = {
        "model": way.model,
        "device": way.device,
        "way": way.way,
        "fits": way.fits,
        "recompute": way.recompute,
        "memory_gb": round(way.needed / GB, 2),
        "usable_gb": round(way.usable / GB, 2),
        "batch": way.batch,
        "context": way.context,
    }
    if not way.fits:
        return made
    result = way.run()
    deployment, plan = result.rank.deployment, result.rank.plan
    rate = per(_step(result), result.tokens / plan.gpus)
    return made | {
        "parameters_b": round(parameters(deployment.model, mtp=False) / 1e9, 2),
        "tokens_per_s": {
            "estimate": round(rate.estimate, 1),
            "p05": round(rate.p05, 1),
            "p95": round(rate.p95, 1),
        },
        "domain": result.step.domain,
    }


def _step(result: TrainingRun) -> Quantity:
    return result.step.latency_s


def _answer(
    scenario: Scenario,
    work: FitsWorkload,
    best: TrainingWay,
    rows: list[dict[str, Any]],
    counts: dict[str, int],
) -> Answer:
    result = best.run()
    memory, step = result.memory, _step(result)
    devices = result.rank.plan.gpus
    order = "parameters" if scenario.raw.model is None else "what is trained, then memory"
    return answer(
        metrics={
            "step_time_s": step,
            "tokens_per_s_per_gpu": per(step, result.tokens / devices),
            "memory_gb": memory.quantity,
            "memory_allocated_gb": memory.allocated,
            "memory_reserved_gb": memory.reserved,
        },
        bound={"step_time_s": result.step.bound_seconds},
        tier=result.step.tier,
        domain=result.step.domain,
        warnings=[*ignored(scenario, *UNUSED), *result.step.warnings],
        why={
            **counts,
            "order": order,
            "context": work.context,
            "users": work.users,
            "gpus": devices,
            "memory": memory.parts,
            "trains": rows,
        },
    )
