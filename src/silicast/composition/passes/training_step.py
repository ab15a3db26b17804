"""A training step of one device: micro-batches forward and backward, then the optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import msgspec

from silicast.composition.engines.engine import TrainingTable
from silicast.composition.errors.uncertainty import narrowed_sum
from silicast.composition.memory.activation_memory import (
    ProgramMemory,
    fragmentation_bytes,
    peak_bytes,
)
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import GB, ProgramPass, predict_program
from silicast.composition.step.executions import Executions
from silicast.composition.step.machine import Machine
from silicast.core.dtypes import BITS
from silicast.core.prediction import Domain, ErrorFactors, Later, Part, Prediction, said_by
from silicast.kernels.movement.optimizer import optimizer_bytes, optimizer_flags
from silicast.kernels.physics.constants import load_physics
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.counting import (
    attention_flops,
    forward_flops,
    head_flops_per_row,
    parameters,
    predicting_flops,
    rank_parameters,
)
from silicast.workload.models.model import ModelConfig
from silicast.workload.training.backward import Training
from silicast.workload.training.recomputation import Recompute
from silicast.workload.transformers.decoder import build_graph

LEAST_FIRST: tuple[Recompute, ...] = ("none", "selective", "full")
FP32_BYTES = 4
UNMEASURED = (
    "of backward kernels in 16 bits, gradients of attention and norms were measured, on Hopper and "
    "Blackwell; those of products and passes are forward kernels of the same sizes"
)

DETERMINISTIC = (
    "deterministic mode costs time: results are filled before they are written, and gradients of "
    "attention are summed in one order, priced as measured of cuDNN 9.18 to 9.22; other releases "
    "and libraries differ, which widens the interval"
)
UNPRICED = "not priced, would change step time, which widens the interval: {}"


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """What one step trains on.

    Attributes:
        seq_len: tokens of a sequence.
        micro_batch: sequences of one pass.
        accumulation: passes of one step.
    """

    seq_len: int
    micro_batch: int
    accumulation: int = 1

    @property
    def tokens(self) -> int:
        return self.seq_len * self.micro_batch * self.accumulation


@final
@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What one step takes.

    Attributes:
        step: forward and backward of all micro-batches, and the optimizer.
        memory: on the device, at the worst point of a pass.
        recompute: what backward runs again.
        model_flops: of one step, nothing counted twice: three times the forward pass.
        clock_hz: the clock held over forward and backward.
        micro: one of its passes; update: of the weights.
    """

    step: Prediction
    memory: ProgramMemory
    recompute: Recompute
    model_flops: int
    clock_hz: float
    micro: ProgramPass
    update: ProgramPass


def predict_training_step(
    deployment: Deployment,
    batch: Batch,
    optimizer: str = "adamw",
    recompute: Recompute | None = None,
    *,
    framework: Framework | None = None,
) -> TrainingStep:
    """Predicts one optimizer step on one device.

    Args:
        deployment: model, device, engine; one device.
        batch: sequences of a step.
        optimizer: its update rule.
        recompute: None = the least that fits, else full.
        framework: how the model's code runs; None = the layers of a training library.

    Raises:
        SilicastError: a part of the model has no kernel model on the device.
    """
    usual = Framework(compiled=True, attention="fused", fused_layers=True)
    chosen, memory = _fitting(deployment, batch, optimizer, recompute, framework or usual)
    framework_pass = predict_framework_pass(deployment, batch.micro_batch, batch.seq_len, chosen)
    update = predict_update(deployment.machine, update_graph(deployment, optimizer))
    assert chosen.training is not None
    return TrainingStep(
        step=_step(framework_pass, update.total, batch.accumulation, deployment),
        memory=memory,
        recompute=chosen.training.recompute,
        model_flops=model_flops(deployment.model, batch),
        clock_hz=framework_pass.clock_hz,
        micro=framework_pass,
        update=update,
    )


