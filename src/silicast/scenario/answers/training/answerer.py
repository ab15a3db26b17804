"""Task ``training``: one optimizer step, of one device or of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.errors.uncertainty import with_assumed_structure
from silicast.composition.passes.deployment import Deployment
from silicast.composition.power.energy import work_energy
from silicast.composition.timeline.trace_events import PredictedTimeline
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.prediction import PICOSECONDS, Quantity, Tier, worst_domain
from silicast.distributed.pipeline.stalls import bubble_advice
from silicast.kernels.physics.formats import computes_in, with_format
from silicast.scenario.answer import (
    Answer,
    answer,
    coverage_of,
    latency_of,
    uncertainty_of,
    why_tree,
)
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.answers.training.training_goodput import lost
from silicast.scenario.answers.training.training_memory import RunMemory
from silicast.scenario.answers.training.training_packets import OverUplinks, over_uplinks
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.deployments import description
from silicast.scenario.resolving.measured import calibrated_by

SHORT_BITS = 16
BETWEEN = ("transfers_between_stages", "gradients_and_weights")
"""Parts of a step that nothing but the network takes."""


@register
@final
class TrainingAnswerer(Answerer):
    """Metrics: ``step_time_s``, ``tokens_per_s_per_gpu``, ``model_tflops_per_gpu`` (three times the
    forward pass, of frozen weights two times, nothing recomputed), ``mfu`` (of the peak of the
    step's format), ``memory_gb`` of the rank that needs most, and of it ``memory_allocated_gb`` and
    ``memory_reserved_gb``, as a framework's allocator reports them; ``energy_j``, ``power_w`` (of a
    device) and ``energy_per_token_j`` where power is modelled; ``host_memory_gb`` of a node where
    something is offloaded; those of :mod:`silicast.scenario.answers.training.training_goodput`
    where slow devices or
    failures are stated.
    """

    task: ClassVar[str] = "training"

    def answer(self, scenario: Scenario) -> Answer:
        return answer_of(scenario, run_of(scenario), bound_only=scenario.raw.tier == "bound")

    def trace(self, scenario: Scenario) -> PredictedTimeline:
        """See :class:`~silicast.scenario.answerer.Answerer`: the ranks of a pipeline, or some
        micro-batches of one device, and the update.
        """
        from silicast.distributed.step.step_trace import trace_alone, trace_step

        result = run_of(scenario)
        count = result.batch.accumulation
        if result.many is not None:
            return trace_step(result.many, result.rank, count, result.overlap, result.again_share)
        assert result.one is not None
        return trace_alone(result.one, count)


def answer_of(
    scenario: Scenario,
    training_run: TrainingRun,
    *,
    bound_only: bool = False,
    more: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer that a step means; ``more`` is added to its reasons."""
    step = latency_of(training_run.without_loading, bound_only=bound_only)
    uplinks = OverUplinks() if bound_only else over_uplinks(training_run)
    step = uplinks.widened(step)
    if training_run.loading is not None:
        step = Quantity(*map(training_run.loading.total_s, (step.estimate, step.p05, step.p95)))
    deployment, plan = training_run.rank.deployment, training_run.rank.plan
    peaks = _peaks(deployment)
    flops = training_run.model_flops / plan.gpus
    memory = training_run.memory
    less = lost(scenario, training_run, step)
    tier: Tier = "bound" if bound_only else training_run.step.tier
    size = memory.quantity
    size = with_assumed_structure(size) if deployment.model.assumed else size
    energy = {} if bound_only else _energy(training_run, step)
    return answer(
        metrics={
            "step_time_s": step,
            "tokens_per_s_per_gpu": per(step, training_run.tokens / plan.gpus),
            "model_tflops_per_gpu": per(step, flops / 1e12),
            **{name: _at_most_one(per(step, flops / peak)) for name, (_, peak) in peaks.items()},
            "memory_gb": size, **_of_allocator(training_run), **_of_host(memory),
            **_of_experts(training_run), **_of_lengths(training_run),
            **less.metrics, **energy,
        },
        bound={"step_time_s": training_run.step.bound_seconds}, tier=tier,
        domain=worst_domain((training_run.step.domain, uplinks.domain)),
        warnings=[*training_run.step.warnings, *training_run.warnings, *_bubble(training_run),
        *uplinks.warnings, *memory.advice],
        why={**_why(training_run), **less.why, **(more or {})},
    )  # fmt: skip


def _peaks(deployment: Deployment) -> dict[str, tuple[str, float]]:
    """Each MFU with the format whose peak it is a part of, and that peak, FLOP/s of a device."""
    precision = deployment.precision
    formats = {"mfu": RECIPES[precision.recipe].compute}
    if BITS[formats["mfu"]] < BITS[precision.hidden] == SHORT_BITS:
        formats["mfu_16_bit"] = precision.hidden
    peaks = {}
    for name, compute in formats.items():
        device, _ = with_format(deployment.device, compute)
        peak = device.peak_per_s(device.matrix_pipe(compute), compute)
        peaks[name] = computes_in(deployment.device, compute), peak
    return peaks


