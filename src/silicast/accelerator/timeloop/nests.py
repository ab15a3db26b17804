"""Timeloop's mappings -> loop nests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from silicast.accelerator.architecture import Architecture, FanOut, Memory
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.mapping import Loop, LoopNest
from silicast.accelerator.timeloop._fields import rows, spelled, table, word
from silicast.accelerator.timeloop.components import Component
from silicast.accelerator.timeloop.loops import (
    REST,
    axes_of,
    factors,
    permutation,
    split_axes,
    split_of,
)
from silicast.accelerator.timeloop.rules import KEEPS, Kept, kept_by, target
from silicast.core.errors import SilicastError, unsupported

_LOOPS = frozenset({"target", "type", "factors", "permutation", "split"})


@final
class MappingReader:
    """Reads one mapping of an einsum on an architecture."""

    def __init__(
        self, einsum: Einsum, architecture: Architecture, components: Mapping[str, Component],
        file: str,
    ) -> None:  # fmt: skip
        self.einsum = einsum
        self.architecture = architecture
        self.components = components
        self.file = file
        self.nodes = {node.name: node for node in architecture.nodes}
        self.outermost = architecture.nodes[0].name
        self.kept: dict[str, Kept] = {}
        self.loops: dict[tuple[str, str], list[Loop]] = {}

    def read(self, content: Any) -> LoopNest:
        """The loop nest.

        Raises:
            SilicastError: there is none, or an entry has no meaning.
        """
        entries = rows(table(content, "mapping", self.file).get("mapping"), "mapping", self.file)
        if not entries:
            raise SilicastError("has no mapping", field="mapping", file=self.file,
                                hint="give Timeloop's map.yaml")  # fmt: skip
        for place, item in enumerate(entries):
            self.entry(item, f"mapping[{place}]")
        placed: dict[tuple[str, int], list[Loop]] = {}
        for loop in (each for some in self.loops.values() for each in some):
            placed.setdefault((loop.slot, loop.axis), []).append(loop)
        ordered = [
            loop for slot in self.architecture.slots
            for loop in placed.get((self.architecture.nodes[slot.node].name, slot.axis), [])
        ]  # fmt: skip
        return LoopNest(tuple(self.with_rest(ordered)), self.keeps())

    def entry(self, item: Any, where: str) -> None:
        """One entry."""
        entry = table(item, where, self.file)
        name = word(entry.get("target"), f"{where}.target", self.file)
        component = target(name, self.components, f"{where}.target", self.file)
        kind = entry.get("type")
        if kind in KEEPS:
            kept_by(self.kept, entry, component, self.outermost, self.einsum, where, self.file)
            return
        if kind not in {"temporal", "spatial"}:
            raise unsupported(
                f"type {kind!r} is not read", f"{where}.type", "temporal, spatial and datatype are",
                file=self.file,
            )  # fmt: skip
        if (name, kind) in self.loops:
            raise SilicastError(f"gives the {kind} loops of {name} a second time", field=where,
                                file=self.file)  # fmt: skip
        said = spelled(entry, _LOOPS, where, self.file)
        self.loops[name, kind] = self.nest(name, kind, said, where)

    def nest(self, name: str, kind: str, entry: Mapping[str, Any], where: str) -> list[Loop]:
        """The loops of one entry, outermost first."""
        file, einsum = self.file, self.einsum
        bounds = {}
        for dim, sign, bound in factors(entry.get("factors"), einsum, f"{where}.factors", file):
            if sign == "<=":
                raise SilicastError(f"expected {dim}={bound}, found {dim}<={bound}",
                                    field=f"{where}.factors", file=file)  # fmt: skip
            bounds[dim] = bound
        # Timeloop writes the innermost loop first.
        inward = permutation(entry.get("permutation"), einsum, f"{where}.permutation", file)
        inward += [dim for dim in einsum.dims if dim not in inward]
        node = self.nodes.get(name)
        if kind == "temporal" and isinstance(node, Memory):
            return [Loop(name, dim, bounds.get(dim, 1)) for dim in reversed(inward)]
        fan = node if isinstance(node, FanOut) else self.nodes.get(f"{name}.fan_out")
        if kind == "temporal" or not isinstance(fan, FanOut):
            why = "has no loops in time" if kind == "temporal" else "has one instance below"
            for dim, bound in bounds.items():
                if bound != 1 and einsum.bounds[dim] > 1:
                    raise SilicastError(f"{name} {why}, found {dim}{bound}",
                                        field=f"{where}.factors", file=file)  # fmt: skip
            return []
        axes = self.axes(inward, bounds, fan, split_of(entry, where, file))
        return [Loop(fan.name, dim, bounds.get(dim, 1), axes[dim]) for dim in reversed(inward)]

    def axes(
        self, inward: list[str], bounds: Mapping[str, int], fan: FanOut, split: int | None
    ) -> dict[str, int]:
        """Dimension -> axis; without a split, all along x, or wherever they fit."""
        if split is None and math.prod(bounds.values()) > fan.mesh[0]:
            found = axes_of(bounds, fan.mesh)
            if found is not None:
                return {dim: found.get(dim, 0) for dim in inward}
        return split_axes(inward, self.einsum, len(inward) if split is None else split)

    def with_rest(self, loops: list[Loop]) -> list[Loop]:
        """A factor of 0 is what the other loops leave of its dimension."""
        found = []
        for loop in loops:
            if loop.bound != REST:
                found.append(loop)
                continue
            others = [each.bound for each in loops if each.dim == loop.dim and each is not loop]
            if REST in others:
                raise SilicastError(f"two factors of {loop.dim} are 0", field="mapping",
                                    file=self.file, hint="one takes the rest")  # fmt: skip
            rest = -(-self.einsum.bounds[loop.dim] // math.prod(others))
            found.append(Loop(loop.slot, loop.dim, rest, loop.axis))
        return found

    def keeps(self) -> dict[str, frozenset[str]]:
        """Memory -> tensors: what is not bypassed is kept, unless the memory may not."""
        return {
            memory.name: frozenset(
                tensor for tensor in self.einsum.names
                if tensor in said.keep or (tensor not in said.bypass and memory.may_keep(tensor))
            )
            for memory in self.architecture.memories
            if (said := self.kept.get(memory.name)) is not None
        }  # fmt: skip
