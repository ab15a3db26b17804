"""Task ``graph``: one pass of a whole model in a framework, or of a program in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from silicast.composition.engines.measured_host import with_operator_us
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import GB, ProgramPass, predict_program
from silicast.composition.passes.training_step import (
    state_bytes,
    unmeasured_backward,
    update_graph,
    with_update,
)
from silicast.composition.power.energy import work_energy
from silicast.composition.step.machine import Machine
from silicast.composition.timeline.trace_events import PredictedTimeline
from silicast.core.calibrated import Blended
from silicast.core.errors import SilicastError, errors_located
from silicast.core.prediction import Domain, Quantity, Tier
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.roofline import on_chip
from silicast.learning.known_latencies import blended_ms
from silicast.scenario.answer import (
    UNMODELLED,
    Answer,
    answer,
    coverage_of,
    largest_of,
    latency_of,
    uncertainty_of,
    why_tree,
)
from silicast.scenario.answerer import Answerer, register
from silicast.scenario.decode import Scenario
from silicast.scenario.reading.boards import is_board
from silicast.scenario.resolve import device_of, plan_of
from silicast.scenario.resolving.calibrations import calibrations_of
from silicast.scenario.resolving.deployments import (
    check_trains,
    deployment_of,
    description,
    framework_of,
    machine_of,
)
from silicast.scenario.resolving.measured import calibrated_by
from silicast.scenario.resolving.program_file import is_execution_trace, program_in, update_rule
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.frameworks.runtimes import TARGETS, fallen_back, joined_graph, runtime_named
from silicast.workload.graphs.graph import Graph, narrowed
from silicast.workload.spaces.space import architecture, is_architecture
from silicast.workload.training.backward import Training

NEAR, OUT = 1.0, 4.0
"""A latency within the samples' range is in the domain; up to OUT times beyond it, near."""


@final
@dataclass(frozen=True)
class SampledNetwork:
    """A network that a calibration speaks of.

    Attributes:
        choices: of the architecture, (1, positions).
        device: that was measured; source: of the calibration.
    """

    blend: Blended
    choices: tuple[int, ...]
    device: str
    source: str


def sampled_in(scenario: Scenario) -> SampledNetwork | None:
    """What a scenario's calibrations say of its network; None where it is none of a space, or no
    calibration is of its space and device.

    Raises:
        SilicastError: a calibration cannot be read, or the architecture's name.
    """
    work, device = scenario.workload, scenario.raw.device
    if not isinstance(work, GraphWorkload) or not is_architecture(work.graph or ""):
        return None
    if scenario.raw.tier not in ("auto", "calibrated") or not isinstance(device, str):
        return None
    with errors_located("workload.graph"):
        space, choices = architecture(work.graph or "")
    for calibration in calibrations_of(scenario.raw.calibration, scenario.folder):
        if not calibration.is_of(_catalog_name(device)):
            continue
        for blend in calibration.blends:
            if blend.space == space.name:
                return SampledNetwork(blend, choices, calibration.scope.device, calibration.source)
    return None


def _catalog_name(device: str) -> str:
    try:
        return find_device(device).name
    except SilicastError:
        return device


def sampled_answer(scenario: Scenario, network: SampledNetwork) -> Answer:
    """The answer by samples alone.

    Raises:
        SilicastError: the scenario asks for what samples do not say: training, or a batch.
    """
    work, blend = scenario.workload, network.blend
    assert isinstance(work, GraphWorkload)
    if work.mode != "inference" or (work.batch or 1) != 1 or work.sizes:
        raise SilicastError(
            "samples are of one inference as it was measured",
            field="workload",
            hint="leave out mode, batch and sizes, or the calibration",
        )
    latency = float(blended_ms(blend, np.array([network.choices], dtype=np.int64))[0])
    beyond = max(latency / blend.most_ms, blend.least_ms / latency)
    domain: Domain = "in" if beyond <= NEAR else "near" if beyond <= OUT else "out"
    wider = 1.0 if domain == "in" else 1.5 if domain == "near" else 3.0
    outside = (
        f"{latency:.3g} ms lies outside the samples, {blend.least_ms:.3g} to "
        f"{blend.most_ms:.3g} ms: the interval is {wider:g} times as wide"
    )
    belief = Quantity.around(latency, blend.log_sd * wider)
    return answer(
        metrics={"e2e_ms": belief, "forward_ms": belief},
        bound={},
        tier="calibrated",
        domain=domain,
        warnings=[] if domain == "in" else [outside],
        why={
            "name": "network",
            "exposed_ms": latency,
            "share": 1.0,
            "calibration": {
                "device": network.device,
                "source": network.source,
                "samples": blend.rows,
                "known_devices": blend.devices,
                "kernels_ms": blend.kernels,
                "log_sd": blend.log_sd,
            },
        },
    )


