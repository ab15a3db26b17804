"""Task ``training``: one optimizer step, of one device or of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.composition.errors.assumed_structure import with_assumed_structure
from silicast.composition.power.energy import work_energy
from silicast.composition.timeline.trace_events import Trace
from silicast.core.dtypes import RECIPES
from silicast.core.prediction import Quantity, Tier
from silicast.distributed.pipeline.bubble_advice import bubble_advice
from silicast.kernels.physics.formats import with_format
from silicast.scenario.answer import Answer, answer, latency_of, why_tree
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.answers.training.training_goodput import lost
from silicast.scenario.answers.training.training_memory import RunMemory
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.decode import Scenario
from silicast.scenario.resolving.deployments import description
from silicast.scenario.resolving.measured import calibrated_by
from silicast.scenario.uncertainty import uncertainty_of


@register
@final
class TrainingAnswerer(Answerer):
    """Metrics: ``step_time_s``, ``tokens_per_s_per_gpu``, ``model_tflops_per_gpu`` (three times the
    forward pass, of frozen weights two times, nothing recomputed), ``mfu`` (of the peak of the
    step's format), ``memory_gb`` of the rank that needs most; ``energy_j``, ``power_w`` (of a
    device) and ``energy_per_token_j`` where power is modelled; ``host_memory_gb`` of a node where
    something is offloaded; those of :mod:`silicast.scenario.answers.training.training_goodput`
    where slow devices or
    failures are stated.
    """

    task: ClassVar[str] = "training"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        return answer_of(scenario, run_of(scenario), bound_only=scenario.raw.tier == "bound")

    def trace(self, scenario: Scenario) -> Trace:
        """See :class:`~silicast.scenario.answerer.Answerer`: the ranks of a pipeline, or some
        micro-batches of one device, and the update.
        """
        from silicast.distributed.step.step_trace import trace_alone, trace_step

        found = run_of(scenario)
        count = found.batch.accumulation
        if found.many is not None:
            return trace_step(found.many, found.rank, count, found.overlap, found.again_share)
        assert found.one is not None
        return trace_alone(found.one, count)


def answer_of(
    scenario: Scenario,
    found: TrainingRun,
    *,
    bound_only: bool = False,
    more: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer that a step means; ``more`` is added to its reasons."""
    step = latency_of(found.without_loading, bound_only=bound_only)
    if found.loading is not None:
        step = Quantity(*map(found.loading.total_s, (step.estimate, step.p05, step.p95)))
    own, plan = found.rank.deployment, found.rank.plan
    compute = RECIPES[own.precision.recipe].compute
    device, _ = with_format(own.device, compute)
    peak = device.peak_per_s(device.matrix_pipe(compute), compute)
    flops = found.model_flops / plan.gpus
    memory = found.memory
    less = lost(scenario, found, step)
    tier: Tier = "bound" if bound_only else found.step.tier
    size = memory.quantity
    size = with_assumed_structure(size) if own.model.assumed else size
    energy = {} if bound_only else _energy(found, step)
    return answer(
        metrics={
            "step_time_s": step,
            "tokens_per_s_per_gpu": per(step, found.tokens / plan.gpus),
            "model_tflops_per_gpu": per(step, flops / 1e12),
            "mfu": _at_most_one(per(step, flops / peak)),
            "memory_gb": size, **_of_host(memory), **_of_experts(found),
            **less.metrics, **energy,
        },
        bound={"step_time_s": found.step.bound_seconds}, tier=tier, domain=found.step.domain,
        warnings=[*found.step.warnings, *found.warnings, *_bubble(found), *memory.advice],
        why={**_why(found), **less.why, **(more or {})},
    )  # fmt: skip


def _bubble(found: TrainingRun) -> tuple[str, ...]:
    """That a pipeline waits for much of the step."""
    if found.many is None:
        return ()
    return bubble_advice(found.many, found.rank, found.batch.accumulation)


def _energy(found: TrainingRun, step: Quantity) -> dict[str, Quantity]:
    """Of a step on all devices, where power is modelled."""
    gpus = found.rank.plan.gpus
    energy = work_energy(found.rank.deployment.machine, step, found.kernels_j, gpus)
    if energy is None:
        return {}
    each = energy.energy_j.times(1.0 / found.tokens)
    return {"energy_j": energy.energy_j, "power_w": energy.power_w, "energy_per_token_j": each}


def _of_host(memory: RunMemory) -> dict[str, Quantity]:
    """What a node's host needs where something is offloaded; counted, not estimated."""
    needed = memory.host_gb
    return {"host_memory_gb": Quantity(needed, needed, needed)} if needed else {}


def _of_experts(found: TrainingRun) -> dict[str, Quantity]:
    """What experts with a capacity drop; counted."""
    limit = found.rank.capacity
    if limit is None:
        return {}
    return {"dropped_share": Quantity(limit.dropped, limit.dropped, limit.dropped)}


def per(step: Quantity, amount: float) -> Quantity:
    """An amount of a step over its time: the slow end of the one is the low end of the other."""
    return Quantity(amount / step.estimate, amount / step.p95, amount / step.p05)


def _experts(found: TrainingRun) -> dict[str, Any]:
    limit = found.rank.capacity
    if limit is None:
        return {}
    return {"experts": {"capacity_tokens": limit.tokens_each, "rows_share": limit.rows}}


def _at_most_one(share: Quantity) -> Quantity:
    """A share of the peak at the boost clock; bounds are at the largest clock, which is above."""
    return Quantity(min(share.estimate, 1.0), min(share.p05, 1.0), min(share.p95, 1.0))


def _why(found: TrainingRun) -> dict[str, Any]:
    own, plan = found.rank.deployment, found.rank.plan
    nodes = [node.op for each, _ in found.weighted_passes for node in each.model.graph.nodes]
    return {
        **why_tree(found.step.part), "uncertainty": uncertainty_of({"step_time_s": found.step}),
        **_experts(found), "recompute": found.recompute,
        **({"recompute_share": found.again_share} if found.again_share < 1.0 else {}),
        "clock_mhz": found.clock_hz / 1e6,
        **found.spread, "memory_gb": found.memory.parts, "memory_peak_at": found.memory.peak_at,
        **calibrated_by(own.machine.evidence, nodes, own.engine, "training"),
        "deployment": description(
            own.machine, own.model.name, plan.gpus, own.precision.label
        ),
    }  # fmt: skip
