"""What share of a dense mapping's words, products and steps is left without zeros, at least.

A tile has a value that is not zero at least as often as a single word is not zero. So of no mapping
are more accesses left out than each word alone would let be: the shares below bound what
:mod:`~silicast.accelerator.zeros.sparse` counts, whatever the loops, and make prices that a dense
search can go by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import Keep
from silicast.accelerator.design.architecture import Architecture, Elimination

_WHOLE = 1.0 - 1e-12
"""Rounding of shares that are multiplied."""


@final
@dataclass(frozen=True)
class ZeroShares:
    """Least shares of one einsum on one design, where memories keep ``keep``."""

    einsum: Einsum
    arch: Architecture
    keep: Keep

    def word(self, level: int, action: str, name: str, *, timed: bool) -> float:
        """Of the words that an action moves: those that happen, or that take their time.

        Args:
            action: read, fill or update.
        """
        tensor = self.einsum.tensor(name)
        levels = self._kept(name)
        if level not in levels:
            return 1.0
        index = levels.index(level)
        outermost_of_edge = levels[index - 1] if action == "fill" and index else level
        return self.held(level, tensor) * self._needed(tensor, outermost_of_edge, timed=timed)

    def held(self, level: int, tensor: EinsumTensor) -> float:
        """Of the words of a tile, those that are stored."""
        chosen = self.arch.memories[level].format_of(tensor.name)
        if chosen is None or not chosen.leaves_out_zeros:
            return 1.0
        return tensor.density.share * _WHOLE

    @cached_property
    def products(self) -> float:
        return self._products(timed=False)

    @cached_property
    def steps(self) -> float:
        return self._products(timed=True)

    def _kept(self, name: str) -> list[int]:
        return [level for level, names in enumerate(self.keep) if name in names]

    def _rules(self, tensor: EinsumTensor, level: int) -> list[Elimination]:
        """What leaves out transfers of a tensor from a memory inwards, or from further out."""
        levels = self._kept(tensor.name)
        child = min((other for other in levels if other > level), default=len(self.keep))
        positions = [o for o in levels if o <= level] if tensor.is_output else range(child)
        return [
            rule
            for position in positions
            for rule in self.arch.memories[position].eliminations
            if rule.target == tensor.name
        ]

    def _needed(self, tensor: EinsumTensor, level: int, *, timed: bool) -> float:
        names = {
            name
            for rule in self._rules(tensor, level)
            if rule.kind == "skip" or not timed
            for name in rule.conditions
            if name in self.einsum.names
        }
        return math.prod(self.einsum.tensor(name).density.share for name in names) * (
            _WHOLE if names else 1.0
        )

    def _products(self, *, timed: bool) -> float:
        """Operands that need not come for a product to be left out."""
        compute = self.arch.compute.on_zero
        absent: set[str] = set()
        for tensor in self.einsum.tensors:
            if tensor.is_output:
                continue
            levels = self._kept(tensor.name)
            for rule in self._rules(tensor, levels[-1]):
                absent |= {name for name in rule.conditions if name in self.einsum.names}
            leaves_out = compute == "skip" or (compute == "gate" and not timed)
            if leaves_out or self.held(levels[-1], tensor) < 1.0:
                absent.add(tensor.name)
        return math.prod(self.einsum.tensor(name).density.share for name in absent) * (
            _WHOLE if absent else 1.0
        )