FRAMEWORK_OPTIONS = ("attention", "autocast")
RUNTIME = "runtime"
AUTOCAST = ("bf16", "fp16")
MILLI = 1e3


@final
@dataclass(frozen=True)
class RequestedPass:
    """The pass that a scenario asks for.

    Attributes:
        warnings: what was assumed for it.
        model: name of the model or program; devices that run it; format of its numbers.
        update: of the weights behind it, a pass of its own.
        joined: operator -> the kernel that a runtime runs it in.
    """

    program: ProgramPass
    warnings: list[str]
    model: str
    devices: int
    format: str
    update: ProgramPass | None = None
    joined: Mapping[str, str] = field(default_factory=dict)


@register
@final
class GraphAnswerer(Answerer):
    """Metrics: ``e2e_ms``, ``forward_ms``, ``backward_ms`` of a pass that trains, ``energy_j`` and
    ``power_w`` where power is modelled: one pass over
    ``batch`` x ``seq_len`` tokens, logits of all of them. The engine says whether the framework
    compiles; its option ``attention`` is "math" (products and softmax one by one, as with
    ``attn_implementation="eager"``) or "fused"; its option ``autocast`` is the format of products
    under automatic mixed precision; of an ONNX or TFLite file, ``runtime`` names whose rules join
    operators. Of a Chakra trace, ``e2e_ms`` alone. Of an architecture of a
    space, where a calibration holds samples of the device, what these say.
    """

    task: ClassVar[str] = "graph"

    def answer(self, scenario: Scenario) -> Answer:
        if is_execution_trace(scenario):
            from silicast.scenario.resolving.execution_trace import trace_answer

            return trace_answer(scenario)
        if is_board(scenario.raw.device):
            from silicast.scenario.resolving.board_network import ON_NEST, board_answer, on_nest

            if scenario.raw.tier not in ON_NEST:
                return board_answer(scenario)
            scenario = on_nest(scenario)
        sampled = sampled_in(scenario)
        if sampled is not None:
            return sampled_answer(scenario, sampled)
        return _answer(pass_of(scenario), bound_only=scenario.raw.tier == "bound")

    def trace(self, scenario: Scenario) -> PredictedTimeline:
        if is_execution_trace(scenario):
            from silicast.scenario.resolving.execution_trace import trace_timeline

            return trace_timeline(scenario)
        from silicast.composition.timeline.trace_events import trace_program

        requested = pass_of(scenario)
        return trace_program(requested.program, requested.update)


def pass_of(scenario: Scenario) -> RequestedPass:
    """The pass of a model by name, or of the program that ``workload.graph`` names.

    Raises:
        SilicastError: an unknown name, a bad file, or something not modelled.
    """
    work = scenario.workload
    assert isinstance(work, GraphWorkload)
    if work.mode == "training":
        check_trains(device_of(scenario))
    return _of_model(scenario, work) if work.graph is None else _of_file(scenario)


def _of_model(scenario: Scenario, work: GraphWorkload) -> RequestedPass:
    deployment, warnings = deployment_of(scenario, options=FRAMEWORK_OPTIONS)
    framework, framework_warnings = framework_of(scenario, deployment.engine)
    framework = replace(framework, autocast=_autocast(scenario, deployment))
    trains = work.mode == "training"
    if work.optimizer is not None and not trains:
        raise SilicastError("an optimizer in a pass without training", field="workload.optimizer")
    if trains:
        framework = replace(framework, training=Training())
    framework_pass = predict_framework_pass(
        deployment, work.batch or 1, work.seq_len or 1, framework
    )
    update = None
    if trains:
        framework_pass, update = _trained(
            framework_pass, deployment, work.optimizer, framework.autocast
        )
    return RequestedPass(
        framework_pass,
        [*framework_warnings, *warnings],
        deployment.model.name,
        deployment.plan.gpus,
        deployment.precision.label,
        update,
    )


