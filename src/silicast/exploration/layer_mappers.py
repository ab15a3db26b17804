"""What one layer costs on many designs: a search each, or all mappings counted once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, final

from silicast.accelerator.counting.cost import Objective
from silicast.accelerator.counting.layers import EinsumLayer
from silicast.accelerator.design.architecture import Architecture, Memory
from silicast.accelerator.design.architecture_file import Design, PolicyTable
from silicast.accelerator.mapper.constraints import Constraints
from silicast.accelerator.mapper.enumeration import (
    CountedMappings,
    DesignFamily,
    counted_mappings,
    skeleton,
)
from silicast.accelerator.mapper.task import mapped, task_on
from silicast.core.errors import SilicastError, over_limit


class Mapper(Protocol):
    """Finds what one layer costs on a design: cycles and pJ."""

    def __call__(self, number: int, design: Design) -> tuple[float, float]:
        """Of the layer of this number."""


@final
class SearchedMappings:
    """Each layer with the best mapping that a search of so much effort finds.

    Designs that differ in clock or area alone share mappings.
    """

    def __init__(self, layers: Sequence[EinsumLayer], objective: Objective, effort: int) -> None:
        self._layers, self._objective, self._effort = tuple(layers), objective, effort
        self._known: dict[object, tuple[float, float] | SilicastError] = {}

    def __call__(self, number: int, design: Design) -> tuple[float, float]:
        """Cycles and pJ.

        Raises:
            SilicastError: no mapping fits.
        """
        key = (
            number,
            without_clock_and_area(design.architecture),
            _key(design.constraints),
            repr(design.content.policy),
        )
        if key not in self._known:
            try:
                task = task_on(design, self._layers[number].einsum)
                cost = mapped(task, self._objective, self._effort).cost
                self._known[key] = float(cost.cycles[0]), float(cost.energy_pj[0])
            except SilicastError as error:
                self._known[key] = error
        result = self._known[key]
        if isinstance(result, SilicastError):
            raise result
        return result


@final
class CountedOnce:
    """Each layer with the best of all its mappings, which are counted once for designs alike."""

    def __init__(
        self, layers: Sequence[EinsumLayer], objective: Objective, designs: Iterable[Architecture]
    ) -> None:
        self._layers, self._objective = tuple(layers), objective
        self._families: dict[object, DesignFamily] = {}
        self._counted: dict[object, CountedMappings] = {}
        for design in designs:
            self._family(design)

    def __call__(self, number: int, design: Design) -> tuple[float, float]:
        """Cycles and pJ.

        Raises:
            SilicastError: no mapping fits, or a layer has too many.
        """
        if design.content.policy != PolicyTable():
            raise over_limit(
                "counts once find the best mappings, and this design has a policy",
                "evaluation.mappings",
                'search them instead: mappings = "search"',
            )
        architecture, rules = design.architecture, design.constraints
        family = self._family(architecture)
        key = (number, skeleton(architecture), _key(rules))
        counted = self._counted.get(key)
        if counted is None or counted.family is not family:
            counted = counted_mappings(self._layers[number].einsum, family, rules)
            self._counted[key] = counted
        _, row, costs = counted.chosen(architecture, self._objective)
        return float(costs.cycles[row]), float(costs.energy_pj[row])

    def _family(self, architecture: Architecture) -> DesignFamily:
        """The family of a design, which grows where the design is larger than all before."""
        key = skeleton(architecture)
        family = self._families.get(key)
        self._families[key] = (
            DesignFamily.from_architecture(architecture)
            if family is None
            else family.with_(architecture)
        )
        return self._families[key]


def without_clock_and_area(architecture: Architecture) -> Architecture:
    """What the cycles and the energy of mappings depend on."""
    nodes = tuple(
        replace(node, area_um2=None) if isinstance(node, Memory) else node
        for node in architecture.nodes
    )
    return replace(
        architecture,
        name="",
        source="",
        nodes=nodes,
        clock_hz=1.0,
        compute=replace(architecture.compute, area_um2=None),
    )


def _key(rules: Constraints) -> tuple[object, ...]:
    return (rules.least_utilisation, repr(sorted(rules.rules.items())))
