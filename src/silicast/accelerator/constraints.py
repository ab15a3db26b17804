"""What a mapping may do beyond what the hardware allows: fixed factors, orders, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from silicast.accelerator.architecture import Architecture
from silicast.accelerator.einsum import Einsum
from silicast.core.errors import SilicastError


@final
@dataclass(frozen=True)
class SlotRule:
    """Rules for the loops of one slot.

    Attributes:
        fixed: dimension -> its loop bound here; one larger than the dimension is cut to it.
        most: dimension -> largest loop bound here.
        innermost: loops in time, from the innermost outwards, that must stand so; the others
            stand outside of them in any order.
    """

    fixed: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    innermost: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Constraints:
    """Rules by place.

    Attributes:
        rules: (memory or fan-out, axis; -1 = loops in time) -> rule.
        least_utilisation: share of the compute units that must work, 0 to 1.
    """

    rules: Mapping[tuple[str, int], SlotRule] = field(default_factory=dict)
    least_utilisation: float = 0.0

    def of(self, architecture: Architecture, slot: int) -> SlotRule:
        """The rule of a slot."""
        place = architecture.slots[slot]
        return self.rules.get((architecture.nodes[place.node].name, place.axis), NO_RULE)

    def check(self, architecture: Architecture, einsum: Einsum) -> None:
        """Finds contradictions.

        Raises:
            SilicastError: a rule for a place or dimension that is not there, or fixed factors
                that do not divide what they split.
        """
        places = {
            (architecture.nodes[slot.node].name, slot.axis): slot for slot in architecture.slots
        }
        product = dict.fromkeys(einsum.dims, 1)
        for (name, axis), rule in self.rules.items():
            where = f"constraints.{name}"
            if (name, axis) not in places:
                if not any(name == known for known, _ in places):
                    raise SilicastError(
                        f"no memory or fan-out called {name!r}", field=where,
                        hint=f"there are {', '.join(sorted({n for n, _ in places}))}",
                    )  # fmt: skip
                continue
            for dim, bound in rule.fixed.items():
                if dim in product:
                    product[dim] *= min(bound, einsum.bounds[dim])
                    if dim in rule.most and bound > rule.most[dim]:
                        raise SilicastError(
                            f"{dim} is fixed to {bound} and at most {rule.most[dim]}", field=where
                        )
        for dim, fixed in product.items():
            if einsum.bounds[dim] % fixed:
                raise SilicastError(
                    f"the fixed factors of {dim} multiply to {fixed}, which does not divide "
                    f"{einsum.bounds[dim]}",
                    field="constraints",
                    hint=f"free one of them, or give {dim} a size that {fixed} divides",
                )


NO_RULE = SlotRule()
