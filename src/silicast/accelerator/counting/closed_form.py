"""Costs of mappings with the same loops, as a formula of their bounds and the problem's sizes.

Which loops turn, and in which order, decides what stays where, what is shared and what is summed
on the way: with that given, all counts of :mod:`~silicast.accelerator.counting.accounting` and
costs of :mod:`~silicast.accelerator.counting.cost` are
arithmetic of bounds and sizes. So both are asked once with bounds and sizes that are quantities of
a formula, and the formula is evaluated for each row of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.accounting import AccessCounts, Count, Place
from silicast.accelerator.counting.cost import MappingCost, cost_of
from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.counting.formula import Compiled, Formula, Number, ceil
from silicast.accelerator.counting.mapping import Keep, MappingBatch
from silicast.accelerator.design.architecture import Architecture


@final
@dataclass(frozen=True)
class Nest:
    """Which loops turn.

    Attributes:
        loops: outermost first; of those in space of one slot by dimension.
        keep: tensors that each memory keeps.
        shares: of an element's bits, what each tensor's takes; () = all of them.
        less_of_main: the share of each tensor's words that pass main memory is an input.
    """

    loops: tuple[Place, ...]
    keep: Keep
    shares: tuple[float, ...] = ()
    less_of_main: bool = False

    def turning(self, shape: tuple[int, int]) -> MappingBatch:
        """One of its mappings: each of its loops turns twice; shape is (slots, dims)."""
        factors, positions = np.ones((*shape, 1)), np.zeros((*shape, 1), dtype=np.int8)
        for position, loop in enumerate(self.loops):
            factors[loop], positions[loop] = 2.0, position
        return MappingBatch(factors, positions, self.keep)


@final
@dataclass(frozen=True)
class FormulaLayout:
    """The order of the results of a design's formulas.

    Attributes:
        ports: memory and port; memories, tensors: how many there are.
    """

    ports: tuple[tuple[str, str], ...]
    memories: int
    tensors: int

    CYCLES, UNIT_CYCLES, MARCH_CYCLES, LOADING_CYCLES, EXPOSED_CYCLES, ENERGY, PORTS = range(7)

    @staticmethod
    def from_einsum(arch: Architecture, einsum: Einsum) -> FormulaLayout:
        """That of a problem on a design."""
        ports = tuple((m.name, port.name) for m in arch.memories for port in m.ports)
        return FormulaLayout(ports, len(arch.memories), len(einsum.tensors))

    @property
    def levels(self) -> int:
        """Where the words through each memory stand."""
        return self.PORTS + len(self.ports)

    @property
    def main(self) -> int:
        """Where the words that leave and reach main memory stand, by tensor."""
        return self.levels + self.memories

    @property
    def size(self) -> int:
        """How many results there are."""
        return self.main + self.tensors


def closed_form(einsum: Einsum, arch: Architecture, nest: Nest) -> Compiled:
    """The costs of all mappings of a nest.

    Inputs are the sizes of the dimensions, then the bounds of the loops, each more than one and
    none longer than what is left of its dimension, then the shares of main memory's words where
    ``less_of_main``. Results are in the order of :class:`FormulaLayout`.
    """
    formula = Formula()
    sizes = [formula.input() for _ in einsum.dims]
    factors = np.full((len(arch.slots), len(einsum.dims)), 1.0, dtype=object)
    for loop in nest.loops:
        factors[loop] = formula.input()
    main_shares = [formula.input() for _ in einsum.tensors if nest.less_of_main]
    count = Count(einsum, arch, nest.turning(factors.shape), sizes, factors)
    traffic = count.traffic()
    if nest.shares or main_shares:
        traffic = WordShares.from_einsum(einsum, nest.keep, nest.shares, main_shares).traffic(
            traffic
        )
    return formula.compiled(row_of(cost_of(einsum, arch, traffic, sizes)))


@final
@dataclass(frozen=True)
class WordShares:
    """What is left of words, by memory and tensor.

    Attributes:
        element: of an element's bits, (tensors,).
        out, into: of reads and updates, and of fills, (memories, tensors): what passes main memory.
    """

    element: NDArray[Any]
    out: NDArray[Any]
    into: NDArray[Any]

    @staticmethod
    def from_einsum(
        einsum: Einsum, keep: Keep, shares: Sequence[float], main_shares: Sequence[Number]
    ) -> WordShares:
        """Shares of each tensor's bits and main memory's words; empty = all of them."""
        element = np.array(shares or [1.0] * len(einsum.tensors))
        out = np.full((len(keep), len(einsum.tensors)), 1.0, dtype=object)
        into = out.copy()
        for t, share in enumerate(main_shares):
            levels = [level for level, names in enumerate(keep) if einsum.names[t] in names]
            out[0, t] = share
            for level in levels[1:2]:
                into[level, t] = share
        return WordShares(element, out, into)

    def traffic(self, traffic: AccessCounts) -> AccessCounts:
        """Counts of words that are left."""
        element = _per_mapping(self.element, traffic)
        out, into = _per_mapping(self.out, traffic), _per_mapping(self.into, traffic)
        return replace(
            traffic,
            reads=traffic.reads * element * out,
            fills=traffic.fills * element * into,
            updates=traffic.updates * element * out,
            tiles=traffic.tiles * element,
            distinct=traffic.distinct * element,
            hops=traffic.hops * element,
        )


def _per_mapping(shares: NDArray[Any], traffic: AccessCounts) -> NDArray[Any]:
    """Shares that broadcast against counts, which have an axis of mappings or none."""
    return shares if traffic.reads.ndim == 2 else shares.astype(np.float64)[..., None]


def row_of(cost: MappingCost) -> list[Number]:
    """A cost in the order of :class:`FormulaLayout`; of one mapping or as formulas."""
    steps = cost.traffic.steps if cost.zeros is None else cost.zeros.steps
    return [
        cost.cycles,
        ceil(steps / cost.architecture.compute.per_cycle),
        cost.march_cycles,
        cost.loading_cycles,
        cost.exposed_cycles,
        cost.energy_pj,
        *cost.port_cycles.values(),
        *(sum(row, start=0.0) for row in cost.words),
        *cost.words[0],
    ]