def _fitting(
    deployment: Deployment,
    batch: Batch,
    optimizer: str,
    recompute: Recompute | None,
    framework: Framework,
) -> tuple[Framework, ProgramMemory]:
    """The framework with the least recomputation that fits, and its memory."""
    usable = deployment.device.dram.capacity_bytes * deployment.engine.memory.usable_fraction
    tried = LEAST_FIRST if recompute is None else (recompute,)
    for each in tried:
        training = Training(dropout=False, accumulates=batch.accumulation > 1, recompute=each)
        chosen = replace(framework, training=training)
        memory = training_memory(deployment, batch, optimizer, chosen)
        if memory.total <= usable:
            break
    return chosen, memory


def training_memory(
    deployment: Deployment, batch: Batch, optimizer: str, framework: Framework
) -> ProgramMemory:
    """Memory of a step: weights and what is kept for each of them, and a pass's activations."""
    precision = deployment.precision
    graph = build_graph(deployment.model, deployment.plan, precision, deployment.policy)
    shape = PassShape(batch.micro_batch, batch.seq_len)
    lowered = framework_graph(graph, deployment.model, shape, framework, precision.hidden)
    activations, worst = peak_bytes(Executions.from_graph(lowered))
    gradients, states = state_bytes(deployment, optimizer)
    return ProgramMemory(
        weights=parameters(deployment.model, mtp=False) * (int(BITS[precision.hidden]) // 8),
        activations=activations,
        fragmentation=0 if deployment.machine.in_line else fragmentation_bytes(activations),
        framework=round(deployment.machine.framework_gb * GB),
        gradients=gradients,
        optimizer=states,
        peak_node=worst,
    )


def state_bytes(deployment: Deployment, optimizer: str | None) -> tuple[int, int]:
    """Bytes of a rank's gradients, and of what an optimizer keeps for its parameters.

    Gradients of 16-bit weights are accumulated in fp32.
    """
    model, plan, dtype = deployment.model, deployment.plan, deployment.precision.hidden
    count = parameters(model, mtp=False)
    if plan.gpus > plan.dp:
        stages = range(plan.pp)
        count = max(rank_parameters(model, plan, each, deployment.policy) for each in stages)
    gradients = count * max(int(BITS[dtype]) // 8, FP32_BYTES)
    return gradients, 0 if optimizer is None else count * optimizer_bytes(optimizer, dtype)


def predict_update(machine: Machine, graph: Graph) -> ProgramPass:
    """Predicts an optimizer step, with what the engine's host does for it."""
    host = machine.engine.host
    if host.update_us:
        host = msgspec.structs.replace(host, step_us=host.update_us)
        engine = msgspec.structs.replace(machine.engine, host=host)
        machine = replace(machine, engine=engine)
    return predict_program(machine, graph)


def update_graph(deployment: Deployment, optimizer: str) -> Graph:
    """One update of all parameters of a rank."""
    precision = deployment.precision
    flags = optimizer_flags(optimizer, fp32_grads=precision.hidden != "fp32")
    variant = Variant(dtype=precision.hidden, flags=flags)
    plan, policy = deployment.plan, deployment.policy
    held = (rank_parameters(deployment.model, plan, stage, policy) for stage in range(plan.pp))
    op = Op.make("optimizer", variant, elements=max(held))
    block = Block("optimizer", (Node("update", op),), direction="optimizer")
    return Graph(f"{deployment.model.name} update", (block,), "training")


def model_flops(model: ModelConfig, batch: Batch, adapters: int | None = None) -> int:
    """Three times the products of a forward pass with logits of all tokens; of frozen weights, two
    times, for they have no gradients (4 instead of 6 operations a parameter and token).

    Args:
        adapters: parameters that are trained beside frozen weights; None = the weights are.
    """
    count = batch.micro_batch
    lengths = [(batch.seq_len, batch.seq_len)] * count
    forward = forward_flops(model, lengths)
    forward += (batch.seq_len - 1) * count * head_flops_per_row(model)
    forward += predicting_flops(model, lengths)
    if adapters is None:
        return 3 * batch.accumulation * forward
    mixing = attention_flops(model.encoder or model, lengths)
    beside = 2 * adapters * batch.seq_len * count
    return batch.accumulation * (2 * (forward - mixing) + 3 * (mixing + beside))


def _step(
    program_pass: ProgramPass, update: Prediction, accumulation: int, deployment: Deployment
) -> Prediction:
    """``accumulation`` passes and one update."""
    passes = replace(program_pass.total, part=repeated(program_pass.total.part, accumulation))
    return unmeasured_training(with_update(passes, update, "step"), deployment)


def with_update(passes: Prediction, update: Prediction, name: str) -> Prediction:
    """Passes forward and backward, then one update."""
    part = Part.group(name, (passes.part.changed(name="forward_and_backward"), update.part))
    both = [(each.part.exposed_ps, each.error, each.narrowed) for each in (passes, update)]
    error = ErrorFactors.of_sum([(time, each) for time, each, _ in both])
    return replace(
        passes,
        part=part,
        error=error,
        warnings=said_by(passes, update),
        narrowed=Later(lambda: narrowed_sum(both)),
    )


def unmeasured_training(
    prediction: Prediction, deployment: Deployment, *, context: bool = False
) -> Prediction:
    """Of a step of a model: see :func:`unmeasured_backward`.

    Args:
        context: ranks share sequences.
    """
    experts = deployment.model.moe is not None
    prediction = unmeasured_backward(
        prediction, deployment.precision.hidden, deployment.device.architecture, experts=experts
    )
    return _with_switches(prediction, deployment.engine.training, context=context)


def _with_switches(prediction: Prediction, table: TrainingTable, *, context: bool) -> Prediction:
    """Wider where switches cost a time that is not known, which warnings name."""
    judged = load_physics("training").default
    spread = math.hypot(table.log_sd, judged["unpriced_log_sd"] * math.sqrt(len(table.unpriced)))
    spread = math.hypot(spread, table.context_log_sd if context else 0.0)
    remarks = [UNPRICED.format(", ".join(table.unpriced))] if table.unpriced else []
    if table.deterministic:
        spread = math.hypot(spread, judged["deterministic_log_sd"])
        remarks.append(DETERMINISTIC)
    if not spread:
        return prediction
    return _wider(prediction, "switches", spread, remarks)


def unmeasured_backward(
    prediction: Prediction, dtype: str, architecture: str, *, experts: bool = False
) -> Prediction:
    """Of a pass that trains: wider where not all backward kernels of its format were measured."""
    if dtype == "fp32":
        return prediction
    judged = load_physics("training").default
    spread = load_physics("composition").default["training_log_sd"]
    if load_physics("attention_backward").is_measured(architecture):
        spread = judged["measured_log_sd"]
    if experts:
        spread = math.hypot(spread, judged["experts_log_sd"])

    return replace(_wider(prediction, "training", spread, [UNMEASURED]), domain=_near(prediction))


def _wider(
    prediction: Prediction, factor: str, spread: float, remarks: Sequence[str]
) -> Prediction:
    """With an error of its own, and what warnings say of it."""

    def wider(error: ErrorFactors) -> ErrorFactors:
        return replace(error, loadings={**error.loadings, factor: spread})

    narrowed = prediction.narrowed
    return replace(
        prediction,
        error=wider(prediction.error),
        warnings=tuple(dict.fromkeys((*prediction.warnings, *remarks))),
        narrowed=Later(lambda: {name: wider(error) for name, error in narrowed.items()}),
    )


def _near(total: Prediction) -> Domain:
    return "near" if total.domain == "in" else total.domain


def repeated(part: Part, times: int) -> Part:
    """A part that runs ``times`` times, with all that is in it; counts of parts stay, which are
    within the parent.

    >>> repeated(Part("pass", 5, children=(Part("a", 2), Part("b", 3))), 3).children[1].exposed_ps
    9
    """
    return _longer(part, times).changed(count=part.count * times)


def _longer(part: Part, times: int) -> Part:
    """All times and work of a part, and of what is in it, so many times."""
    return part.changed(
        exposed_ps=part.exposed_ps * times,
        hidden_ps=part.hidden_ps * times,
        bound_ps=part.bound_ps * times,
        ceiling_ps=part.ceiling_ps * times,
        work=part.work * times,
        children=tuple(_longer(child, times) for child in part.children),
    )
