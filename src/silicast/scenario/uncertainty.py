"""What makes an answer uncertain, and which measurement would narrow its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from silicast.core.prediction import TIERS, Z90, ErrorFactors, Prediction

CALIBRATION_ROWS = 200
"""Measured rows that a narrower interval is stated for: those of suite ``calibrated``."""
WORTH = 0.02
"""A measurement is named if it takes at least this share off the interval's width, in logs."""


def uncertainty_of(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """Of each metric, the shares of its error's variance and what would narrow its interval.

    Keys of each: ``log_sd``, ``factors`` (``name``, ``share`` of the variance, ``log_sd``; largest
    first) and ``would_narrow`` (``measure``: a family of kernels, "kernels" = of every family,
    "host" or "network"; ``rows`` of a family; ``log_sd``, ``p05`` and ``p95`` as factors on the
    estimate afterwards).

    >>> from silicast.core.prediction import Part
    >>> error = ErrorFactors({"device:gemm": 0.04, "host": 0.03})
    >>> one = Prediction(Part("step", 1000), error, narrowed={"host": ErrorFactors({"x": 0.04})})
    >>> found = uncertainty_of({"total_ms": one})["total_ms"]
    >>> found["factors"][0], found["would_narrow"][0]["measure"]
    ({'name': 'device:gemm', 'share': 0.64, 'log_sd': 0.04}, 'host')
    """
    return {name: _one(prediction) for name, prediction in predictions.items()}


def _one(prediction: Prediction) -> dict[str, Any]:
    error = prediction.error
    return {
        "log_sd": round(error.log_sd, 6),
        "factors": [
            {
                "name": name,
                "share": round(share, 4),
                "log_sd": round(math.sqrt(share) * error.log_sd, 6),
            }
            for name, share in error.shares().items()
        ],
        "would_narrow": [
            _after(measure, left)
            for measure, left in prediction.narrowed.items()
            if left.log_sd < (1.0 - WORTH) * error.log_sd
        ],
    }


def _after(measure: str, left: ErrorFactors) -> dict[str, Any]:
    spread = math.exp(Z90 * left.log_sd)
    rows = {} if measure in ("host", "network") else {"rows": CALIBRATION_ROWS}
    return {
        "measure": measure,
        **rows,
        "log_sd": round(left.log_sd, 6),
        "p05": round(1.0 / spread, 4),
        "p95": round(spread, 4),
    }


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
