"""How a training scenario is spread over its devices, from the fields that a user states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from silicast.composition.engines.engine import Engine
from silicast.core.errors import SilicastError, unknown_name, unsupported
from silicast.distributed.pipeline.chunk_bounds import most_chunks
from silicast.distributed.ranks.plan import ContextExchange, TrainingPlan
from silicast.distributed.step.step import Overlap
from silicast.scenario.decode import Scenario
from silicast.scenario.schema import ParallelTable
from silicast.scenario.workloads import TrainingWorkload
from silicast.workload.models.model import ModelConfig

OVERLAPS: Mapping[str, str] = {
    "gradients": "gradients", "grad_reduce": "gradients", "reduce_scatter": "gradients",
    "weights": "weights", "param_gather": "weights", "prefetch": "weights",
    "transfers": "transfers", "p2p": "transfers", "pipeline": "transfers",
    "tensor": "tensor", "tp_comm": "tensor",
    "experts": "experts", "moe_a2a": "experts", "shared_experts": "shared",
}  # fmt: skip
"""Words for what overlaps -> field of :class:`~silicast.distributed.step.step.Overlap`."""
SHARDED = "zero = {}: what {} shards where nothing is stated"
CHUNKS = (
    "parallel.virtual_stages = {}: the most chunks a rank into which {} divides {} layers evenly, "
    "as it is not stated"
)
SEQUENCE = "sequence parallelism over the {} tensor ranks, as {} recommends (parallel.sp = false)"


def training_plan_of(
    scenario: Scenario, model: ModelConfig, engine: Engine
) -> tuple[TrainingPlan, list[str]]:
    """The plan of a training scenario, and what was assumed for it.

    Raises:
        SilicastError: degrees that contradict each other or the number of devices.
    """
    p, cluster = scenario.raw.parallel, scenario.raw.cluster
    if p.attention_dp > 1:
        raise SilicastError(
            "attention_dp belongs to serving", field="parallel.attention_dp", hint="dp copies"
        )
    gpus = cluster.gpus if cluster is not None else None
    remarks: list[str] = []
    ulysses_degree, context = 1, ""
    if p.sp is not True and p.sp > 1 and p.sp != p.tp:
        ulysses_degree, context = p.sp, "all_to_all"
    cp = p.cp * ulysses_degree
    unit = p.tp * p.pp * cp
    dp = p.dp or max((gpus or unit) // unit, 1)
    zero = p.zero
    if zero is None:
        zero = engine.parallel.zero if dp * cp > 1 else 0
        if zero:
            remarks.append(SHARDED.format(zero, engine.name))
    sequence = p.sp not in (0, False) and p.tp > 1
    if sequence and p.sp is not True and p.sp != p.tp:
        remarks.append(SEQUENCE.format(p.tp, engine.name))
    experts = model.moe is not None
    for name in ("ep", "etp"):
        if not experts and (getattr(p, name) or 1) > 1:
            raise SilicastError(
                f"{name} = {getattr(p, name)}, but {model.name} has no experts",
                field=f"parallel.{name}",
                hint="leave it out",
            )
    etp = p.etp or (1 if p.ep > 1 or not experts else p.tp)
    virtual = _virtual_stages(p, model.staged_layers, remarks)
    schedule = (p.schedule or "") if p.pp > 1 else ""  # one stage has nothing to order
    if p.pp > 1:
        _check_schedule(schedule or ("interleaved" if virtual > 1 else "1f1b"), p, engine)
    shard = (p.shard or 0) if zero else 0  # without sharded states there is no group of it
    return TrainingPlan(
        tp=p.tp, pp=p.pp, cp=cp, dp=dp, ep=p.ep, etp=etp, sequence_parallel=sequence, zero=zero,
        shard=shard, virtual_stages=virtual, schedule=schedule,
        context=_context(scenario, context, engine, shared=cp > 1),
        dispatch=engine.parallel.dispatch,
    ), remarks  # fmt: skip


def _context(scenario: Scenario, implied: str, engine: Engine, *, shared: bool) -> ContextExchange:
    """How context ranks see each other's keys: as stated, as implied, else as the engine does.

    Args:
        implied: by other fields; "" = by none.
        shared: there are several context ranks.

    Raises:
        SilicastError: an unknown way, or one that the engine does not have.
    """
    options = scenario.engine.options if scenario.engine is not None else {}
    offered = engine.parallel.context or get_args(ContextExchange)
    name = options.get("context_exchange", implied or offered[0])
    if name not in get_args(ContextExchange):
        raise unknown_name(
            f"unknown exchange {name!r:.40}",
            "engine.options.context_exchange",
            ", ".join(get_args(ContextExchange)),
        )
    if shared and name not in offered:
        raise unsupported(
            f"{engine.name} has no exchange {name} of context ranks",
            "engine.options.context_exchange",
            " or ".join(offered),
        )
    exchange: ContextExchange = name
    return exchange


def _check_schedule(name: str, p: ParallelTable, engine: Engine) -> None:
    """Raises SilicastError for a schedule that the engine's pipeline does not have."""
    if not engine.parallel.has_schedule(name):
        raise unsupported(
            f"{engine.name} has no schedule {name}",
            "parallel.schedule" if p.schedule else "parallel.virtual_stages",
            f"it has {' and '.join(engine.parallel.schedules)}",
        )


