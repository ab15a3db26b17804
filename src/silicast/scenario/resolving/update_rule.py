"""Names of optimizers as modelled update rules."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.kernels.movement.optimizer import RULES
from silicast.scenario.road import PARTS, not_yet_of

SAME_RULE: Mapping[str, str] = {
    "fused_adam": "adamw",
    "distributed_adam": "adamw",
    "adam_8bit": "adamw_8bit",
}
"""Names that frameworks give one rule."""


def update_rule(name: str) -> str:
    """The update rule that an optimizer follows.

    Raises:
        SilicastError: kind "not_yet": it is not modelled.

    >>> update_rule("fused_adam")
    'adamw'
    """
    rule = SAME_RULE.get(name, name)
    if rule not in RULES:
        raise not_yet_of(PARTS["optimizer"], "workload.optimizer", name, ", ".join(RULES))
    return rule
