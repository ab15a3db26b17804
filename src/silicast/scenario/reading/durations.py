"""Durations as people write them."""

from __future__ import annotations

import math
import re

from silicast.core.errors import SilicastError

MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3}
"""Unit of a duration -> milliseconds."""

_DURATION = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-zµμ]*)")


def milliseconds(text: str, field: str) -> float:
    """A duration with its unit as milliseconds.

    Args:
        field: that an error names.

    Raises:
        SilicastError: no unit, an unknown one, or not above zero.

    >>> milliseconds("250us", "slo"), milliseconds("1.5 s", "slo")
    (0.25, 1500.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise _wrong(f"expected a duration, found {text[:60]!r}", field)
    number, unit = match.groups()
    factor = MILLISECONDS.get(unit.replace("µ", "u").replace("μ", "u"))
    if factor is None:
        remark = f"unit {unit!r} of {text[:60]!r}" if unit else f"{text[:60]!r} has no unit"
        units = f"units are {', '.join(MILLISECONDS)}"
        raise _wrong(remark, field, units if unit else f"write {number}ms; {units}")
    milliseconds = float(number) * factor
    if not 0.0 < milliseconds < math.inf:
        raise _wrong(f"{text[:60]!r} is not above zero", field)
    return milliseconds


def _wrong(message: str, field: str, hint: str = "for example 50ms") -> SilicastError:
    return SilicastError(message, field=field, hint=hint)