def _virtual_stages(p: ParallelTable, layers: int, remarks: list[str]) -> int:
    """Chunks of each pipeline rank: as stated, or as many as the stated schedule needs; of one
    that takes any number, the most that hold alike many layers.

    Args:
        remarks: is told what was assumed.

    Raises:
        SilicastError: an unknown schedule, another number than it needs, or none that divides.
    """
    virtual_stages = p.virtual_stages or 1
    if not p.schedule:
        return virtual_stages
    from silicast.distributed.schedules.schedule import schedules

    schedule = schedules().get(p.schedule)
    if schedule is None:
        raise unknown_name(
            f"unknown schedule {p.schedule!r:.40}", "parallel.schedule", ", ".join(schedules())
        )
    if p.pp == 1 or virtual_stages == schedule.chunks:
        return virtual_stages
    if schedule.chunks is None:
        return p.virtual_stages or _most_chunks(p.schedule, p.pp, layers, remarks)
    if virtual_stages > 1:
        raise SilicastError(
            f"schedule {p.schedule} holds {schedule.chunks} chunks a rank, not {virtual_stages}",
            field="parallel.virtual_stages",
            hint="leave it out",
        )
    return schedule.chunks


def _most_chunks(schedule: str, stages: int, layers: int, remarks: list[str]) -> int:
    """The most chunks a rank that share the layers evenly.

    Raises:
        SilicastError: nothing but one chunk a rank does.
    """
    each = most_chunks(layers, stages)
    if each == 1:
        raise SilicastError(
            f"schedule {schedule} needs several chunks a rank, and {layers} layers are shared "
            f"evenly by no multiple of {stages} stages",
            field="parallel.virtual_stages",
            hint="state how many chunks each rank holds, or schedule 1f1b",
        )
    remarks.append(CHUNKS.format(each, schedule, layers))
    return each


def overlap_of(
    work: TrainingWorkload, engine: Engine, plan: TrainingPlan, model: ModelConfig
) -> Overlap:
    """What of the transfers runs beside the device's work."""
    table = engine.parallel
    usual = Overlap(
        transfers=table.overlaps_transfers == "always" or plan.virtual_stages > 1,
        tensor=table.overlaps_tensor == "dense" and model.moe is None and plan.sequence_parallel,
        gradient_bits=table.gradient_bits,
    )
    overlap = work.overlap
    names = ("gradients", "weights", "transfers", "tensor", "experts", "shared")
    if overlap is None:
        return usual
    if isinstance(overlap, bool):
        chosen = dict.fromkeys(names, overlap)
    elif isinstance(overlap, list):
        chosen = dict.fromkeys(names, False) | {_overlap(name): True for name in overlap}
    else:
        chosen = {name: getattr(usual, name) for name in names}
        chosen |= {_overlap(name): value for name, value in overlap.items()}
    return Overlap(**chosen, gradient_bits=usual.gradient_bits)


def _overlap(name: str) -> str:
    overlap = OVERLAPS.get(name)
    if overlap is None:
        raise unknown_name(
            f"nothing called {name!r:.40} overlaps", "workload.overlap", ", ".join(OVERLAPS)
        )
    return overlap
