"""Timeloop's constraints -> what memories keep, and rules for loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.accelerator.mapper.constraints import Constraints, SlotRule
from silicast.accelerator.timeloop.loops import REST, axes_of, split_axes, split_of
from silicast.accelerator.timeloop.targets import KEEPS, EntryReader, MemoryTargets
from silicast.core.errors import SilicastError, errors_located, unsupported
from silicast.formats.fields import Fields

SECTIONS = ("architecture_constraints", "mapspace_constraints", "mapspace")


@final
class ConstraintReader(EntryReader[tuple[str, dict[str, Any]]]):
    """Reads all entries of a description, then says what they mean together."""

    least_utilisation = 0.0

    def read(self, content: Fields) -> tuple[Architecture, Constraints]:
        """The architecture with what each memory keeps, and the rules for its slots.

        Raises:
            SilicastError: an entry that has no meaning, or contradicts others.
        """
        for section in SECTIONS:
            table = content.table(section) if content.get(section) else Fields({})
            for target in table.tables("targets"):
                self.entry(target)
        rules: dict[tuple[str, int], SlotRule] = {}
        for (name, kind), (where, entry) in self.loops.items():
            rules |= self.rules(name, kind, entry, where)
        constraints = Constraints(self.with_rest(rules), self.least_utilisation)
        with errors_located(file=self.file):
            constraints.check(self.architecture, self.einsum)
        nodes = tuple(map(self.keeping, self.architecture.nodes))
        return replace(self.architecture, nodes=nodes), constraints

    def entry(self, entry: Fields) -> None:
        """One entry; those about loops of one place are one in the end."""
        name, kind = self.targets.entry(entry)
        where = entry.path
        if kind in {"temporal", "spatial"}:
            loops = self.targets.loops(entry)
            details = {key: value for key, value in loops.items() if value is not None}
            first, earlier = self.loops.setdefault((name, kind), (where, details))
            self.merge(earlier, details, where, first)
        elif kind in {"utilization", "utilisation", "parallelism"}:
            least = entry.spelled(("target", "type", "min")).number("min", most=1.0)
            self.least_utilisation = max(self.least_utilisation, float(least))
        elif kind not in KEEPS:
            raise unsupported(
                f"type {kind!r} is not read",
                f"{where}.type",
                "temporal, spatial, bypass and utilization are",
                file=self.file,
            )

    def merge(
        self, earlier: dict[str, Any], details: dict[str, Any], where: str, first: str
    ) -> None:
        """A later entry adds to what an earlier one says of the same place."""
        if earlier is details:
            return
        for key, value in details.items():
            if key == "factors" and key in earlier:
                both = [self.targets.factors(each, where) for each in (earlier[key], value)]
                merged = dict.fromkeys(both[0] + both[1])
                earlier[key] = [f"{dim}{sign}{bound}" for dim, sign, bound in merged]
            elif earlier.setdefault(key, value) != value:
                raise SilicastError(
                    f"{value!r} contradicts {earlier[key]!r} of {first}",
                    field=f"{where}.{key}",
                    file=self.file,
                )

    def rules(
        self, name: str, kind: str, entry: Mapping[str, Any], where: str
    ) -> dict[tuple[str, int], SlotRule]:
        """(node, axis) -> rule, of what an entry states of one place."""
        fixed: dict[str, int] = {}
        most: dict[str, int] = {}
        for dim, sign, bound in self.targets.factors(entry.get("factors"), where):
            (most if sign == "<=" else fixed)[dim] = bound
        inward = self.targets.permutation(entry, where)
        split = split_of(entry, where, self.file)
        fan = self.targets.node(name, kind)
        if fan is None:
            self.targets.must_be_one(name, kind, fixed, where)
            return {}
        if isinstance(fan, Memory):
            return {(name, -1): SlotRule(fixed, most, tuple(inward))}
        if split is not None:
            axes = split_axes(inward, self.einsum, split)
        else:
            bounds = {dim: bound or self.einsum.bounds[dim] for dim, bound in fixed.items()}
            result = axes_of(bounds, fan.mesh)
            if result is None:
                factors = ", ".join(f"{dim}={bound}" for dim, bound in bounds.items() if bound > 1)
                raise unsupported(
                    f"{factors} do not fit a mesh of {' x '.join(map(str, fan.mesh))}, every "
                    "dimension on one axis",
                    f"{where}.factors",
                    "make them smaller",
                    file=self.file,
                )
            axes = result
        barred = {axis: [dim for dim in axes if axes[dim] != axis] for axis in (0, 1)}
        return {
            (fan.name, axis): SlotRule({**fixed, **dict.fromkeys(barred[axis], 1)}, most)
            for axis in (0, 1)
        }

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
            position: replace(rule, fixed={d: bound or left[d] for d, bound in rule.fixed.items()})
            for position, rule in rules.items()
        }

    def keeping(self, node: Memory | FanOut) -> Memory | FanOut:
        """The node with what it keeps; what nobody speaks of, mappings may keep or not."""
        if isinstance(node, FanOut) or node.name == self.targets.outermost:
            return node
        targets = self.targets.components.get(node.name, MemoryTargets())
        return replace(
            node,
            keeps=tuple(t for t in self.einsum.names if t not in targets.bypass),
            may_bypass=tuple(
                t for t in self.einsum.names if t not in targets.keep and t not in targets.bypass
            ),
        )
