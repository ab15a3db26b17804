"""Every layer of a workload mapped onto a design: one row a distinct layer, and the totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from silicast.accelerator.counting.cost import objective_value
from silicast.accelerator.counting.graph_layers import layers_of
from silicast.accelerator.counting.layers import EinsumLayer, Feed, apart, shape_of
from silicast.accelerator.counting.neighbours import pair_of
from silicast.accelerator.design.architecture import Architecture
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.foreign.reader import Workload, read_hardware, read_workload
from silicast.accelerator.mapper.budget import EFFORT
from silicast.accelerator.mapper.fusion_search import Fused, best_fusion
from silicast.accelerator.mapper.mapper import Mapped
from silicast.accelerator.mapper.task import Change, Task, as_stated, mapped, task_on
from silicast.core.errors import SilicastError, errors_at
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.networks import network_file
from silicast.workload.graphs.op_graph import read_op_graph

PROGRAMS = (".json", ".onnx", ".pt2")


@final
@dataclass(frozen=True)
class FusedLayers:
    """Two layers that run tile by tile.

    Attributes:
        feed: which.
        apart: their mappings one by one, as the design prefers them.
        fused: how they run.
    """

    feed: Feed
    apart: tuple[Mapped, Mapped]
    fused: Fused

    @property
    def saved_pj(self) -> float:
        """Energy that they take less than one by one; negative where they take more."""
        assert self.fused.cost is not None
        return sum(float(m.cost.energy_pj[0]) for m in self.apart) - self.fused.cost.energy_pj

    @property
    def saved_cycles(self) -> float:
        """Cycles that they take less than one by one; negative where they take more."""
        assert self.fused.cost is not None
        return sum(float(m.cost.cycles[0]) for m in self.apart) - self.fused.cost.cycles

    @property
    def gain(self) -> float:
        energy, cycles = (
            sum(float(getattr(m.cost, name)[0]) for m in self.apart)
            for name in ("energy_pj", "cycles")
        )
        before = objective_value(self.fused.objective, energy, cycles)
        return before - self.fused.fused_value


@final
@dataclass(frozen=True)
class MappedLayers:
    """Layers with the mappings that were found.

    Attributes:
        architecture: that they run on.
        layers: distinct ones, with how often each runs.
        answers: of each.
        left: kind -> how many layers were not mapped.
        fused: neighbours that run tile by tile.
    """

    architecture: Architecture
    layers: tuple[EinsumLayer, ...]
    answers: tuple[Mapped, ...]
    left: dict[str, int]
    fused: tuple[FusedLayers, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done otherwise than asked."""
        return tuple(dict.fromkeys(answer.remark for answer in self.answers if answer.remark))

    @cached_property
    def energy_pj(self) -> float:
        """Of all layers, as often as they run."""
        costs = zip(self.layers, self.answers, strict=True)
        plain = sum(layer.count * float(item.cost.energy_pj[0]) for layer, item in costs)
        return plain - sum(each.feed.count * each.saved_pj for each in self.fused)

    @cached_property
    def cycles(self) -> float:
        """Of all layers, one after the other; fused ones tile by tile."""
        costs = zip(self.layers, self.answers, strict=True)
        plain = sum(layer.count * float(item.cost.cycles[0]) for layer, item in costs)
        return plain - sum(each.feed.count * each.saved_cycles for each in self.fused)

    @cached_property
    def points(self) -> float:
        """Multiplications of all layers."""
        return sum(layer.count * float(layer.einsum.points) for layer in self.layers)

    @property
    def seconds(self) -> float:
        """Of all layers, one after the other."""
        return self.cycles / self.architecture.clock_hz


def is_workload(name: str) -> bool:
    """Whether a word of the command line names a file of layers rather than an operation."""
    suffixes = {*PROGRAMS, ".csv", ".yaml", ".yml", ".m"}
    return Path(name).suffix.casefold() in suffixes or network_file(name) is not None


def workload_of(path: Path, sizes: dict[str, int]) -> Workload:
    """The layers of a file: an op graph, an ONNX model, or one of another tool; or of a network of
    the catalog by name.

    Args:
        sizes: of its open dimensions.

    Raises:
        SilicastError: it cannot be read, or holds no product.
    """
    path = network_file(str(path)) or path
    if path.suffix.casefold() not in PROGRAMS:
        return read_workload(path)
    workload = layers_of(graph_in(path, sizes))
    if not workload.layers:
        raise SilicastError("holds no product and no convolution", file=str(path))
    return workload


def graph_in(path: Path, sizes: dict[str, int]) -> Graph:
    """The graph of an op-graph file, or of a program.

    Raises:
        SilicastError: it cannot be read.
    """
    if path.suffix.casefold() == ".json":
        return read_op_graph(path, sizes)
    from silicast.workload.front_ends.programs import read_program

    return read_program(path, sizes)


def mapped_layers(
    design: str,
    workload: Workload,
    objective: str = "",
    effort: int = EFFORT,
    *,
    fuse: bool = False,
    at: Change = as_stated,
) -> MappedLayers:
    """Maps every distinct layer.

    Args:
        at: what is done to the design before.
        fuse: neighbours run tile by tile where that is better, each layer with one other at most.

    Raises:
        SilicastError: an unknown design or objective, or a layer that no mapping fits, by name.
    """
    path = Path(design)
    if path.is_dir() or path.suffix in {".yaml", ".yml", ".cfg", ".m"}:
        hardware = read_hardware(path)
        tasks = [
            Task(layer.einsum, hardware.architecture, hardware.constraints)
            for layer in workload.layers
        ]
    else:
        chosen = find_design(design)
        tasks = [task_on(chosen, layer.einsum) for layer in workload.layers]
    tasks = [at(task) for task in tasks]
    architecture = tasks[0].architecture
    answers = []
    for layer, task in zip(workload.layers, tasks, strict=True):
        with errors_at(layer.name):
            answers.append(mapped(task, objective, effort))
    pairs = _fused(workload, tasks, answers, effort) if fuse else ()
    return MappedLayers(architecture, workload.layers, tuple(answers), workload.left, pairs)


def _fused(
    workload: Workload, tasks: list[Task], answers: list[Mapped], effort: int
) -> tuple[FusedLayers, ...]:
    positions = {shape_of(layer.einsum): n for n, layer in enumerate(workload.layers)}
    fused_by_pair: dict[object, Fused] = {}
    pairs = []
    for feed in workload.feeds:
        first, second = (positions[shape_of(einsum)] for einsum in feed.einsums)
        task = tasks[first]
        if (first, second) not in fused_by_pair:
            fused_by_pair[first, second] = best_fusion(
                pair_of(task.einsum, tasks[second].einsum),
                answers[first].cost.architecture,
                task.constraints,
                objective=answers[first].objective,
                effort=effort,
            )
        fused = fused_by_pair[first, second]
        if fused.cost is not None:
            pairs.append(FusedLayers(feed, (answers[first], answers[second]), fused))
    chosen = apart([each.feed for each in pairs], [each.gain * each.feed.count for each in pairs])
    return tuple(pairs[number] for number in chosen)
