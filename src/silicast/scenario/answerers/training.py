"""Task ``training``: one optimizer step, so far of one device."""

from __future__ import annotations

from typing import Any, ClassVar, cast, final, get_args

from silicast.composition.deployment import Deployment
from silicast.composition.trace_events import Trace
from silicast.composition.training_step import Batch, TrainingStep, predict_training_step
from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity, Tier
from silicast.kernels.formats import with_format
from silicast.scenario.answer import Answer, answer, latency_of, why_tree
from silicast.scenario.answerer import Answerer, not_yet, register
from silicast.scenario.decode import Scenario
from silicast.scenario.deployments import deployment_of, description, framework_of
from silicast.scenario.measured import calibrated_by
from silicast.scenario.named import check_names
from silicast.scenario.uncertainty import uncertainty_of
from silicast.scenario.update_rule import update_rule
from silicast.scenario.workloads import TrainingWorkload
from silicast.workload.backward import Recompute

DEFAULT_OPTIMIZER = "adamw"


@register
@final
class TrainingAnswerer(Answerer):
    """Metrics: ``step_time_s``, ``tokens_per_s_per_gpu``, ``model_tflops_per_gpu`` (three times the
    forward pass, nothing recomputed), ``mfu`` (of the peak of the step's format), ``memory_gb``.
    """

    task: ClassVar[str] = "training"

    def answer(self, scenario: Scenario) -> Answer:
        """See :class:`~silicast.scenario.answerer.Answerer`."""
        found, deployment, batch, warnings = step_of(scenario)
        return _answer(found, deployment, batch, warnings, bound_only=scenario.raw.tier == "bound")

    def trace(self, scenario: Scenario) -> Trace:
        """See :class:`~silicast.scenario.answerer.Answerer`: some micro-batches, the update."""
        from silicast.composition.trace import trace_training_step

        found, _, batch, _ = step_of(scenario)
        return trace_training_step(found, batch.accumulation)


def step_of(scenario: Scenario) -> tuple[TrainingStep, Deployment, Batch, list[str]]:
    """The step, what runs it on which batch, and what was assumed."""
    work = scenario.workload
    assert isinstance(work, TrainingWorkload)
    check_names(scenario)
    _refuse(scenario, work)
    batch = Batch(work.seq_len, work.micro_batch, work.global_batch // work.micro_batch)
    optimizer = update_rule(work.optimizer or DEFAULT_OPTIMIZER)
    deployment, warnings = deployment_of(scenario, options=("attention",), trains=True)
    warnings += _checked(deployment, work)
    framework = None
    if deployment.engine.kind == "framework":
        framework, said = framework_of(scenario, deployment.engine)
        warnings += said
    found = predict_training_step(
        deployment, batch, optimizer, _recompute(work), framework=framework
    )
    return found, deployment, batch, warnings


def _refuse(scenario: Scenario, work: TrainingWorkload) -> None:
    """What a step of one device does not have, or no model answers yet."""
    degrees = scenario.raw.parallel
    for name in ("tp", "pp", "dp", "ep", "cp", "etp", "attention_dp", "virtual_stages"):
        if (getattr(degrees, name) or 1) > 1:
            raise not_yet("training on several devices", f"parallel.{name}")
    cluster = scenario.raw.cluster
    if cluster is not None and (cluster.gpus or 1) > 1:
        raise not_yet("training on several devices", "cluster.gpus")
    if work.task == "lora":
        raise not_yet("training of low-rank adapters", "workload.task")
    if work.routing not in (None, "balanced"):
        raise not_yet("unbalanced experts in training", "workload.routing")


def _checked(deployment: Deployment, work: TrainingWorkload) -> list[str]:
    """A warning where sequences are longer than the model was made for.

    Raises:
        SilicastError: weights in a format that has no gradients.
    """
    precision = deployment.precision
    recipe = RECIPES[precision.recipe]
    if recipe.weight_bits < 16 and recipe.compute in ("bf16", "fp16", "fp32"):
        raise SilicastError(
            f"weights in {recipe.name} are not trained",
            field="precision",
            hint="bf16, fp32, tf32 or an fp8 recipe",
        )
    longest = deployment.model.max_positions
    if not 0 < longest < work.seq_len:
        return []
    return [f"{work.seq_len} tokens: {deployment.model.name} is made for at most {longest}"]


def _recompute(work: TrainingWorkload) -> Recompute | None:
    if work.recompute is None or work.recompute in get_args(Recompute):
        return cast("Recompute | None", work.recompute)
    raise not_yet("recomputation of single modules", "workload.recompute", "selective, or full")


def _answer(
    found: TrainingStep,
    deployment: Deployment,
    batch: Batch,
    warnings: list[str],
    *,
    bound_only: bool,
) -> Answer:
    step = latency_of(found.step, bound_only=bound_only)
    precision = deployment.precision
    device, _ = with_format(deployment.device, RECIPES[precision.recipe].compute)
    compute = RECIPES[precision.recipe].compute
    peak = device.peak_per_s(device.matrix_pipe(compute), compute)
    flops = found.model_flops
    memory = found.memory
    known = memory.weights + memory.gradients + memory.optimizer
    rough = memory.total - known
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
    excess = max(memory.total - usable, 0.0)
    said = [*found.step.warnings, *warnings]
    if excess:
        said.append(
            f"does not fit by {excess / 1e9:.1f} GB with recompute = {found.recompute}: a smaller "
            "micro_batch or several devices would help"
        )
    tier: Tier = "bound" if bound_only else found.step.tier
    return answer(
        metrics={
            "step_time_s": step, "tokens_per_s_per_gpu": per(step, batch.tokens),
            "model_tflops_per_gpu": per(step, flops / 1e12), "mfu": per(step, flops / peak),
            "memory_gb": Quantity(
                memory.total / 1e9, (known + 0.7 * rough) / 1e9, (known + 1.5 * rough) / 1e9
            ),
        },
        bound={"step_time_s": found.step.bound_seconds}, tier=tier, domain=found.step.domain,
        warnings=said, why=_why(found, deployment, usable),
    )  # fmt: skip


def per(step: Quantity, amount: float) -> Quantity:
    """An amount of a step over its time: the slow end of the one is the low end of the other."""
    return Quantity(amount / step.estimate, amount / step.p95, amount / step.p05)


def _why(found: TrainingStep, deployment: Deployment, usable: float) -> dict[str, Any]:
    memory = found.memory
    names = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")
    return {
        **why_tree(found.step.part), "uncertainty": uncertainty_of({"step_time_s": found.step}),
        "recompute": found.recompute, "clock_mhz": found.clock_hz / 1e6,
        "memory_gb": {
            **{name: getattr(memory, name) / 1e9 for name in names},
            "usable": usable / 1e9,
            "excess": max(memory.total - usable, 0.0) / 1e9,
        },
        "memory_peak_at": memory.peak_node,
        **calibrated_by(
            deployment.machine.evidence, [node.op for node in found.micro.model.graph.nodes],
            deployment.engine, "training",
        ),
        "deployment": description(
            deployment.machine, deployment.model.name, 1, deployment.precision.label
        ),
    }  # fmt: skip
