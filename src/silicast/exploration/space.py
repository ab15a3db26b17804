"""A space of designs: parameters with their levels, conditions, and what may not stand together.

A design is a row of level numbers. A parameter whose condition does not hold stands at level 0
and is not applied, so that every design has one row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.errors import SilicastError, over_limit
from silicast.core.numerics import F64, I64

Value = int | float | str | bool | tuple["Value", ...]
"""What a parameter may be set to."""

MOST_DESIGNS = 2**62
LISTED = 1 << 20
"""Spaces up to this many rows are listed rather than drawn from."""


@final
@dataclass(frozen=True)
class Parameter:
    """One thing that designs differ in.

    Attributes:
        name: in conditions and results.
        values: its levels; numbers ascend.
        paths: dotted paths of the base that are set to the value.
        when: other parameter -> levels of it for which this one counts.
    """

    name: str
    values: tuple[Value, ...]
    paths: tuple[str, ...] = ()
    when: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def coordinates(self) -> F64:
        """Place of each level between 0 and 1: by logarithm where steps multiply."""
        count = len(self.values)
        numbers = [v for v in self.values if isinstance(v, int | float) and v is not True]
        if count == 1 or len(numbers) < count:
            return np.linspace(0.0, 1.0, count) if count > 1 else np.zeros(1)
        positions = np.array(numbers, dtype=float)
        if positions[0] > 0 and positions[-1] / positions[0] > count:
            positions = np.array([math.log(value) for value in numbers])
        coordinates: F64 = (positions - positions[0]) / (positions[-1] - positions[0])
        return coordinates

    @cached_property
    def is_ordered(self) -> bool:
        """Whether its levels are numbers, so that neighbours are alike."""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)


@final
@dataclass(frozen=True)
class Space:
    """Parameters, and combinations of levels that are ruled out.

    Attributes:
        parameters: in order.
        forbidden: each a mapping of parameter -> levels that may not stand together.

    Raises:
        SilicastError: no parameter, conditions that go in a circle, or more designs than numbers.
    """

    parameters: tuple[Parameter, ...]
    forbidden: tuple[Mapping[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        if not self.parameters:
            raise SilicastError("the space has no parameter", field="parameter")
        if self.rows > MOST_DESIGNS:
            raise over_limit(
                f"the space has {self.rows:.3g} designs, more than {MOST_DESIGNS:.3g}",
                "parameter",
                "give larger steps",
            )
        _ = self.order

    @cached_property
    def levels(self) -> I64:
        """Levels of each parameter, (parameters,)."""
        return np.array([len(p.values) for p in self.parameters], dtype=np.int64)

    @cached_property
    def rows(self) -> int:
        """Combinations of levels, with those that differ in parameters that do not count."""
        return math.prod(len(p.values) for p in self.parameters)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(p.name for p in self.parameters)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Parameters so that each stands after those of its condition."""
        done: list[int] = []
        left = list(range(len(self.parameters)))
        while left:
            ready = [
                i
                for i in left
                if all(self.names.index(other) in done for other in self.parameters[i].when)
            ]
            if not ready:
                circle = ", ".join(self.names[i] for i in left)
                raise SilicastError(
                    f"conditions go in a circle: {circle}",
                    field="parameter.when",
                    hint="remove one of the conditions",
                )
            done += ready
            left = [i for i in left if i not in ready]
        return tuple(done)

    @cached_property
    def total(self) -> int | None:
        """Different designs; None where there are too many rows to list."""
        return len(self.listed) if self.rows <= LISTED else None

    @cached_property
    def listed(self) -> I64:
        """Codes of all different designs, in order."""
        codes = np.arange(self.rows, dtype=np.int64)
        same = self.encode(self.canonical(self.decode(codes))) == codes
        return np.asarray(codes[same], dtype=np.int64)

    def decode(self, codes: I64) -> I64:
        """Codes -> level numbers, (designs, parameters); the last parameter runs fastest.

        >>> space = Space((Parameter("a", (1, 2)), Parameter("b", (1, 2, 3))))
        >>> space.decode(np.array([4])).tolist()
        [[1, 1]]
        """
        result = np.empty((len(codes), len(self.parameters)), dtype=np.int64)
        left = codes.copy()
        for i in range(len(self.parameters) - 1, -1, -1):
            left, result[:, i] = np.divmod(left, self.levels[i])
        return result

    def encode(self, designs: I64) -> I64:
        """Level numbers -> codes."""
        encode = np.zeros(len(designs), dtype=np.int64)
        for i in range(len(self.parameters)):
            encode = encode * self.levels[i] + designs[:, i]
        return encode

    def active(self, designs: I64) -> NDArray[np.bool_]:
        """Whether each parameter counts in each design, (designs, parameters)."""
        active = np.ones(designs.shape, dtype=bool)
        for i in self.order:
            for other, levels in self.parameters[i].when.items():
                j = self.names.index(other)
                active[:, i] &= active[:, j] & np.isin(designs[:, j], levels)
        return active

    def canonical(self, designs: I64) -> I64:
        """The same designs, with parameters that do not count at level 0."""
        return np.asarray(np.where(self.active(designs), designs, 0), dtype=np.int64)

    def allowed(self, designs: I64) -> NDArray[np.bool_]:
        """Whether no forbidden combination stands in each design."""
        allowed = np.ones(len(designs), dtype=bool)
        active = self.active(designs)
        for rule in self.forbidden:
            meets = np.ones(len(designs), dtype=bool)
            for name, levels in rule.items():
                i = self.names.index(name)
                meets &= active[:, i] & np.isin(designs[:, i], levels)
            allowed &= ~meets
        return allowed

    def coordinates(self, designs: I64) -> F64:
        """Designs as points between 0 and 1, (designs, parameters)."""
        columns = [p.coordinates[designs[:, i]] for i, p in enumerate(self.parameters)]
        return np.stack(columns, axis=1)

    def settings(self, design: I64) -> dict[str, Value]:
        """Parameter -> value, of those that count in one design."""
        active = self.active(design[None])[0]
        return {
            p.name: p.values[int(design[i])] for i, p in enumerate(self.parameters) if active[i]
        }

    def draw(self, rng: np.random.Generator, count: int, without: I64) -> I64:
        """Codes of different designs at random, none of ``without``; fewer where few are left."""
        if self.rows <= LISTED:
            left = np.setdiff1d(self.listed, without)
            return rng.permutation(left)[:count]
        table: dict[int, None] = {}
        seen = {int(code) for code in without}
        for _ in range(64):
            codes = rng.integers(0, self.rows, 4 * count)
            same = self.encode(self.canonical(self.decode(codes))) == codes
            table.update((int(c), None) for c in codes[same] if int(c) not in seen)
            if len(table) >= count:
                break
        return np.array(list(table)[:count], dtype=np.int64)
