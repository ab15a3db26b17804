"""What makes an answer uncertain, and which measurement would narrow its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from silicast.core.prediction import Z90, ErrorFactors, Prediction

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
