"""Task ``plan``: the best way to spread a training step over a cluster, and why others lose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

import msgspec

import silicast
from silicast.composition.passes.training_step import Batch
from silicast.core.errors import SilicastError, unsupported
from silicast.core.hashing import content_hash, files_hash
from silicast.core.numerics import F64
from silicast.distributed.search.candidates import (
    FIELDS,
    RECOMPUTES,
    CandidatePlans,
    PlanSpace,
    candidates,
)
from silicast.distributed.search.search import (
    FINALISTS,
    Finalist,
    PlanSearchResult,
    search,
    why_slower,
    words,
)
from silicast.distributed.search.search_file import SearchFile
from silicast.learning.tiers import Evidence
from silicast.scenario.answer import Answer
from silicast.scenario.answerer import Answerer, ProgressWatch, register
from silicast.scenario.answers.training.answerer import answer_of
from silicast.scenario.answers.training.training_memory import needed_bytes
from silicast.scenario.answers.training.training_runs import PreparedTraining, TrainingRun, prepared
from silicast.scenario.decode import Scenario
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.run import package_hash
from silicast.scenario.workloads import PlanWorkload, TrainingWorkload
from silicast.workload.training.recomputation import Recompute, module_policies

ANSWER_ONLY = ("id",)
"""Fields of a scenario that only its answer repeats."""


def search_inputs(scenario: Scenario, prepared: PreparedTraining) -> dict[str, Any]:
    """The scenario, what the files that it names say, and the code and numbers that answer it.

    Returns:
        Plain tables: ``scenario`` as it stands; hashes of what it was resolved to (``resolved``:
        device, model, engine and network, wherever they are from), of its calibrations, and of the
        package (``package``: code and shipped numbers); its ``version``.
    """
    tree = msgspec.to_builtins(scenario.raw)
    named = scenario.raw.calibration or []
    files = [scenario.folder / name for name in ([named] if isinstance(named, str) else named)]
    return {
        "scenario": {name: each for name, each in tree.items() if name not in ANSWER_ONLY},
        "calibrations": files_hash(files),
        "resolved": _resolved(prepared),
        "version": silicast.__version__,
        "package": package_hash(),
    }


def _resolved(prepared: PreparedTraining) -> str:
    """Of all that is not measured by the user, which the calibrations' files state."""
    deployment = prepared.rank.deployment
    machine = replace(deployment.machine, evidence=Evidence())
    rank = replace(prepared.rank, deployment=replace(deployment, machine=machine))
    return content_hash(replace(prepared, rank=rank))


SHOWN = 12
"""Runners-up and plans of the frontier that an answer names."""


@register
@final
class PlanAnswerer(Answerer):
    """Metrics: those of task ``training`` under the best plan; ``why.candidates`` has the others.
    Degrees that the scenario states other than 1 are kept.
    """

    task: ClassVar[str] = "plan"
    searches: ClassVar[bool] = True

    def answer(self, scenario: Scenario) -> Answer:
        _refuse_budget(scenario)
        if _is_of_traffic(scenario):
            from silicast.scenario.answers.plan.serving_plans import best_serving_plan

            return best_serving_plan(scenario)
        return best_plan(scenario)[0]

    def watched(self, scenario: Scenario, watch: ProgressWatch) -> Answer:
        _refuse_budget(scenario)
        return self.answer(scenario) if _is_of_traffic(scenario) else best_plan(scenario, watch)[0]


def _refuse_budget(scenario: Scenario) -> None:
    work = scenario.workload
    if isinstance(work, PlanWorkload) and work.search.max_power_w is not None:
        raise unsupported(
            "a power limit of all devices", "workload.search.max_power_w", "task capacity"
        )


def _is_of_traffic(scenario: Scenario) -> bool:
    work = scenario.workload
    return isinstance(work, PlanWorkload) and work.serving is not None and work.training is None


