"""Task ``inference``: one static batch of a whole model."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, final

from silicast.composition.deployment import Deployment
from silicast.composition.engine import engines_of
from silicast.composition.imbalance import imbalance
from silicast.composition.static_batch import StaticBatch, predict_static_batch
from silicast.composition.step import compiled
from silicast.composition.trace_events import Trace
from silicast.core.errors import SilicastError
from silicast.core.prediction import Prediction, Quantity, Tier
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.kernels.formats import UNMEASURED_CACHE, unmeasured_cache
from silicast.kernels.knowledge import unknown_cap
from silicast.scenario.answer import Answer, answer, latency_of, why_tree
from silicast.scenario.answerer import (
    Answerer,
    not_yet,
    refuse_unmodelled,
    register,
)
from silicast.scenario.chosen_engine import chosen_engine, no_graphs
from silicast.scenario.decode import Scenario
from silicast.scenario.dtype_names import dtype_name
from silicast.scenario.measured import calibrated_by, with_measured
from silicast.scenario.resolve import (
    cluster_of,
    device_of,
    evidence_of,
    host_of,
    limit_warnings,
    model_of,
    plan_of,
)
from silicast.scenario.uncertainty import uncertainty_of
from silicast.scenario.workloads import InferenceWorkload
from silicast.workload.model import ModelConfig
from silicast.workload.precision import Precision

MILLI = 1e3


@register
@final
class InferenceAnswerer(Answerer):
    """Metrics: ``prefill_ms``, ``decode_step_ms`` (median step), ``total_ms``, ``memory_gb``."""

    task: ClassVar[str] = "inference"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        work = scenario.workload
        assert isinstance(work, InferenceWorkload)
        deployment, warnings = deployment_of(scenario)
        lengths = _lengths(work)
        if not deployment.model.causal and work.output_len > 1:
            raise SilicastError(
                f"{deployment.model.name} is an encoder and generates no tokens",
                field="workload.output_len",
                hint="1 = the pass over the input alone",
            )
        warnings += _too_long(deployment.model, max(lengths), work.output_len)
        found = predict_static_batch(deployment, lengths, work.output_len)
        if _kernels_stand_in(deployment):
            warnings.append(
                f"not every kernel was measured on {deployment.device.architecture} in its format: "
                "constants of others stand in"
            )
        reply = _answer(found, deployment, warnings, bound_only=scenario.raw.tier == "bound")
        if waited := imbalance(deployment, lengths):
            reply.why["imbalance"] = waited
        return reply

    def trace(self, scenario: Scenario) -> Trace:
        """See :class:`~silicast.scenario.answerer.Answerer`: prefill and the first decode steps."""
        from silicast.composition.step_trace import trace_static_batch

        work = scenario.workload
        assert isinstance(work, InferenceWorkload)
        deployment, _ = deployment_of(scenario)
        return trace_static_batch(deployment, _lengths(work), work.output_len)


def _lengths(work: InferenceWorkload) -> list[int]:
    return work.input_lens or [work.input_len or 1] * (work.batch or 1)


def _kernels_stand_in(deployment: Deployment) -> bool:
    """Whether a kernel was not measured, whatever was assumed of the model's structure."""
    understood = dataclasses.replace(deployment.model, assumed=())
    return compiled(dataclasses.replace(deployment, model=understood)).domain != "in"


def deployment_of(
    scenario: Scenario,
    options: tuple[str, ...] = (),
    *,
    trains: bool = False,
) -> tuple[Deployment, list[str]]:
    """The one pool of a scenario, and warnings about what was assumed for it.

    Args:
        options: options of the engine that the task understands.
        trains: the task needs an engine that trains, else one that does not.

    Raises:
        SilicastError: an unknown name, contradictory degrees, or something not modelled.
    """
    refuse_unmodelled(
        scenario, "speculative", "lora", "colocation", "pools", "links",
        "cluster.slow_gpus", "cluster.failures",
    )  # fmt: skip
    raw = scenario.raw
    for name in ("dp", "cp", "virtual_stages"):
        if (getattr(raw.parallel, name) or 1) > 1:
            raise not_yet(f"{name} in inference", f"parallel.{name}")
    if raw.parallel.sp is True or raw.parallel.sp > 1:
        raise not_yet("sequence parallelism in inference", "parallel.sp")
    engine, said = chosen_engine(scenario, options)
    if trains and engine.kind == "serving":
        raise SilicastError(
            f"{engine.name} serves models",
            field="engine",
            hint=f"{' or '.join(engines_of('training'))} train them",
        )
    if engine.kind == "training" and not trains:
        raise SilicastError(
            f"{engine.name} trains models",
            field="engine",
            hint=f"{' or '.join(engines_of('serving'))} serve them",
        )
    device, model = device_of(scenario), model_of(scenario)
    engine, evidence, measured = with_measured(scenario, engine, evidence_of(scenario, device))
    precision, warnings = precision_of(scenario, model, device)
    warnings += [*limit_warnings(scenario), *said, *no_graphs(scenario, device), *measured]
    deployment = Deployment(
        model=model,
        device=device,
        engine=engine,
        plan=plan_of(scenario),
        precision=precision,
        host=host_of(scenario) or Host(),
        cluster=cluster_of(scenario, device),
        power_w=None if raw.limits.power_w is None else device.power_cap_w,
        clock_hz=raw.limits.clock_mhz * 1e6 if raw.limits.clock_mhz else None,
        evidence=evidence,
    )
    return deployment, warnings


