"""What a mapping may do beyond what the hardware allows: fixed factors, orders, and limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

from silicast.accelerator.counting.einsum import Einsum
from silicast.accelerator.design.architecture import Architecture
from silicast.core.errors import SilicastError, unsupported


@final
@dataclass(frozen=True)
class SlotRule:
    """Rules for the loops of one slot.

    Attributes:
        fixed: dimension -> its loop bound here; one larger than the dimension is cut to it.
        most: dimension -> largest loop bound here.
        innermost: loops in time, from the innermost outwards, that must stand so; the others
            stand outside of them in any order.
        indexing: tensors; only dimensions that index exactly these have loops here. Empty = all.
    """

    fixed: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    innermost: tuple[str, ...] = ()
    indexing: tuple[str, ...] = ()

    def on(self, einsum: Einsum) -> SlotRule:
        """The rule with what ``indexing`` means for the dimensions of ``einsum``.

        >>> from silicast.accelerator.counting.einsum import matmul
        >>> SlotRule(indexing=("Weights", "Inputs")).on(matmul(m=2, n=2, k=2)).fixed
        {'M': 1, 'N': 1}
        """
        if not self.indexing:
            return self
        wanted = {einsum.tensor(name).name for name in self.indexing}
        barred = {
            dim: 1
            for dim in einsum.dims
            if {tensor.name for tensor in einsum.tensors if dim in tensor.dims} != wanted
        }
        return replace(self, fixed={**self.fixed, **barred}, indexing=())


@final
@dataclass(frozen=True)
class Constraints:
    """Rules by place.

    Attributes:
        rules: (memory or fan-out, axis; -1 = loops in time) -> rule.
        least_utilisation: share of the compute units that must work, 0 to 1.
        homes: tensor -> memory that it starts and ends in; left out, the outermost. Memories
            outside of its home see nothing of it, so that no loop there may move it.
    """

    rules: Mapping[tuple[str, int], SlotRule] = field(default_factory=dict)
    least_utilisation: float = 0.0
    homes: Mapping[str, str] = field(default_factory=dict)

    def rule(self, architecture: Architecture, slot: int) -> SlotRule:
        """The rule of a slot."""
        position = architecture.slots[slot]
        return self.rules.get((architecture.nodes[position.node].name, position.axis), NO_RULE)

    def on(self, einsum: Einsum) -> Constraints:
        """The rules, of the dimensions of ``einsum``.

        Raises:
            SilicastError: a rule names a tensor that is not there.
        """
        rules = {position: rule.on(einsum) for position, rule in self.rules.items()}
        return replace(self, rules=rules)

    def check(self, architecture: Architecture, einsum: Einsum) -> None:
        """Finds contradictions.

        Raises:
            SilicastError: a rule for a place or dimension that is not there, or fixed factors
                that do not divide what they split.
        """
        positions = {
            (architecture.nodes[slot.node].name, slot.axis): slot for slot in architecture.slots
        }
        product = dict.fromkeys(einsum.dims, 1)
        for (name, axis), rule in self.rules.items():
            where = f"constraints.{name}"
            if (name, axis) not in positions:
                if not any(name == node for node, _ in positions):
                    raise SilicastError(
                        f"no memory or fan-out called {name!r}",
                        field=where,
                        hint=f"there are {', '.join(sorted({n for n, _ in positions}))}",
                    )
                continue
            _check_room(rule, einsum, positions[name, axis].limit, where)
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


def _check_room(rule: SlotRule, einsum: Einsum, instances: float, where: str) -> None:
    """An axis has instances for all factors that a rule fixes on it."""
    fixed = {
        dim: min(bound, einsum.bounds[dim])
        for dim, bound in rule.fixed.items()
        if dim in einsum.bounds
    }
    if math.prod(fixed.values()) > instances:
        told = " x ".join(f"{dim} = {bound}" for dim, bound in fixed.items() if bound > 1)
        raise unsupported(
            f"the fixed factors {told} need {math.prod(fixed.values())} instances side by side, "
            f"there are {instances:g}",
            where,
            "fix smaller ones, or widen the mesh",
        )


NO_RULE = SlotRule()