def _of_file(scenario: Scenario) -> RequestedPass:
    plan = plan_of(scenario)
    if plan.gpus > 1 or plan.dp > 1 or plan.cp > 1:
        raise not_yet_of(PARTS["program"], "parallel")
    machine, warnings = machine_of(scenario, (RUNTIME,))
    program = program_in(scenario, compiles=machine.engine.compiles)
    graph, halved = _in_halves(program.graph, machine.device)
    graph, machine, remarks, joined = _by_runtime(scenario, graph, machine)
    remarks = [*halved, *remarks]
    result = predict_program(machine, graph, state_bytes=program.state_bytes)
    formats = dict.fromkeys(node.op.variant.dtype for node in result.model.graph.nodes)
    warnings = [*warnings, *program.said, *remarks]
    name, label = result.model.graph.name, " and ".join(formats)
    return RequestedPass(result, warnings, name, 1, label, joined=joined)


def _in_halves(graph: Graph, device: Device) -> tuple[Graph, list[str]]:
    """A program in 32 bits as NPUs of 16-bit floats run it: all of it in these."""
    rates = device.core.pipes["tensor"].rate if device.structure is not None else {}
    if "fp32" in rates or "fp16" not in rates:
        return graph, []
    if all(node.op.variant.dtype != "fp32" for _, node in graph.nodes()):
        return graph, []
    return narrowed(graph, "fp32", "fp16"), [f"{device.name} runs fp32 in fp16, stored as such"]


def _by_runtime(
    scenario: Scenario, graph: Graph, machine: Machine
) -> tuple[Graph, Machine, list[str], Mapping[str, str]]:
    """A program as the runtime that is named runs it, the machine with the host time of that
    runtime, remarks on what it joins and leaves to the CPU, and the operators that it joins.

    Raises:
        SilicastError: an unknown runtime, one that does not run on such a device, or a program that
            is no network of a file.
    """
    name = scenario.engine.options.get(RUNTIME) if scenario.engine is not None else None
    if name is None:
        return graph, machine, [], {}
    target = TARGETS.get(machine.device.execution_model, "npu")
    is_file = any(node.source.startswith("onnx.") for _, node in graph.nodes())
    if not is_file and target != "npu":
        raise SilicastError(
            "runtimes run ONNX and TFLite files",
            field=f"engine.options.{RUNTIME}",
            hint="leave it out; an engine that compiles fuses other programs",
        )
    runtime, device, engine = runtime_named(str(name)), machine.device, machine.engine
    rules = runtime.rules(target)
    graph, joined = joined_graph(graph, rules, on_chip(device)[0])
    count = "1 operator" if len(joined) == 1 else f"{len(joined)} operators"
    host = f"host time is that of {engine.name}: none of {runtime.name} was measured"
    if rules.operator_us is not None:
        machine = replace(machine, engine=with_operator_us(engine, rules.operator_us))
        host = (
            f"host time is {rules.operator_us:g} us an operator of {runtime.name}"
            if rules.operator_us
            else f"{runtime.name} runs the network in one call, whose own time is not counted"
        )
    remarks = [f"{runtime.name} on the {target.upper()} joins {count} to others", host]
    left = fallen_back(graph, rules)
    if left:
        remarks.append(
            f"{runtime.name} leaves {', '.join(left)} to the CPU: predicted on {device.name}"
        )
    return graph, machine, remarks, joined


def _autocast(scenario: Scenario, deployment: Deployment) -> str:
    """The format of products under automatic mixed precision; "" = none."""
    autocast = scenario.engine.options.get("autocast") if scenario.engine is not None else None
    if autocast is None:
        return ""
    if autocast not in AUTOCAST:
        raise SilicastError(
            f"expected one of {', '.join(AUTOCAST)}, found {autocast!r:.40}",
            field="engine.options.autocast",
        )
    if deployment.precision.hidden != "fp32":
        raise SilicastError(
            f"the weights are {deployment.precision.hidden} already",
            field="engine.options.autocast",
            hint='weights = "fp32" in [precision], or leave autocast out',
        )
    return str(autocast)


