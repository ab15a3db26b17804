"""A loop nest walked step by step with sets of indices: slow, and independent of the formulas."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from silicast.accelerator.counting.einsum import Einsum, EinsumTensor
from silicast.accelerator.counting.mapping import MappingBatch
from silicast.accelerator.design.architecture import Architecture, FanOut

Words = frozenset[tuple[int, ...]]


class Walk:
    """Counts of one mapping: reads, fills and updates by (memory, tensor)."""

    def __init__(self, einsum: Einsum, arch: Architecture, batch: MappingBatch) -> None:
        self.einsum, self.arch, self.batch = einsum, arch, batch
        self.reads: dict[tuple[int, str], int] = defaultdict(int)
        self.fills: dict[tuple[int, str], int] = defaultdict(int)
        self.updates: dict[tuple[int, str], int] = defaultdict(int)
        self.loops: list[tuple[int, str, int, int]] = []  # slot, dim, bound, tile of one step
        for slot in range(len(arch.slots)):
            order = sorted(range(len(einsum.dims)), key=lambda d: batch.positions[slot, d, 0])
            for d in order:
                bound = int(batch.factors[slot, d, 0])
                inner = 1
                for s in range(slot + 1, len(arch.slots)):
                    inner *= int(batch.factors[s, d, 0])
                self.loops.append((slot, einsum.dims[d], bound, inner))
        self.steps = len(set(self._times()))
        for tensor in einsum.tensors:
            self._count(tensor)

    def _walk(self, loops: list[tuple[int, str, int, int]]) -> Iterator[tuple[int, ...]]:
        """Indices of loops whose tile starts inside the bounds, in order."""
        for at in itertools.product(*(range(bound) for _, _, bound, _ in loops)):
            start = dict.fromkeys(self.einsum.dims, 0)
            for (_, dim, _, inner), i in zip(loops, at, strict=True):
                start[dim] += i * inner
            if all(start[d] < self.einsum.bounds[d] for d in start):
                yield at

    def _times(self) -> Iterator[tuple[int, ...]]:
        for at in self._walk(self.loops):
            yield tuple(
                i for (slot, *_), i in zip(self.loops, at, strict=True)
                if not self.arch.slots[slot].is_spatial
            )  # fmt: skip

    def _tile(self, tensor: EinsumTensor, index: int, at: tuple[int, ...]) -> Words:
        outer = [loop for loop in self.loops if loop[0] < index]
        start = dict.fromkeys(self.einsum.dims, 0)
        size = dict.fromkeys(self.einsum.dims, 1)
        for slot, dim, bound, _ in self.loops:
            if slot >= index:
                size[dim] *= bound
        for (_, dim, _, inner), i in zip(outer, at, strict=True):
            start[dim] += i * inner
        ranges = [
            range(start[d], min(start[d] + size[d], self.einsum.bounds[d]))
            for d in self.einsum.dims
        ]
        names = self.einsum.dims
        distinct = set()
        for point in itertools.product(*ranges):
            value = dict(zip(names, point, strict=True))
            distinct.add(tuple(sum(c * value[d] for d, c in rank) for rank in tensor.ranks))
        # A tile is a box, as a memory holds it: gaps of a stride count.
        if tensor.windows and distinct:
            sides = [range(min(f[i] for f in distinct), max(f[i] for f in distinct) + 1)
                     for i in range(len(tensor.ranks))]  # fmt: skip
            distinct = set(itertools.product(*sides))
        return frozenset(distinct)

    def _visited(
        self, tensor: EinsumTensor, index: int
    ) -> dict[tuple[int, ...], list[tuple[object, Words]]]:
        """Instance -> (time, words that come) of every tile that is not there already."""
        outer = [loop for loop in self.loops if loop[0] < index]
        space = [i for i, loop in enumerate(outer) if self.arch.slots[loop[0]].is_spatial]
        time = [i for i in range(len(outer)) if i not in space]
        inward = [i for i in reversed(time) if self._turns(outer[i])]
        run = list(itertools.takewhile(lambda i: outer[i][1] == outer[inward[0]][1], inward))
        before: dict[tuple[int, ...], tuple[tuple[int, ...], Words]] = {}
        visited: dict[tuple[int, ...], list[tuple[object, Words]]] = defaultdict(list)
        clock = {t: n for n, t in enumerate(
            sorted({tuple(at[i] for i in time) for at in self._walk(outer)}))}  # fmt: skip
        moving = {i for i in time if outer[i][1] in tensor.dims and self._turns(outer[i])}
        for at in self._walk(outer):
            here = tuple(at[i] for i in space)
            now = clock[tuple(at[i] for i in time)]
            tile = self._tile(tensor, index, at)
            if here in before:
                last, words = before[here]
                changed = {i for i in time if last[i] != at[i]}
                # All loops further in than the one that steps have run: also those that a last
                # tile, cut short, leaves a single iteration, or an instance none.
                if not moving & (changed | set(range(min(changed), len(outer)))):
                    before[here] = (at, tile)
                    continue
                new = tile - words if changed <= set(run) and tensor.windows else tile
            else:
                new = tile
            before[here] = (at, tile)
            visited[here].append((now, new))
        return visited

    def _turns(self, loop: tuple[int, str, int, int]) -> bool:
        """Whether a loop has more than one iteration in the first, whole tile."""
        _, dim, bound, inner = loop
        return bound > 1 and inner < self.einsum.bounds[dim]

    def _count(self, tensor: EinsumTensor) -> None:
        remaining = [n for n, keep in enumerate(self.batch.keep) if tensor.name in keep]
        positions = [self.arch.memory_slots[n] for n in remaining] + [len(self.arch.slots)]
        for n, level in enumerate(remaining):
            above, below = positions[n], positions[n + 1]
            outer = [loop for loop in self.loops if loop[0] < below]
            space = [loop for loop in outer if self.arch.slots[loop[0]].is_spatial]
            if below == len(self.arch.slots):
                came: dict[tuple[int, ...], list[tuple[object, Words]]] = {}
                for at in self._walk(self.loops):
                    here = tuple(i for loop, i in zip(self.loops, at, strict=True)
                                 if self.arch.slots[loop[0]].is_spatial)  # fmt: skip
                    then = tuple(i for loop, i in zip(self.loops, at, strict=True)
                                 if not self.arch.slots[loop[0]].is_spatial)  # fmt: skip
                    came.setdefault(here, []).append((then, self._tile(tensor, below, at)))
            else:
                came = self._visited(tensor, below)
            passed: dict[object, set[Words]] = defaultdict(set)
            alone = 0
            for instance, tiles in came.items():
                key = self._sender(tensor, above, space, instance)
                for moment, words in tiles:
                    alone += len(words)
                    passed[key, moment].add(words)
            total = sum(sum(len(w) for w in words) for words in passed.values())
            if tensor.is_output:
                self.updates[level, tensor.name] = total
                self.reads[level, tensor.name] = total - self._met(tensor, above)
            else:
                self.reads[level, tensor.name] = total
            if n + 1 < len(remaining):
                child = alone
                if tensor.is_output:
                    child -= self._met(tensor, below)
                self.fills[remaining[n + 1], tensor.name] = child

    def _sender(
        self,
        tensor: EinsumTensor,
        above: int,
        space: list[tuple[int, str, int, int]],
        instance: tuple[int, ...],
    ) -> tuple[object, ...]:
        """The same for instances that share what they all take on the way from a memory.

        Instances of one fan-out share a word whose every index they shift alike: by r + p, units
        (0, 1) and (1, 0) of a window take the same.
        """
        key: list[object] = []
        shifts: dict[tuple[int, int], int] = defaultdict(int)
        for (slot, dim, _, inner), turn in zip(space, instance, strict=True):
            position = self.arch.slots[slot].node
            node = self.arch.nodes[position]
            assert isinstance(node, FanOut)
            together = node.reduction if tensor.is_output else node.multicast
            if slot < above or not together:
                key.append(turn)
                continue
            for number, rank in enumerate(tensor.ranks):
                shifts[position, number] += dict(rank).get(dim, 0) * inner * turn
        return (*key, *sorted(shifts.items()))

    def _met(self, tensor: EinsumTensor, index: int) -> int:
        """Elements that each instance holds at least once, summed over instances."""
        outer = [loop for loop in self.loops if loop[0] < index]
        table: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
        for at in self._walk(outer):
            here = tuple(i for loop, i in zip(outer, at, strict=True)
                         if self.arch.slots[loop[0]].is_spatial)  # fmt: skip
            table[here] |= self._tile(tensor, index, at)
        return sum(len(words) for words in table.values())
