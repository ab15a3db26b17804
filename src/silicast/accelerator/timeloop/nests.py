"""Timeloop's mappings -> loop nests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from silicast.accelerator.counting.mapping import Loop, LoopNest
from silicast.accelerator.design.architecture import FanOut, Memory
from silicast.accelerator.timeloop.loops import REST, axes_of, split_axes, split_of
from silicast.accelerator.timeloop.targets import KEEPS, EntryReader
from silicast.core.errors import SilicastError, unsupported
from silicast.formats.fields import Fields


@final
class MappingReader(EntryReader[list[Loop]]):
    """Reads one mapping of an einsum on an architecture."""

    def read(self, content: Fields) -> LoopNest:
        """The loop nest.

        Raises:
            SilicastError: there is none, or an entry has no meaning.
        """
        entries = content.tables("mapping")
        if not entries:
            raise SilicastError(
                "has no mapping", field="mapping", file=self.file, hint="give Timeloop's map.yaml"
            )
        for entry in entries:
            self.entry(entry)
        placed: dict[tuple[str, int], list[Loop]] = {}
        for loop in (each for loops in self.loops.values() for each in loops):
            placed.setdefault((loop.slot, loop.axis), []).append(loop)
        ordered = [
            loop
            for slot in self.architecture.slots
            for loop in placed.get((self.architecture.nodes[slot.node].name, slot.axis), [])
        ]
        return LoopNest(tuple(self.with_rest(ordered)), self.keeps())

    def entry(self, entry: Fields) -> None:
        name, kind = self.targets.entry(entry)
        where = entry.path
        if kind in KEEPS:
            return
        if kind not in {"temporal", "spatial"}:
            raise unsupported(
                f"type {kind!r} is not read",
                f"{where}.type",
                "temporal, spatial and datatype are",
                file=self.file,
            )
        if (name, kind) in self.loops:
            raise SilicastError(
                f"gives the {kind} loops of {name} a second time", field=where, file=self.file
            )
        self.loops[name, kind] = self.nest(name, kind, self.targets.loops(entry), where)

    def nest(self, name: str, kind: str, entry: Mapping[str, Any], where: str) -> list[Loop]:
        """The loops of one entry, outermost first."""
        bounds = {}
        for dim, sign, bound in self.targets.factors(entry.get("factors"), where):
            if sign == "<=":
                raise SilicastError(
                    f"expected {dim}={bound}, found {dim}<={bound}",
                    field=f"{where}.factors",
                    file=self.file,
                )
            bounds[dim] = bound
        # Timeloop writes the innermost loop first.
        inward = self.targets.permutation(entry, where)
        inward += [dim for dim in self.einsum.dims if dim not in inward]
        node = self.targets.node(name, kind)
        if node is None:
            self.targets.must_be_one(name, kind, bounds, where)
            return []
        if isinstance(node, Memory):
            return [Loop(name, dim, bounds.get(dim, 1)) for dim in reversed(inward)]
        axes = self.axes(inward, bounds, node, split_of(entry, where, self.file))
        return [Loop(node.name, dim, bounds.get(dim, 1), axes[dim]) for dim in reversed(inward)]

    def axes(
        self, inward: list[str], bounds: Mapping[str, int], fan: FanOut, split: int | None
    ) -> dict[str, int]:
        """Dimension -> axis; without a split, all along x, or wherever they fit."""
        if split is None and math.prod(bounds.values()) > fan.mesh[0]:
            axes = axes_of(bounds, fan.mesh)
            if axes is not None:
                return {dim: axes.get(dim, 0) for dim in inward}
        return split_axes(inward, self.einsum, len(inward) if split is None else split)

    def with_rest(self, loops: list[Loop]) -> list[Loop]:
        """A factor of 0 is what the other loops leave of its dimension."""
        whole = []
        for loop in loops:
            if loop.bound != REST:
                whole.append(loop)
                continue
            others = [each.bound for each in loops if each.dim == loop.dim and each is not loop]
            if REST in others:
                raise SilicastError(
                    f"two factors of {loop.dim} are 0",
                    field="mapping",
                    file=self.file,
                    hint="one takes the rest",
                )
            remaining = -(-self.einsum.bounds[loop.dim] // math.prod(others))
            whole.append(Loop(loop.slot, loop.dim, remaining, loop.axis))
        return whole

    def keeps(self) -> dict[str, frozenset[str]]:
        """Memory -> tensors: what is not bypassed is kept, unless the memory may not."""
        return {
            memory.name: frozenset(
                tensor
                for tensor in self.einsum.names
                if tensor in targets.keep
                or (tensor not in targets.bypass and memory.may_keep(tensor))
            )
            for memory in self.architecture.memories
            if (targets := self.targets.components.get(memory.name)) is not None
        }