def _trained(
    program_pass: ProgramPass, deployment: Deployment, optimizer: str | None, autocast: str
) -> tuple[ProgramPass, ProgramPass | None]:
    """With what training keeps in memory, and what is not known of backward kernels; and the update
    of an optimizer, if one is named.
    """
    products = autocast or deployment.precision.hidden
    total, directions, update = program_pass.total, dict(program_pass.directions), None
    rule = None if optimizer is None else update_rule(optimizer)
    if rule is not None:
        update = predict_program(deployment.machine, update_graph(deployment, rule))
        total = with_update(total, update.total, "e2e")
    board = deployment.device.architecture
    directions["backward"] = unmeasured_backward(directions["backward"], products, board)
    total = unmeasured_backward(total, products, board)
    held = state_bytes(deployment, rule)
    trained = replace(program_pass, state_bytes=held)
    return trained.with_predictions(total, directions), update


def _answer(requested: RequestedPass, *, bound_only: bool) -> Answer:
    result = requested.program
    named = {"e2e_ms": result.total}
    named |= {f"{way}_ms": each for way, each in result.directions.items() if way != "optimizer"}
    tier: Tier = "bound" if bound_only else result.total.tier
    return answer(
        metrics={
            name: latency_of(prediction, bound_only=bound_only).times(MILLI)
            for name, prediction in named.items()
        }
        | ({} if bound_only else _energy(requested)),
        bound={name: prediction.bound_seconds * MILLI for name, prediction in named.items()},
        tier=tier,
        domain=result.total.domain,
        warnings=[*result.total.warnings, *requested.warnings, *_too_large(result)],
        why=_why(requested),
    )


def _energy(requested: RequestedPass) -> dict[str, Quantity]:
    """Of the pass on all devices, where power is modelled."""
    result = requested.program
    kernels_j = result.kernels_j + (requested.update.kernels_j if requested.update else 0.0)
    stages = result.model.graph.plan.pp
    energy = work_energy(
        result.model.machine, result.total.latency_s, kernels_j / stages, requested.devices
    )
    return {} if energy is None else {"energy_j": energy.energy_j, "power_w": energy.power_w}


def _too_large(program_pass: ProgramPass) -> list[str]:
    """A warning where it does not fit into the device's memory."""
    device = program_pass.model.machine.device
    if program_pass.memory.total <= device.dram.capacity_bytes:
        return []
    needs = (
        f"needs {program_pass.memory.total / GB:.1f} GB of {device.dram.capacity_bytes / GB:.1f} GB"
    )
    return [f"{needs} on {device.name}: it does not fit"]


def _why(requested: RequestedPass) -> dict[str, Any]:
    result, machine = requested.program, requested.program.model.machine
    memory, coverage = result.memory, result.coverage
    names = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")
    sizes = {name: getattr(memory, name) / GB for name in names}
    usable = machine.device.dram.capacity_bytes / GB
    tier_s = result.tier_seconds()
    missing = 1.0 - coverage.time_share
    modelled = coverage.time_share / max(sum(tier_s.values()), 1e-30)
    parts = (tier_s, modelled), ({UNMODELLED: 1.0}, missing)
    return {
        **why_tree(result.total.part),
        "uncertainty": uncertainty_of({"e2e_ms": result.total}),
        "clock_mhz": result.clock_hz / 1e6,
        "memory_gb": {
            **{name: size for name, size in sizes.items() if size},
            "usable": usable,
            "excess": max(memory.total / GB - usable, 0.0),
        },
        "memory_peak_at": memory.peak_node,
        "coverage": {
            "operations": coverage.operations,
            "modelled": coverage.modelled,
            **coverage_of(*parts)["coverage"],
            **largest_of(coverage.shares, "operation"),
            "unmodelled": dict(coverage.unmodelled),
        },
        **calibrated_by(
            machine.evidence,
            [node.op for node in result.model.graph.nodes],
            machine.engine,
            "graph training" if "backward" in result.directions else "graph",
        ),
        "deployment": description(machine, requested.model, requested.devices, requested.format),
    }
