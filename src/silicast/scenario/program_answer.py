"""Answers about a program in a file: an op graph, an ONNX model, an exported PyTorch program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from silicast.composition.machine import Machine
from silicast.composition.program_pass import GB, ProgramPass, predict_program
from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.core.prediction import Tier
from silicast.hardware.host import Host
from silicast.kernels.optimizer import optimizer_bytes
from silicast.scenario.answer import Answer, answer, latency_of, why_tree
from silicast.scenario.answerer import not_yet, refuse_unmodelled
from silicast.scenario.chosen_engine import chosen_engine, no_graphs
from silicast.scenario.decode import Scenario
from silicast.scenario.measured import calibrated_by, with_measured
from silicast.scenario.resolve import (
    cluster_of,
    device_of,
    evidence_of,
    host_of,
    limit_warnings,
    plan_of,
)
from silicast.scenario.uncertainty import uncertainty_of
from silicast.scenario.update_rule import update_rule
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.backward import Training, training_graph
from silicast.workload.compiled import fused_graph
from silicast.workload.front_ends import read_program
from silicast.workload.graph import Block, Graph, Node, parameter_bytes_of
from silicast.workload.op import Op, Variant
from silicast.workload.op_graph import read_op_graph

MILLI = 1e3
OP_GRAPH = ".json"


def machine_of(scenario: Scenario) -> tuple[Machine, list[str]]:
    """What the scenario's one pool runs on, and warnings about it.

    Raises:
        SilicastError: an unknown name, or something that a single device does not do.
    """
    raw = scenario.raw
    refuse_unmodelled(
        scenario, "speculative", "lora", "colocation", "pools", "links",
        "cluster.slow_gpus", "cluster.failures",
    )  # fmt: skip
    plan = plan_of(scenario)
    if plan.gpus > 1 or plan.dp > 1 or plan.cp > 1:
        raise not_yet(
            "a program on several devices", "parallel", "its collectives are nodes of its graph"
        )
    device = device_of(scenario)
    engine, said = chosen_engine(scenario)
    engine, evidence, measured = with_measured(scenario, engine, evidence_of(scenario, device))
    machine = Machine(
        device=device,
        engine=engine,
        plan=plan,
        host=host_of(scenario) or Host(),
        cluster=cluster_of(scenario, device),
        power_w=None if raw.limits.power_w is None else device.power_cap_w,
        clock_hz=raw.limits.clock_mhz * 1e6 if raw.limits.clock_mhz else None,
        evidence=evidence,
    )
    said += no_graphs(scenario, device)
    return machine, [*limit_warnings(scenario), *said, *measured]


def program_of(scenario: Scenario) -> ProgramPass:
    """One pass of the program that ``workload.graph`` names.

    Raises:
        SilicastError: the file is unreadable or its program cannot be predicted; names the node.
    """
    work = scenario.workload
    assert isinstance(work, GraphWorkload)
    for name in ("model", "precision"):
        if getattr(scenario.raw, name) is not None:
            raise SilicastError(
                "a program in a file is given as well",
                field=name,
                hint="its nodes say what runs in which format: leave this out, or workload.graph",
            )
    machine, said = machine_of(scenario)
    graph = _in_mode(_read(scenario, work), work)
    states = (0, 0)
    if graph.phase == "training":
        graph, states = _trained(graph, work.optimizer)
    if machine.engine.compiles:
        graph = fused_graph(graph)
    return predict_program(machine, graph, state_bytes=states, caveats=said)


def answer_program(scenario: Scenario) -> Answer:
    """The answer about that pass; raises as :func:`program_of`."""
    found = program_of(scenario)
    bound_only = scenario.raw.tier == "bound"
    named = {"e2e_ms": found.total}
    named |= {f"{name}_ms": each for name, each in found.directions.items() if name != "optimizer"}
    tier: Tier = "bound" if bound_only else found.total.tier
    return answer(
        metrics={
            name: latency_of(each, bound_only=bound_only).times(MILLI)
            for name, each in named.items()
        },
        bound={name: each.bound_seconds * MILLI for name, each in named.items()},
        tier=tier,
        domain=found.total.domain,
        warnings=[*found.total.warnings, *_too_large(found)],
        why=_why(found),
    )


def _read(scenario: Scenario, work: GraphWorkload) -> Graph:
    path = scenario.folder / str(work.graph)
    sizes = {"batch": work.batch, "seq_len": work.seq_len}
    given: Mapping[str, int] = {name: value for name, value in sizes.items() if value is not None}
    try:
        if path.suffix.casefold() == OP_GRAPH:
            return read_op_graph(path, given)
        return read_program(path, given, training=work.mode == "training")
    except SilicastError as error:
        field = f"workload.graph:{error.field}" if error.field else "workload.graph"
        raise SilicastError(
            error.message, kind=error.kind, field=field, hint=error.hint, file=error.file
        ) from None


def _in_mode(graph: Graph, work: GraphWorkload) -> Graph:
    """The part of a program that runs in a mode; a backward pass by rule where it holds none."""
    forward = tuple(block for block in graph.blocks if block.direction == "forward")
    if work.mode == "inference":
        if work.optimizer is not None:
            raise SilicastError(
                "an optimizer in a pass without training", field="workload.optimizer"
            )
        return replace(graph, blocks=forward, phase="inference")
    if len(forward) < len(graph.blocks):
        return graph
    return training_graph(graph, Training(loss=False, dropout=False))


def _trained(graph: Graph, optimizer: str | None) -> tuple[Graph, tuple[int, int]]:
    """The program with its optimizer, and bytes of gradients and of what the optimizer keeps."""
    weights = parameter_bytes_of(graph)
    if optimizer is None or not weights:
        return graph, (weights, 0)
    formats = (node.op.variant.dtype for _, node in graph.nodes())
    dtype = next((name for name in formats if name in ("fp32", "bf16", "fp16")), "bf16")
    count = weights * 8 // int(BITS[dtype])
    rule = update_rule(optimizer)
    kept = count * optimizer_bytes(rule, dtype)
    return with_optimizer(graph, rule, dtype, count), (weights, kept)


def with_optimizer(graph: Graph, optimizer: str, dtype: str, count: int) -> Graph:
    """``graph`` and one update of ``count`` parameters."""
    op = Op.make("optimizer", Variant(dtype=dtype, flags=((optimizer, True),)), elements=count)
    block = Block("optimizer", (Node("update", op),), direction="optimizer")
    return replace(graph, blocks=(*graph.blocks, block))


def _too_large(found: ProgramPass) -> list[str]:
    """A warning where it does not fit into the device's memory."""
    device = found.program.machine.device
    if found.memory.total <= device.dram.capacity_bytes:
        return []
    needs = f"needs {found.memory.total / GB:.1f} GB of {device.dram.capacity_bytes / GB:.1f} GB"
    return [f"{needs} on {device.name}: it does not fit"]


