"""How much of an answer rests on what: ``why.coverage`` of every task that predicts a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silicast.core.prediction import TIERS

GIVEN = "given"
"""In place of a tier: a time that the user states."""
UNMODELLED = "unmodelled"
"""In place of a tier: operations without a model, of which bytes and a launch are counted."""
ORDER = (*reversed(TIERS), GIVEN, UNMODELLED)


def coverage_of(*parts: tuple[Mapping[Any, float], float]) -> dict[str, Any]:
    """``coverage`` for ``why``: shares of the time by tier, best first.

    Args:
        parts: time by tier in any one unit, and how often it counts.

    >>> coverage_of(({"analytic": 1.0}, 2.0), ({"calibrated": 6.0}, 1.0))
    {'coverage': {'time_share': {'calibrated': 0.75, 'analytic': 0.25}}}
    """
    seconds: dict[str, float] = {}
    for by_tier, often in parts:
        for tier, value in by_tier.items():
            seconds[tier] = seconds.get(tier, 0.0) + often * value
    whole = sum(seconds.values())
    shares = {tier: round(seconds[tier] / whole, 6) for tier in ORDER if seconds.get(tier)}
    return {"coverage": {"time_share": shares}}


def largest_of(names: Mapping[str, float], kind: str) -> dict[str, Any]:
    """``largest_unmodelled`` for a coverage: the part with the largest share; {} = there is none.

    >>> largest_of({"tool": 0.25, "search": 0.5}, "stage")
    {'largest_unmodelled': {'stage': 'search', 'time_share': 0.5}}
    """
    if not names:
        return {}
    name = max(names, key=lambda each: names[each])
    return {"largest_unmodelled": {kind: name, "time_share": round(names[name], 6)}}
