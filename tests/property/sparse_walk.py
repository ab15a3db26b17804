"""Tensors with zeros, walked through a loop nest delivery by delivery: independent of formulas."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, FanOut

Point = tuple[int, ...]
Held = Mapping[str, NDArray[np.bool_]]


class Loops:
    """The loops of one mapping, whose bounds divide their dimensions."""

    def __init__(self, einsum: Einsum, arch: Architecture, batch: MappingBatch) -> None:
        self.einsum, self.arch, self.batch = einsum, arch, batch
        self.loops: list[tuple[int, str, int, int]] = []  # slot, dim, bound, tile of one step
        for slot in range(len(arch.slots)):
            for d in sorted(range(len(einsum.dims)), key=lambda d: batch.positions[slot, d, 0]):
                inner = int(np.prod(batch.factors[slot + 1 :, d, 0]))
                bound = int(batch.factors[slot, d, 0])
                if bound > 1:
                    self.loops.append((slot, einsum.dims[d], bound, inner))

    def deliveries(
        self, tensor: EinsumTensor, level: int, index: int
    ) -> dict[Point, list[dict[str, int]]]:
        """Delivery -> where the tile of the place starts, each time that it is used."""
        outer = [loop for loop in self.loops if loop[0] < index]
        in_time = [i for i, loop in enumerate(outer) if not self.arch.slots[loop[0]].is_spatial]
        moving = [i for i in in_time if outer[i][1] in tensor.dims]
        last = max(moving, default=-1)
        stays = {i for i in in_time if i > last} if index < len(self.arch.slots) else set()
        for i, (slot, dim, _, _) in enumerate(outer):
            if i in in_time or slot <= self.arch.memory_slots[level] or dim in tensor.dims:
                continue
            node = self.arch.nodes[self.arch.slots[slot].node]
            assert isinstance(node, FanOut)
            if node.reduction if tensor.is_output else node.multicast:
                stays.add(i)
        deliveries: dict[Point, list[dict[str, int]]] = defaultdict(list)
        for at in itertools.product(*(range(bound) for _, _, bound, _ in outer)):
            start = dict.fromkeys(self.einsum.dims, 0)
            for (_, dim, _, inner), i in zip(outer, at, strict=True):
                start[dim] += i * inner
            deliveries[tuple(i for n, i in enumerate(at) if n not in stays)].append(start)
        return deliveries

    def tile(self, tensor: EinsumTensor, index: int, start: Mapping[str, int]) -> set[Point]:
        """Elements of a tensor in the tile of a place."""
        size = dict.fromkeys(self.einsum.dims, 1)
        for slot, dim, bound, _ in self.loops:
            if slot >= index:
                size[dim] *= bound
        ranges = [range(start[d], start[d] + size[d]) for d in self.einsum.dims]
        points = set()
        for point in itertools.product(*ranges):
            value = dict(zip(self.einsum.dims, point, strict=True))
            points.add(tuple(sum(c * value[d] for d, c in rank) for rank in tensor.ranks))
        return points


class SparseWalk:
    """Words that really move, of one mapping and one draw of its tensors."""

    def __init__(self, einsum: Einsum, arch: Architecture, batch: MappingBatch, held: Held) -> None:
        self.loops = Loops(einsum, arch, batch)
        self.einsum, self.arch, self.batch, self.held = einsum, arch, batch, held
        self.sent: dict[tuple[int, str], int] = {}
        self.lost: dict[str, set[Point]] = {}
        """Operand -> points of the iteration space to which it does not come."""
        for tensor in einsum.tensors:
            self.follow(tensor)
        points = set(itertools.product(*(range(size) for size in einsum.bounds.values())))
        for lost in self.lost.values():
            points -= lost
        self.products = len(points)

    def follow(self, tensor: EinsumTensor) -> None:
        name, arch = tensor.name, self.arch
        remaining = [n for n, keep in enumerate(self.batch.keep) if name in keep]
        positions = [arch.memory_slots[n] for n in remaining] + [len(arch.slots)]
        lost: set[Point] = set()
        for n, level in enumerate(remaining):
            memory = arch.memories[level]
            chosen = memory.format_of(name)
            packed = chosen is not None and chosen.leaves_out_zeros
            below = positions[n + 1]
            total = 0
            for uses in self.loops.deliveries(tensor, level, below).values():
                covered = {point for start in uses for point in self.points(below, start)}
                if covered <= lost:
                    continue
                if self.eliminated(level, name, below, uses):
                    lost |= covered
                    continue
                words = self.loops.tile(tensor, below, uses[0])
                total += sum(bool(self.held[name][w]) for w in words) if packed else len(words)
            self.sent[level, name] = total
            if packed and level == remaining[-1]:
                lost |= {point for point in self.everything() if not self.value(tensor, point)}
        if not tensor.is_output:
            self.lost[name] = lost

    def eliminated(self, level: int, name: str, below: int, uses: list[dict[str, int]]) -> bool:
        # A memory that an operand passes by leaves it out where it is kept.
        levels = [level]
        if not self.einsum.tensor(name).is_output:
            positions = self.arch.memory_slots
            levels += [n for n in range(level + 1, len(positions)) if positions[n] < below]
        for rule in [rule for n in levels for rule in self.arch.memories[n].eliminations]:
            if rule.target != name:
                continue
            for other in rule.conditions:
                tensor = self.einsum.tensor(other)
                met = {w for start in uses for w in self.loops.tile(tensor, below, start)}
                if not any(self.held[other][w] for w in met):
                    return True
        return False

    def everything(self) -> Iterator[Point]:
        return itertools.product(*(range(size) for size in self.einsum.bounds.values()))

    def points(self, index: int, start: Mapping[str, int]) -> set[Point]:
        size = dict.fromkeys(self.einsum.dims, 1)
        for slot, dim, bound, _ in self.loops.loops:
            if slot >= index:
                size[dim] *= bound
        return set(
            itertools.product(*(range(start[d], start[d] + size[d]) for d in self.einsum.dims))
        )

    def value(self, tensor: EinsumTensor, point: Point) -> bool:
        at = dict(zip(self.einsum.dims, point, strict=True))
        return bool(self.held[tensor.name][
            tuple(sum(c * at[d] for d, c in rank) for rank in tensor.ranks)
        ])  # fmt: skip
