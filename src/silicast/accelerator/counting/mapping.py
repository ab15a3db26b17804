"""Mappings: how an einsum's loops are split over an architecture's slots; one, or many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64

I8 = NDArray[np.int8]
Keep = tuple[frozenset[str], ...]
"""Tensors that each memory keeps, outermost first."""


@final
@dataclass(frozen=True)
class Loop:
    """One loop: ``for dim in [0, bound)``.

    Attributes:
        slot: name of the memory or fan-out that it belongs to.
        dim: dimension of the einsum.
        bound: iterations; the last may be cut short.
        axis: of the fan-out; -1 = in time.
    """

    slot: str
    dim: str
    bound: int
    axis: int = -1


@final
@dataclass(frozen=True)
class LoopNest:
    """One mapping, as a person writes it.

    Attributes:
        loops: outermost first; loops of one iteration may be left out.
        keeps: memory -> tensors that it keeps; a memory left out keeps all that it must.
    """

    loops: tuple[Loop, ...]
    keeps: MappingOf[str, frozenset[str]]


@final
@dataclass(frozen=True)
class MappingBatch:
    """Many mappings of one einsum on one architecture that keep the same tensors.

    Attributes:
        factors: loop bounds, shape (slots, dims, mappings).
        positions: place of a slot's loop among those of that slot, larger = further in, same
            shape; what it says of loops of one iteration, and of loops in space, does not matter.
        keep: tensors that each memory keeps.
    """

    factors: F64
    positions: I8
    keep: Keep

    def __len__(self) -> int:
        return int(self.factors.shape[2])

    def take(self, rows: NDArray[np.int64] | slice) -> MappingBatch:
        """Some of the mappings."""
        return MappingBatch(
            np.ascontiguousarray(self.factors[:, :, rows]),
            np.ascontiguousarray(self.positions[:, :, rows]),
            self.keep,
        )

    @staticmethod
    def joined(parts: Sequence[MappingBatch]) -> MappingBatch:
        """Mappings of several batches that keep the same, one after the other."""
        return MappingBatch(
            np.concatenate([part.factors for part in parts], axis=2),
            np.concatenate([part.positions for part in parts], axis=2),
            parts[0].keep,
        )

    @staticmethod
    def from_nest(nest: LoopNest, einsum: Einsum, architecture: Architecture) -> MappingBatch:
        """A batch of one.

        Raises:
            SilicastError: an unknown slot, dimension or tensor, loops out of order, a dimension
                that its loops do not cover, or an axis of a fan-out that has too few instances.
        """
        names = [node.name for node in architecture.nodes]
        locations = {
            (names[slot.node], slot.axis): index for index, slot in enumerate(architecture.slots)
        }
        shape = (len(architecture.slots), len(einsum.dims), 1)
        factors, positions = np.ones(shape), np.zeros(shape, dtype=np.int8)
        last = -1
        for number, loop in enumerate(nest.loops):
            if (loop.slot, loop.axis) not in locations:
                where = loop.slot if loop.axis < 0 else f"{loop.slot}, axis {loop.axis}"
                raise SilicastError(
                    f"no place for loops called {where!r}",
                    field=f"loops[{number}]",
                    hint=f"there are {', '.join(names)}",
                )
            if loop.dim not in einsum.bounds:
                raise SilicastError(
                    f"no dimension {loop.dim!r}",
                    field=f"loops[{number}]",
                    hint=f"there are {', '.join(einsum.dims)}",
                )
            slot, dim = locations[loop.slot, loop.axis], einsum.dims.index(loop.dim)
            if slot < last:
                raise SilicastError(
                    f"the loop over {loop.dim} of {loop.slot} stands inside one of a lower level",
                    field=f"loops[{number}]",
                    hint="write loops outermost first",
                )
            if factors[slot, dim, 0] != 1 and loop.bound != 1:
                raise SilicastError(
                    f"{loop.slot} loops over {loop.dim} twice",
                    field=f"loops[{number}]",
                    hint="give it once, with the product of the bounds",
                )
            last = slot
            factors[slot, dim, 0] *= loop.bound
            positions[slot, dim, 0] = number
        _check_cover(factors, einsum)
        _check_axes(factors, architecture)
        return MappingBatch(factors, positions, _kept(nest, einsum, architecture))

    def nest(self, row: int, einsum: Einsum, architecture: Architecture) -> LoopNest:
        """One of the mappings, with its loops of more than one iteration."""
        loops: list[Loop] = []
        for index, slot in enumerate(architecture.slots):
            name = architecture.nodes[slot.node].name
            order = np.argsort(self.positions[index, :, row], kind="stable")
            loops.extend(
                Loop(name, einsum.dims[dim], int(self.factors[index, dim, row]), slot.axis)
                for dim in order
                if self.factors[index, dim, row] > 1
            )
        memories = (memory.name for memory in architecture.memories)
        return LoopNest(tuple(loops), dict(zip(memories, self.keep, strict=True)))


def default_keep(
    einsum: Einsum, architecture: Architecture, homes: MappingOf[str, str] | None = None
) -> Keep:
    """Every memory keeps all that it may; the outermost keeps everything.

    Args:
        homes: tensor -> memory that it starts and ends in; left out, the outermost.
    """
    levels = {memory.name: level for level, memory in enumerate(architecture.memories)}
    home = {name: levels[memory] for name, memory in (homes or {}).items()}
    return tuple(
        frozenset(
            name
            for name in einsum.names
            if level == home.get(name, 0) or (level > home.get(name, 0) and memory.may_keep(name))
        )
        for level, memory in enumerate(architecture.memories)
    )


def keep_patterns(
    einsum: Einsum, architecture: Architecture, homes: MappingOf[str, str] | None = None
) -> Iterator[Keep]:
    """What memories may keep: every choice of tensors that may pass one by.

    Args:
        homes: as of :func:`default_keep`.
    """
    full = default_keep(einsum, architecture, homes)
    outermost = architecture.memories[0].name
    choices = [
        (level, name)
        for level, memory in enumerate(architecture.memories)
        for name in einsum.names
        if name in full[level]
        and name in memory.may_bypass
        and memory.name != (homes or {}).get(name, outermost)
    ]
    for left_out in itertools.product((False, True), repeat=len(choices)):
        gone = {choice for choice, out in zip(choices, left_out, strict=True) if out}
        yield tuple(
            frozenset(name for name in names if (level, name) not in gone)
            for level, names in enumerate(full)
        )


def _kept(nest: LoopNest, einsum: Einsum, architecture: Architecture) -> Keep:
    memories = {memory.name for memory in architecture.memories}
    for name, tensors in nest.keeps.items():
        if name not in memories:
            raise SilicastError(
                f"no memory called {name!r}",
                field=f"keeps.{name}",
                hint=f"there are {', '.join(sorted(memories))}",
            )
        for tensor in tensors:
            einsum.tensor(tensor)
    return tuple(
        frozenset(nest.keeps.get(memory.name, default))
        for memory, default in zip(
            architecture.memories, default_keep(einsum, architecture), strict=True
        )
    )


def _check_cover(factors: F64, einsum: Einsum) -> None:
    for dim, size in enumerate(einsum.bounds.values()):
        covered = math.prod(int(f) for f in factors[:, dim, 0])
        if covered < size:
            raise SilicastError(
                f"the loops over {einsum.dims[dim]} cover {covered} of {size}",
                field=f"loops.{einsum.dims[dim]}",
                hint=f"make the outermost one {math.ceil(size / covered)} times longer",
            )


def _check_axes(factors: F64, architecture: Architecture) -> None:
    for index, slot in enumerate(architecture.slots):
        used = math.prod(int(f) for f in factors[index, :, 0])
        if used > slot.limit:
            node = architecture.nodes[slot.node]
            assert isinstance(node, FanOut | Memory)
            raise SilicastError(
                f"{node.name}, axis {slot.axis}: {used} instances are used, {slot.limit} are there",
                field=f"loops.{node.name}",
            )
