"""Timeloop's constraints -> what memories keep, and rules for loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

from silicast.accelerator.architecture import Architecture, FanOut, Memory
from silicast.accelerator.constraints import Constraints, SlotRule
from silicast.accelerator.einsum import Einsum
from silicast.accelerator.timeloop._fields import names, number, rows, spelled, table, word
from silicast.accelerator.timeloop.components import Component
from silicast.accelerator.timeloop.loops import (
    REST,
    axes_of,
    factors,
    permutation,
    split_axes,
    split_of,
)
from silicast.core.errors import SilicastError, unknown_name, unsupported

SECTIONS = ("architecture_constraints", "mapspace_constraints", "mapspace")
KEEPS = frozenset({"bypass", "datatype", "dataspace"})
_LOOPS = frozenset({"target", "type", "factors", "permutation", "split"})
_KEEP_KEYS = frozenset({"target", "type", "keep", "bypass"})


@final
class Kept:
    """What one memory keeps and passes on, of all entries about it."""

    def __init__(self) -> None:
        self.keep: dict[str, None] = {}
        self.bypass: dict[str, None] = {}

    def take(self, entry: Mapping[str, Any], einsum: Einsum, where: str, file: str) -> None:
        """What another entry says.

        Raises:
            SilicastError: an unknown tensor, or one that is kept and passed on.
        """
        said = spelled(entry, _KEEP_KEYS, where, file)
        for key, mine in (("keep", self.keep), ("bypass", self.bypass)):
            known = names(said.get(key), einsum.names, f"{where}.{key}", file)
            mine.update(dict.fromkeys(known))
        both = [tensor for tensor in self.keep if tensor in self.bypass]
        if both:
            raise SilicastError(f"{both[0]} is kept and bypassed", field=where, file=file,
                                hint="take it out of one of them")  # fmt: skip


def kept_by(
    found: dict[str, Kept], entry: Mapping[str, Any], component: Component, outermost: str,
    einsum: Einsum, where: str, file: str,
) -> None:  # fmt: skip
    """Adds one entry of type ``bypass`` to what is known of its component.

    Raises:
        SilicastError: see :meth:`Kept.take`, or a component that cannot do so.
    """
    own = found.setdefault(component.name, Kept())
    own.take(entry, einsum, where, file)
    if component.is_dummy and own.keep:
        raise SilicastError(f"{component.name} holds nothing", field=f"{where}.keep", file=file)
    if component.name == outermost and own.bypass:
        raise SilicastError("the outermost memory keeps every tensor",
                            field=f"{where}.bypass", file=file)  # fmt: skip


@final
class ConstraintReader:
    """Reads all entries of a description, then says what they mean together."""

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
        self.loops: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self.least_utilisation = 0.0

    def read(self, content: Mapping[str, Any]) -> tuple[Architecture, Constraints]:
        """The architecture with what each memory keeps, and the rules for its slots.

        Raises:
            SilicastError: an entry that has no meaning, or contradicts others.
        """
        for section in SECTIONS:
            given = table(content.get(section) or {}, section, self.file)
            targets = given.get("targets")
            for place, item in enumerate(rows(targets, f"{section}.targets", self.file)):
                self.entry(item, f"{section}.targets[{place}]")
        rules: dict[tuple[str, int], SlotRule] = {}
        for (name, kind), (where, entry) in self.loops.items():
            rules |= self.rules(name, kind, entry, where)
        constraints = Constraints(self.with_rest(rules), self.least_utilisation)
        try:
            constraints.check(self.architecture, self.einsum)
        except SilicastError as error:
            raise error.located(file=self.file) from None
        return replace(
            self.architecture, nodes=tuple(map(self.keeping, self.architecture.nodes))
        ), (constraints)

    def entry(self, item: Any, where: str) -> None:
        """One entry; those about loops of one place are one in the end."""
        entry = table(item, where, self.file)
        name = word(entry.get("target"), f"{where}.target", self.file)
        component = target(name, self.components, f"{where}.target", self.file)
        kind = entry.get("type")
        if kind in KEEPS:
            kept_by(self.kept, entry, component, self.outermost, self.einsum, where, self.file)
        elif kind in {"temporal", "spatial"}:
            said = {k: v for k, v in spelled(entry, _LOOPS, where, self.file).items()
                    if v is not None}  # fmt: skip
            first, known = self.loops.setdefault((name, str(kind)), (where, said))
            self.merge(known, said, where, first)
        elif kind in {"utilization", "utilisation", "parallelism"}:
            said = spelled(entry, ("target", "type", "min"), where, self.file)
            least = number(said.get("min"), f"{where}.min", self.file)
            if not 0 <= least <= 1:
                raise SilicastError(f"expected 0 to 1, found {least:g}", field=f"{where}.min",
                                    file=self.file)  # fmt: skip
            self.least_utilisation = max(self.least_utilisation, float(least))
        else:
            raise unsupported(
                f"type {kind!r} is not read", f"{where}.type",
                "temporal, spatial, bypass and utilization are", file=self.file,
            )  # fmt: skip

    def merge(self, known: dict[str, Any], stated: dict[str, Any], where: str, first: str) -> None:
        """A later entry adds to what an earlier one says of the same place."""
        if known is stated:
            return
        for key, value in stated.items():
            if key == "factors" and key in known:
                both = [
                    tuple(factors(each, self.einsum, f"{where}.factors", self.file))
                    for each in (known[key], value)
                ]
                merged = dict.fromkeys(both[0] + both[1])
                known[key] = [f"{dim}{sign}{bound}" for dim, sign, bound in merged]
            elif known.setdefault(key, value) != value:
                raise SilicastError(
                    f"{value!r} contradicts {known[key]!r} of {first}", field=f"{where}.{key}",
                    file=self.file,
                )  # fmt: skip

    def rules(
        self, name: str, kind: str, entry: Mapping[str, Any], where: str
    ) -> dict[tuple[str, int], SlotRule]:
        """(node, axis) -> rule, of what an entry states of one place."""
        fixed: dict[str, int] = {}
        most: dict[str, int] = {}
        for dim, sign, bound in factors(
            entry.get("factors"), self.einsum, f"{where}.factors", self.file
        ):
            (most if sign == "<=" else fixed)[dim] = bound
        inward = permutation(
            entry.get("permutation"), self.einsum, f"{where}.permutation", self.file
        )
        split = split_of(entry, where, self.file)
        node = self.nodes.get(name)
        if kind == "temporal":
            if isinstance(node, Memory):
                return {(name, -1): SlotRule(fixed, most, tuple(inward))}
            self.must_be_one(name, fixed, "has no loops in time", where)
            return {}
        fan = node if isinstance(node, FanOut) else self.nodes.get(f"{name}.fan_out")
        if not isinstance(fan, FanOut):
            self.must_be_one(name, fixed, "has one instance below", where)
            return {}
        if split is not None:
            axes = split_axes(inward, self.einsum, split)
            barred = {axis: [d for d in axes if axes[d] != axis] for axis in (0, 1)}
        else:
            known = {dim: bound or self.einsum.bounds[dim] for dim, bound in fixed.items()}
            chosen = axes_of(known, fan.mesh)
            if chosen is None:
                said = ", ".join(f"{dim}={bound}" for dim, bound in known.items() if bound > 1)
                raise unsupported(
                    f"{said} do not fit a mesh of {' x '.join(map(str, fan.mesh))}, every "
                    "dimension on one axis", f"{where}.factors", "make them smaller",
                    file=self.file,
                )  # fmt: skip
            barred = {axis: [d for d in chosen if chosen[d] != axis] for axis in (0, 1)}
        return {
            (fan.name, axis): SlotRule({**fixed, **dict.fromkeys(barred[axis], 1)}, most)
            for axis in (0, 1)
        }

    def must_be_one(self, name: str, fixed: Mapping[str, int], why: str, where: str) -> None:
        """Nothing is split in a place that has no loops."""
        for dim, bound in fixed.items():
            if bound != 1 and self.einsum.bounds[dim] > 1:
                raise SilicastError(
                    f"{name} {why}, found {dim}={bound}", field=f"{where}.factors", file=self.file
                )

    def with_rest(
        self, rules: Mapping[tuple[str, int], SlotRule]
    ) -> dict[tuple[str, int], SlotRule]:
        """A factor of 0 is what the other ones leave of its dimension."""
        left = dict(self.einsum.bounds)
        for rule in rules.values():
            for dim, bound in rule.fixed.items():
                if bound != REST and left[dim] % bound == 0:
                    left[dim] //= bound
        return {
            place: replace(rule, fixed={d: bound or left[d] for d, bound in rule.fixed.items()})
            for place, rule in rules.items()
        }

    def keeping(self, node: Memory | FanOut) -> Memory | FanOut:
        """The node with what it keeps; what nobody speaks of, mappings may keep or not."""
        if isinstance(node, FanOut) or node.name == self.outermost:
            return node
        said = self.kept.get(node.name, Kept())
        return replace(
            node, keeps=tuple(t for t in self.einsum.names if t not in said.bypass),
            may_bypass=tuple(
                t for t in self.einsum.names if t not in said.keep and t not in said.bypass
            ),
        )  # fmt: skip


def target(name: str, components: Mapping[str, Component], field: str, file: str) -> Component:
    """The component of a name.

    Raises:
        SilicastError: there is none.
    """
    if name not in components:
        raise unknown_name(f"no component {name!r}", field,
                           f"there are {', '.join(components)}", file=file)  # fmt: skip
    return components[name]
