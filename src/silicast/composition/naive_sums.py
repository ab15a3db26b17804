"""Two wrong rules of adding errors, to be shown beside the right one.

If every execution of every kernel erred for itself, the error of a sum of N of them would shrink
with the square root of N; if all erred together, it would not shrink at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import numpy as np

from silicast.core.numerics import F64
from silicast.core.prediction import ErrorFactors

Rule = Literal["composed", "independent", "linear"]

_RULE: ContextVar[Rule] = ContextVar("rule", default="composed")


def rule() -> Rule:
    """How errors are added here: "composed" unless inside :func:`added_by`."""
    return _RULE.get()


@contextmanager
def added_by(wanted: Rule) -> Iterator[None]:
    """Inside, errors of steps and programs are added by a rule."""
    token = _RULE.set(wanted)
    try:
        yield
    finally:
        _RULE.reset(token)


def naive(
    seconds: F64, runs: F64, sds: F64, host_s: float, host_log_sd: float, wanted: Rule
) -> ErrorFactors:
    """The error of a sum by one of the two rules.

    Args:
        seconds: of each node, all its executions; runs: how many; sds: log sd of one; shape (n,).

    >>> four = np.array([4.0]), np.array([4.0]), np.array([0.1])
    >>> naive(*four, 0.0, 0.0, "independent").log_sd, naive(*four, 0.0, 0.0, "linear").log_sd
    (0.05, 0.1)
    """
    whole = float(seconds.sum()) + host_s
    if wanted == "linear":
        return ErrorFactors(
            {"all": (float((seconds * sds).sum()) + host_s * host_log_sd) / whole}, 0.0
        )
    squares = float(np.square(seconds * sds / np.sqrt(runs)).sum())
    return ErrorFactors({}, math.hypot(math.sqrt(squares), host_s * host_log_sd) / whole)


def log_sd_of(shared: Mapping[str, float], own: float) -> float:
    """All of one kernel's error."""
    return math.hypot(own, *shared.values())
