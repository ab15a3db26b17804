"""Every layer of a workload mapped onto a design: one row a distinct layer, and the totals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

from silicast.accelerator.architecture import Architecture
from silicast.accelerator.architecture_file import find_design
from silicast.accelerator.foreign.reader import Workload, read_hardware, read_workload
from silicast.accelerator.graph_layers import layers_of
from silicast.accelerator.layers import Layer
from silicast.accelerator.mapper import EFFORT, Mapped
from silicast.accelerator.task import Task, mapped, task_on
from silicast.core.errors import SilicastError

PROGRAMS = (".json", ".onnx", ".pt2")


@final
@dataclass(frozen=True)
class MappedLayers:
    """Layers with the mappings that were found.

    Attributes:
        architecture: that they run on.
        layers: distinct ones, with how often each runs.
        answers: of each.
        left: kind -> how many layers were not mapped.
    """

    architecture: Architecture
    layers: tuple[Layer, ...]
    answers: tuple[Mapped, ...]
    left: dict[str, int]

    @cached_property
    def energy_pj(self) -> float:
        """Of all layers, as often as they run."""
        costs = zip(self.layers, self.answers, strict=True)
        return sum(layer.count * float(found.cost.energy_pj[0]) for layer, found in costs)

    @cached_property
    def cycles(self) -> float:
        """Of all layers, one after the other."""
        costs = zip(self.layers, self.answers, strict=True)
        return sum(layer.count * float(found.cost.cycles[0]) for layer, found in costs)

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
    return Path(name).suffix.casefold() in {*PROGRAMS, ".csv", ".yaml", ".yml", ".m"}


def workload_of(path: Path, sizes: dict[str, int]) -> Workload:
    """The layers of a file: an op graph, an ONNX model, or one of another tool.

    Args:
        sizes: of its open dimensions.

    Raises:
        SilicastError: it cannot be read, or holds no product.
    """
    if path.suffix.casefold() not in PROGRAMS:
        return read_workload(path)
    from silicast.workload.front_ends.programs import read_program

    found = layers_of(read_program(path, sizes))
    if not found.layers:
        raise SilicastError("holds no product and no convolution", file=str(path))
    return found


def mapped_layers(
    design: str, workload: Workload, objective: str = "", effort: int = EFFORT
) -> MappedLayers:
    """Maps every distinct layer.

    Raises:
        SilicastError: an unknown design or objective, or a layer that no mapping fits, by name.
    """
    path = Path(design)
    if path.is_dir() or path.suffix in {".yaml", ".yml", ".cfg", ".m"}:
        found = read_hardware(path)
        architecture = found.architecture
        tasks = [Task(layer.einsum, architecture, found.constraints) for layer in workload.layers]
    else:
        chosen = find_design(design)
        architecture = chosen.architecture
        tasks = [task_on(chosen, layer.einsum) for layer in workload.layers]
    answers = []
    for layer, task in zip(workload.layers, tasks, strict=True):
        try:
            answers.append(mapped(task, objective, effort))
        except SilicastError as error:
            raise error.at(layer.name) from None
    return MappedLayers(architecture, workload.layers, tuple(answers), workload.left)