def _too_long(model: ModelConfig, prompt: int, output: int) -> list[str]:
    """A warning where the longest sequence exceeds what the model was made for."""
    if not 0 < model.max_positions < prompt + output:
        return []
    longest = f"{model.name} is made for at most {model.max_positions} together"
    return [f"{prompt} tokens in and {output} out: {longest}"]


def precision_of(
    scenario: Scenario, model: ModelConfig, device: Device
) -> tuple[Precision, list[str]]:
    """The scenario's formats over the checkpoint's.

    A bf16 checkpoint runs in fp16 (else fp32) on a device without bf16, as engines run it, unless
    the scenario asks for a format.
    """
    table = scenario.raw.precision
    if table is None:
        own = model.default_precision
        if own.hidden != "bf16" or _computes(device, "bf16"):
            return own, []
        other = "fp16" if _computes(device, "fp16") else "fp32"
        if own.recipe != "bf16":
            said = f"{device.name} has no bf16: {other} is assumed between kernels"
            experts, attention = (
                other if name == "bf16" else name for name in (own.experts, own.attention)
            )
            changed = dataclasses.replace(own, hidden=other, experts=experts, attention=attention)
            return changed, [said]
        found = Precision.of(
            weights=other,
            experts=own.experts or None,
            attention=own.attention or None,
            group_size=own.group_size,
            default=own,
        )
        return found, [f"{device.name} has no bf16: {other} is assumed"]

    def canonical(name: str) -> str | None:
        value = getattr(table, name)
        return None if value is None else dtype_name(value, f"precision.{name}")

    try:
        found = Precision.of(
            weights=canonical("weights"),
            activations=canonical("activations"),
            kv_cache=canonical("kv_cache"),
            recipe=canonical("recipe"),
            group_size=table.group_size,
            experts=canonical("experts"),
            attention=canonical("attention"),
            default=model.default_precision,
        )
    except SilicastError as error:
        raise (error if error.field.startswith("precision.") else error.at("precision")) from None
    return found, []


def _computes(device: Device, dtype: str) -> bool:
    return any(device.rate_per_core(pipe, dtype) > 0.0 for pipe in ("tensor", "fma"))


def _answer(
    found: StaticBatch, deployment: Deployment, warnings: list[str], *, bound_only: bool
) -> Answer:
    metrics: dict[str, Quantity] = {}
    bound: dict[str, float] = {}
    for name, prediction in _predictions(found).items():
        metrics[name] = latency_of(prediction, bound_only=bound_only).times(MILLI)
        bound[name] = prediction.bound_seconds * MILLI
    metrics["memory_gb"] = found.memory_gb
    domain = found.total.domain
    if domain == "in" and unknown_cap(deployment.device):
        domain = "near"
    precision = deployment.precision or deployment.model.default_precision
    if stored := unmeasured_cache(precision.kv_cache):
        domain = "near" if domain == "in" else domain
        warnings = [*warnings, UNMEASURED_CACHE.format(stored)]
    tier: Tier = "bound" if bound_only else found.total.tier
    return answer(
        metrics=metrics,
        bound=bound,
        tier=tier,
        domain=domain,
        warnings=[*found.total.warnings, *warnings],
        why=_why(found, deployment),
    )


def _predictions(found: StaticBatch) -> dict[str, Prediction]:
    """Metric -> its prediction; without decode steps where nothing is decoded."""
    named = {
        "prefill_ms": found.prefill,
        "decode_step_ms": found.decode_step,
        "total_ms": found.total,
    }
    return {name: prediction for name, prediction in named.items() if prediction is not None}


def _why(found: StaticBatch, deployment: Deployment) -> dict[str, Any]:
    tree = why_tree(found.total.part)
    if found.decode_step is not None:
        tree["decode_step"] = why_tree(found.decode_step.part)
    tree["uncertainty"] = uncertainty_of(_predictions(found))
    tree["clock_mhz"] = {
        "prefill": found.clock_hz[0] / 1e6,
        "decode": found.clock_hz[1] / 1e6,
    }
    memory = found.memory
    tree["memory_gb"] = {
        name: getattr(memory, name) / 1e9
        for name in ("weights", "kv_cache", "activations", "framework", "usable", "excess")
    }
    if deployment.model.assumed:
        tree["assumed_of_model"] = list(deployment.model.assumed)
    engine, precision = deployment.engine, deployment.precision
    ops = [placed.op for placed in compiled(deployment).placed]
    tree |= calibrated_by(deployment.evidence, ops, engine, "inference")
    tree["deployment"] = {
        "model": deployment.model.name,
        "device": deployment.device.name,
        "devices": deployment.plan.gpus,
        "largest_clock_mhz": deployment.device.clocks.max_hz / 1e6,
        "engine": f"{engine.name} {engine.version}".strip(),
        "format": (precision or deployment.model.default_precision).label,
    }
    return tree