def best_plan(
    scenario: Scenario, watch: ProgressWatch | None = None, finalists: int = FINALISTS
) -> tuple[Answer, PlanSearchResult]:
    """The answer to a search, and every plan that it predicted.

    Args:
        finalists: plans to predict in full.

    Raises:
        SilicastError: nothing is legal, or nothing fits; the file is of another search.
    """
    told = watch or ProgressWatch()
    work = scenario.workload
    assert isinstance(work, PlanWorkload)
    if work.training is None:
        raise not_yet_of(PARTS["serving plans"], "workload")
    if work.objective == "latency":
        raise SilicastError(
            "a step has no latency", field="workload.objective", hint="step_time, or mfu"
        )
    _refuse_losses(work.training)
    requested = prepared(scenario, work.training)
    rank, plan = requested.rank, requested.rank.plan
    if requested.again_share < 1.0:
        raise not_yet_of(
            PARTS["plan search"], "workload.training.recompute", "recompute of some layers"
        )
    links = rank.deployment.machine.links
    pinned = {
        name: getattr(plan, name)
        for name in FIELDS
        if hasattr(plan, name) and getattr(plan, name) > 1 and name not in ("dp", "etp", "zero")
    }
    table = scenario.raw.parallel
    for name in ("schedule", "shard"):
        if getattr(table, name):
            raise not_yet_of(PARTS["plan search"], f"parallel.{name}", name)
    pinned |= {"dp": table.dp} if table.dp else {}
    pinned |= {"zero": table.zero} if table.zero is not None else {}
    pinned |= {"etp": table.etp} if table.etp else {}
    if work.training.micro_batch > 1:
        pinned["micro_batch"] = work.training.micro_batch
    recomputes = _recomputes(requested)
    if requested.recompute is not None:
        pinned["recompute"] = recomputes.index(requested.recompute)
    gpus = scenario.raw.cluster.gpus if scenario.raw.cluster is not None else None
    legal = candidates(
        PlanSpace(
            rank.deployment.model,
            gpus or links.gpus,
            max(links.domain, links.gpus_per_node),
            rank.seq_len,
            work.training.global_batch,
            pinned,
            table.sp not in (0, False),
            rank.deployment.engine.parallel.has_schedule("interleaved"),
            plan.context,
            rank.deployment.engine.parallel.zero_whole_weights,
            recomputes,
        )
    )
    resumed = None
    if told.resume is not None:
        resumed = SearchFile.open(told.resume, search_inputs(scenario, requested))
    deployment = rank.deployment
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
    bits = requested.overlap.gradient_bits

    def needed(plans: CandidatePlans) -> F64:
        return needed_bytes(rank, requested.optimizer, bits, plans)

    match = search(
        rank,
        legal,
        needed,
        usable,
        optimizer=requested.optimizer,
        overlap=requested.overlap,
        done=told.searched,
        finalists=finalists,
        kept=resumed,
    )
    return answer_of(scenario, _run(requested, match), more=_candidates(match)), match


def _recomputes(requested: PreparedTraining) -> tuple[Recompute, ...]:
    """What may run again: layers, attention, single modules where the library offers them, and what
    is stated.
    """
    model, engine = requested.rank.deployment.model, requested.rank.deployment.engine
    modules: tuple[Recompute, ...] = ()
    if engine.fused_layers:
        modules = module_policies(latent=model.mla is not None, experts=model.moe is not None)
    stated = () if requested.recompute is None else (requested.recompute,)
    return tuple(dict.fromkeys((*RECOMPUTES, *modules, *stated)))


def _refuse_losses(work: TrainingWorkload) -> None:
    """Raises SilicastError where a search would leave out what a step has beside its passes."""
    for name, is_stated in (
        ("task", work.task in ("dpo", "reward", "distillation")),
        ("lengths", work.lengths is not None),
    ):
        if is_stated:
            raise unsupported(
                f"a search of plans does not have {name} of this kind",
                f"workload.training.{name}",
                "state the degrees and ask task training, or search for task sft",
            )


def _run(requested: PreparedTraining, result: PlanSearchResult) -> TrainingRun:
    best = result.finalists[0]
    batch = Batch(best.rank.seq_len, best.rank.micro_batch, best.micro_batches)
    return TrainingRun(
        best.rank,
        batch,
        requested.optimizer,
        None,
        result.best,
        requested.overlap,
        tuple(each for each in requested.warnings if each not in requested.of_plan),
    )


def _candidates(result: PlanSearchResult) -> dict[str, Any]:
    """What else was tried, for an answer's reasons."""
    best = result.finalists[0]
    return {
        "search": {
            "legal": result.legal,
            "fitting": result.fitting,
            "predicted": len(result.finalists),
            "refused": list(result.unplaced[:SHOWN]),
        },
        "candidates": [
            {
                "plan": words(each.plan, each.rank.micro_batch, _recompute(each)),
                "step_time_s": each.seconds,
                "memory_gb": each.memory_bytes / 1e9,
                "why_not": "" if each is best else why_slower(best, each),
            }
            for each in result.finalists[:SHOWN]
        ],
        "frontier": [
            {"plan": words(plan, micro, how), "step_time_s": seconds, "memory_gb": size / 1e9}
            for plan, micro, how, seconds, size in result.frontier[:SHOWN]
        ],
    }


def _recompute(each: Finalist) -> str:
    training = each.rank.framework.training
    return training.recompute if training is not None else "none"
