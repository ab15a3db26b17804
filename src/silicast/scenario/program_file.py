"""A program in a file (op graph, ONNX, exported PyTorch) in the mode that a workload asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

import msgspec

from silicast.core.dtypes import BITS
from silicast.core.errors import SilicastError
from silicast.kernels.optimizer import optimizer_bytes
from silicast.scenario.decode import Scenario
from silicast.scenario.update_rule import update_rule
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.backward import Training, training_graph
from silicast.workload.chakra.files import is_chakra
from silicast.workload.compiled import fused_graph
from silicast.workload.front_ends import read_program, suffixes
from silicast.workload.graph import Block, Graph, Node, parameter_bytes_of
from silicast.workload.op import Op, Variant
from silicast.workload.op_graph import read_op_graph

OP_GRAPH = ".json"


@final
class ProgramFile(msgspec.Struct, frozen=True):
    """What runs.

    Attributes:
        state_bytes: of gradients, and of what an optimizer keeps.
    """

    graph: Graph
    state_bytes: tuple[int, int] = (0, 0)


def is_execution_trace(scenario: Scenario) -> bool:
    """Whether ``workload.graph`` names a Chakra trace."""
    work = scenario.workload
    if not isinstance(work, GraphWorkload) or work.graph is None:
        return False
    path = scenario.folder / work.graph
    if path.suffix.casefold() in (OP_GRAPH, *suffixes()):
        return False
    try:
        return is_chakra(path)
    except (OSError, ValueError):
        return False


def program_in(scenario: Scenario, *, compiles: bool) -> ProgramFile:
    """The program that ``workload.graph`` names, in the workload's mode.

    Args:
        compiles: a compiler fuses its operations.

    Raises:
        SilicastError: the file is unreadable, or a field contradicts it.
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
    graph, states = _in_mode(_read(scenario, work), work), (0, 0)
    if graph.phase == "training":
        graph, states = _trained(graph, work.optimizer)
    return ProgramFile(fused_graph(graph) if compiles else graph, states)


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
        raise error.located(field) from None


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
    op = Op.make("optimizer", Variant(dtype=dtype, flags=((rule, True),)), elements=count)
    block = Block("optimizer", (Node("update", op),), direction="optimizer")
    return replace(graph, blocks=(*graph.blocks, block)), (weights, kept)