def _bubble(training_run: TrainingRun) -> tuple[str, ...]:
    """That a pipeline waits for much of the step."""
    if training_run.many is None:
        return ()
    return bubble_advice(training_run.many, training_run.rank, training_run.batch.accumulation)


def _energy(training_run: TrainingRun, step: Quantity) -> dict[str, Quantity]:
    """Of a step on all devices, where power is modelled."""
    gpus = training_run.rank.plan.gpus
    energy = work_energy(training_run.rank.deployment.machine, step, training_run.kernels_j, gpus)
    if energy is None:
        return {}
    each = energy.energy_j.times(1.0 / training_run.tokens)
    return {"energy_j": energy.energy_j, "power_w": energy.power_w, "energy_per_token_j": each}


def _of_allocator(training_run: TrainingRun) -> dict[str, Quantity]:
    """What a framework with a caching allocator reports of the same rank."""
    deployment, memory = training_run.rank.deployment, training_run.memory
    if deployment.machine.in_line:
        return {}
    table = {"memory_allocated_gb": memory.allocated, "memory_reserved_gb": memory.reserved}
    if deployment.model.assumed:
        return {name: with_assumed_structure(size) for name, size in table.items()}
    return table


def _of_host(memory: RunMemory) -> dict[str, Quantity]:
    """What a node's host needs where something is offloaded; counted, not estimated."""
    needed = memory.host_gb
    return {"host_memory_gb": Quantity(needed, needed, needed)} if needed else {}


def _of_experts(training_run: TrainingRun) -> dict[str, Quantity]:
    """What experts with a capacity drop; counted."""
    limit = training_run.rank.capacity
    if limit is None:
        return {}
    return {"dropped_share": Quantity(limit.dropped, limit.dropped, limit.dropped)}


def _of_lengths(training_run: TrainingRun) -> dict[str, Quantity]:
    """What of the computed tokens is padding, where documents have a distribution of lengths."""
    unequal = training_run.unequal
    if unequal is None:
        return {}
    return {"padded_share": Quantity(*[unequal.padded_share] * 3)}


def per(step: Quantity, amount: float) -> Quantity:
    """An amount of a step over its time: the slow end of the one is the low end of the other."""
    return Quantity(amount / step.estimate, amount / step.p95, amount / step.p05)


def _experts(training_run: TrainingRun) -> dict[str, Any]:
    limit = training_run.rank.capacity
    if limit is None:
        return {}
    return {"experts": {"capacity_tokens": limit.tokens_each, "rows_share": limit.rows}}


def _communication(result: TrainingRun) -> dict[str, Any]:
    """What of a step waits for the network: collectives within passes, transfers between stages,
    and sums of gradients that nothing hides.
    """
    whole, spent = 0.0, dict.fromkeys(sorted(COLLECTIVES), 0.0)
    for each, often in result.weighted_passes:
        for family, seconds in each.family_seconds().items():
            whole += often * seconds
            if family in spent:
                spent[family] += often * seconds
    parts = {part.name: part.exposed_ps for part in result.without_loading.part.children}
    scale = parts.pop("forward_and_backward", 0) / whole
    exposed_ps = {name: seconds * scale for name, seconds in spent.items() if seconds}
    exposed_ps |= {name: parts[name] for name in BETWEEN if name in parts}
    step_ps = max(result.step.part.exposed_ps, 1)
    return {
        "communication": {
            "exposed_ms": sum(exposed_ps.values()) * 1e3 / PICOSECONDS,
            "exposed_share": round(sum(exposed_ps.values()) / step_ps, 6),
            "shares": {name: round(ps / step_ps, 6) for name, ps in exposed_ps.items()},
        }
    }


def _lengths(training_run: TrainingRun) -> dict[str, Any]:
    unequal = training_run.unequal
    if unequal is None:
        return {}
    return {"lengths": {"slowest_rank": unequal.factor, "mean_rank": unequal.mean}}


def _at_most_one(share: Quantity) -> Quantity:
    """A share of the peak at the boost clock; bounds are at the largest clock, which is above."""
    return Quantity(min(share.estimate, 1.0), min(share.p05, 1.0), min(share.p95, 1.0))


def _why(result: TrainingRun) -> dict[str, Any]:
    deployment, plan = result.rank.deployment, result.rank.plan
    nodes = [node.op for each, _ in result.weighted_passes for node in each.model.graph.nodes]
    return {
        **why_tree(result.step.part),
        **coverage_of(*((each.tier_seconds(), often) for each, often in result.weighted_passes)),
        "uncertainty": uncertainty_of({"step_time_s": result.step}),
        **_communication(result),
        **_experts(result),
        **_lengths(result),
        "recompute": result.recompute,
        **({"recompute_share": result.again_share} if result.again_share < 1.0 else {}),
        "clock_mhz": result.clock_hz / 1e6,
        "peak_tflops": {name: peak / 1e12 for name, peak in _peaks(deployment).values()},
        **result.spread,
        "memory_gb": result.memory.parts,
        "memory_peak_at": result.memory.peak_at,
        **calibrated_by(deployment.machine.evidence, nodes, deployment.engine, "training"),
        "deployment": description(
            deployment.machine, deployment.model.name, plan.gpus, deployment.precision.label
        ),
    }