def _why(found: ProgramPass) -> dict[str, Any]:
    memory, coverage = found.memory, found.coverage
    machine = found.program.machine
    names = ("weights", "gradients", "optimizer", "activations", "fragmentation", "framework")
    sizes = {name: getattr(memory, name) / GB for name in names}
    usable = machine.device.dram.capacity_bytes / GB
    formats = dict.fromkeys(placed.op.variant.dtype for placed in found.program.placed)
    return {
        **why_tree(found.total.part),
        "uncertainty": uncertainty_of({"e2e_ms": found.total}),
        "clock_mhz": found.clock_hz / 1e6,
        "memory_gb": {
            **{name: size for name, size in sizes.items() if size},
            "usable": usable,
            "excess": max(memory.total / GB - usable, 0.0),
        },
        "memory_peak_at": memory.peak_node,
        "coverage": {
            "operations": coverage.operations,
            "modelled": coverage.modelled,
            "time_share": round(coverage.time_share, 6),
            "unmodelled": dict(coverage.unmodelled),
        },
        **calibrated_by(
            machine.evidence,
            [placed.op for placed in found.program.placed],
            machine.engine,
            "graph" if found.program.graph.phase != "training" else "graph training",
        ),
        "deployment": {
            "model": found.program.graph.name,
            "device": machine.device.name,
            "devices": 1,
            "largest_clock_mhz": machine.device.clocks.max_hz / 1e6,
            "engine": f"{machine.engine.name} {machine.engine.version}".strip(),
            "format": " and ".join(formats),
        },
    }
