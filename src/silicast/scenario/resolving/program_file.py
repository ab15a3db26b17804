"""A program in the mode that a workload asks for: in a file (op graph, ONNX, exported PyTorch), or
a package's model by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

import msgspec

from silicast.core.dtypes import BITS, RECIPES, recipe_for
from silicast.core.errors import SilicastError, errors_at, errors_located
from silicast.formats.chakra.files import is_chakra
from silicast.hardware.device import Device
from silicast.kernels.movement.optimizer import RULES, optimizer_bytes
from silicast.scenario.decode import Scenario
from silicast.scenario.resolve import device_of
from silicast.scenario.road import PARTS, not_yet_of
from silicast.scenario.schema import PrecisionTable
from silicast.scenario.workloads import GraphWorkload
from silicast.workload.frameworks.compiled import fused_graph
from silicast.workload.front_ends import read_program, suffixes
from silicast.workload.front_ends.packages import is_packaged, packaged_graph
from silicast.workload.graphs.graph import Graph, parameter_bytes_of
from silicast.workload.graphs.networks import network_file, network_graph
from silicast.workload.graphs.op_graph import graph_of_file, read_graph_file
from silicast.workload.spaces.space import architecture, is_architecture
from silicast.workload.training.backward import Training, training_graph
from silicast.workload.training.gradient_buckets import format_of_weights, with_update

OP_GRAPH = ".json"
INTEGER = "w8a16_int16"
"""What w8a16 is on NPUs."""


@final
class ProgramFile(msgspec.Struct, frozen=True):
    """What runs.

    Attributes:
        state_bytes: of gradients, and of what an optimizer keeps.
        said: what was assumed of it.
    """

    graph: Graph
    state_bytes: tuple[int, int] = (0, 0)
    said: tuple[str, ...] = ()


def is_execution_trace(scenario: Scenario) -> bool:
    """Whether ``workload.graph`` names a Chakra trace."""
    work = scenario.workload
    if not isinstance(work, GraphWorkload) or work.graph is None:
        return False
    path = scenario.folder / work.graph
    if (
        is_packaged(work.graph)
        or is_architecture(work.graph)
        or path.suffix.casefold() in (OP_GRAPH, *suffixes())
    ):
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
    packaged = is_packaged(str(work.graph)) or network_file(str(work.graph)) is not None
    if is_architecture(str(work.graph)):
        return _architecture(scenario, work, compiles=compiles)
    for name in ("model",) if packaged else ("model", "precision"):
        if getattr(scenario.raw, name) is not None:
            raise SilicastError(
                "a program is given as well"
                if packaged
                else "a program in a file is given as well",
                field=name,
                hint="its nodes say what runs in which format: leave this out, or workload.graph",
            )
    read, remark = _packaged(scenario, work) if packaged else _read(scenario, work)
    graph, states = _in_mode(read, work), (0, 0)
    if graph.phase == "training":
        graph, states = _trained(graph, work.optimizer)
    return ProgramFile(
        fused_graph(graph) if compiles else graph, states, (remark,) if remark else ()
    )


def _architecture(scenario: Scenario, work: GraphWorkload, *, compiles: bool) -> ProgramFile:
    """A network of a search space in fp32, at the batch that is asked for."""
    for name in ("model", "precision"):
        if getattr(scenario.raw, name) is not None:
            raise SilicastError("an architecture of a space runs in fp32", field=name)
    if work.mode != "inference" or work.sizes or work.seq_len is not None:
        raise SilicastError(
            "of an architecture of a space, one inference is predicted",
            field="workload",
            hint="leave out training, seq_len and sizes",
        )
    with errors_located("workload.graph"):
        space, choices = architecture(str(work.graph))
    graph = space.graph(choices, work.batch or 1)
    return ProgramFile(fused_graph(graph) if compiles else graph)


def _sizes(work: GraphWorkload) -> Mapping[str, int]:
    """Sizes that a program leaves open, by name."""
    usual = {"batch": work.batch, "seq_len": work.seq_len}
    return {name: value for name, value in usual.items() if value is not None} | work.sizes


def _packaged(scenario: Scenario, work: GraphWorkload) -> tuple[Graph, str]:
    """A package's model in the format of the scenario's precision, and what was assumed of it."""
    precision = scenario.raw.precision
    recipe = precision.recipe if precision is not None else None
    if precision is not None and precision != PrecisionTable(recipe=recipe):
        raise SilicastError(
            "a program's weights, activations and products have one format",
            field="precision",
            hint='recipe = "bf16", fp16, fp32 or tf32',
        )
    with errors_at("workload.graph"):
        path = network_file(str(work.graph))
        if path is not None:
            return network_graph(path, _sizes(work), _recipe_on(device_of(scenario), recipe)), ""
        return packaged_graph(
            str(work.graph), _sizes(work), training=work.mode == "training", dtype=recipe
        )


def _recipe_on(device: Device, stated: str | None) -> str:
    """The recipe as a device runs it: weights of 8 bits beside activations of 16 are integers where
    units multiply such, else floats. Where none is stated bf16, on devices without it fp32, else
    the first format that a unit multiplies.

    >>> from silicast.hardware.catalog import find_device
    >>> [_recipe_on(find_device(x), "w8a16") for x in ("H100", "hexagon-v81")]
    ['int8_wo', 'w8a16_int16']
    """
    pipes = device.core.pipes
    formats = [name for pipe in ("tensor", *pipes) if pipe in pipes for name in pipes[pipe].rate]
    if stated is None:
        return next((name for name in ("bf16", "fp32") if name in formats), formats[0])
    recipe = recipe_for(stated).name
    return INTEGER if recipe == "int8_wo" and RECIPES[INTEGER].compute in formats else recipe


def _read(scenario: Scenario, work: GraphWorkload) -> tuple[Graph, str]:
    """A file's program, and what was assumed of it."""
    path = scenario.folder / str(work.graph)
    sizes = _sizes(work)
    try:
        if path.suffix.casefold() == OP_GRAPH:
            file = read_graph_file(path)
            remarks = (
                each.remark(name, sizes[name])
                for name, each in file.open_sizes.items()
                if name in sizes
            )
            return graph_of_file(file, path.stem, sizes), "; ".join(x for x in remarks if x)
        return read_program(path, sizes, training=work.mode == "training"), ""
    except SilicastError as error:
        inside = "" if error.field in ("", "graph") else f":{error.field}"
        field = f"workload.graph{inside}"
        raise error.located(field, error.file or str(path)) from None


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
    rule, dtype = update_rule(optimizer), format_of_weights(graph)
    optimizer_state_bytes = weights * 8 // int(BITS[dtype]) * optimizer_bytes(rule, dtype)
    return with_update(graph, rule), (weights, optimizer_state_bytes)


SAME_RULE: Mapping[str, str] = {
    "fused_adam": "adamw",
    "distributed_adam": "adamw",
    "adam_8bit": "adamw_8bit",
}
"""Names that frameworks give one rule."""


def update_rule(name: str) -> str:
    """The update rule that an optimizer follows.

    Raises:
        SilicastError: kind "not_yet": it is not modelled.

    >>> update_rule("fused_adam")
    'adamw'
    """
    rule = SAME_RULE.get(name, name)
    if rule not in RULES:
        raise not_yet_of(PARTS["optimizer"], "workload.optimizer", name, ", ".join(RULES))
    return rule
