"""What entries of Timeloop's mappings and constraints are about: a component and its loops, or the
tensors that it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, final

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture, FanOut, Memory
from silicast.accelerator.timeloop.components import Component
from silicast.accelerator.timeloop.loops import factors, permutation
from silicast.core.errors import SilicastError
from silicast.formats.fields import Fields

KEEPS = frozenset({"bypass", "datatype", "dataspace"})
_LOOPS = frozenset({"target", "type", "factors", "permutation", "split"})
_KEEP_KEYS = frozenset({"target", "type", "keep", "bypass"})


@final
class MemoryTargets:
    """What one memory keeps and passes on, of all entries about it."""

    def __init__(self) -> None:
        self.keep: dict[str, None] = {}
        self.bypass: dict[str, None] = {}

    def take(self, entry: Fields, einsum: Einsum) -> None:
        """What another entry says.

        Raises:
            SilicastError: an unknown tensor, or one that is kept and passed on.
        """
        spelled = entry.spelled(_KEEP_KEYS)
        for key, mine in (("keep", self.keep), ("bypass", self.bypass)):
            mine.update(dict.fromkeys(spelled.known(key, einsum.names)))
        both = [tensor for tensor in self.keep if tensor in self.bypass]
        if both:
            raise entry.error(f"{both[0]} is kept and bypassed", "", "take it out of one of them")


L = TypeVar("L")


@final
class Targets:
    """The components of a description, as entries of a file name them.

    Attributes:
        components: component -> what entries read so far say that it keeps.
    """

    def __init__(
        self,
        einsum: Einsum,
        architecture: Architecture,
        components: Mapping[str, Component],
        file: str,
    ) -> None:
        self.einsum = einsum
        self.architecture = architecture
        self.file = file
        self.components: dict[str, MemoryTargets] = {}
        self.outermost = architecture.nodes[0].name
        self._components = components
        self._nodes = {node.name: node for node in architecture.nodes}

    def entry(self, entry: Fields) -> tuple[str, str]:
        """(target, type) of an entry; one of :data:`KEEPS` is noted in ``components``.

        Raises:
            SilicastError: an unknown target, see :meth:`MemoryTargets.take`, or a component that
            cannot keep
                or pass on what the entry says.
        """
        name = entry.text("target", default=None)
        if name not in self._components:
            there_are = f"there are {', '.join(self._components)}"
            raise entry.error(f"no component {name!r}", "target", there_are, "unknown_name")
        kind = str(entry.get("type"))
        if kind in KEEPS:
            self._keep(self._components[name], entry)
        return name, kind

    def _keep(self, component: Component, entry: Fields) -> None:
        targets = self.components.setdefault(component.name, MemoryTargets())
        targets.take(entry, self.einsum)
        if component.is_dummy and targets.keep:
            raise entry.error(f"{component.name} holds nothing", "keep")
        if component.name == self.outermost and targets.bypass:
            raise entry.error("the outermost memory keeps every tensor", "bypass")

    def loops(self, entry: Fields) -> Mapping[str, Any]:
        """What an entry says of loops.

        Raises:
            SilicastError: it says something else too.
        """
        return entry.spelled(_LOOPS).values

    def factors(self, value: Any, where: str) -> list[tuple[str, str, int]]:
        return factors(value, self.einsum, f"{where}.factors", self.file)

    def permutation(self, entry: Mapping[str, Any], where: str) -> list[str]:
        return permutation(entry.get("permutation"), self.einsum, f"{where}.permutation", self.file)

    def node(self, name: str, kind: str) -> Memory | FanOut | None:
        """What runs the loops of a kind in a place: a memory those in time, a fan-out those in
        space; None where there are none.
        """
        node = self._nodes.get(name)
        if kind == "temporal":
            return node if isinstance(node, Memory) else None
        fan = node if isinstance(node, FanOut) else self._nodes.get(f"{name}.fan_out")
        return fan if isinstance(fan, FanOut) else None

    def must_be_one(self, name: str, kind: str, bounds: Mapping[str, int], where: str) -> None:
        """Nothing is split in a place that has no loops.

        Raises:
            SilicastError: a factor is more than 1.
        """
        why = "has no loops in time" if kind == "temporal" else "has one instance below"
        for dim, bound in bounds.items():
            if bound != 1 and self.einsum.bounds[dim] > 1:
                raise SilicastError(
                    f"{name} {why}, found {dim}={bound}", field=f"{where}.factors", file=self.file
                )


class EntryReader(Generic[L]):
    """Reads entries of a file about one einsum on an architecture.

    Args:
        targets: the components that entries may be about.

    Attributes:
        loops: what an entry says of them, by target and type.
    """

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self.einsum = targets.einsum
        self.architecture = targets.architecture
        self.file = targets.file
        self.loops: dict[tuple[str, str], L] = {}
