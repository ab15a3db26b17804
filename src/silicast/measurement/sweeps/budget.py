"""The time budget of a sweep, and its division among families of kernels."""

from __future__ import annotations

import re

from silicast.core.errors import SilicastError

LEAST_S = 5.0
"""A shorter sweep measures too little for a calibration."""
MOST_S = 7 * 24 * 3600.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}

WEIGHTS = {
    "gemm": 4.0,
    "attention_prefill": 2.0,
    "attention_decode": 2.0,
    "moe": 2.0,
    "conv2d": 2.0,
}
"""Relative shares of the time; 1 for others. Families with more sizes need more points."""


def seconds_of(text: str) -> float:
    """A duration such as 90s, 2m, 1h30m; a bare number is seconds.

    >>> seconds_of("2m"), seconds_of("1h30m"), seconds_of("45")
    (120.0, 5400.0, 45.0)

    Raises:
        SilicastError: no duration, or one that is too short or too long.
    """
    plain = text.strip().casefold()
    parts = _PART.findall(plain)
    if parts and "".join(number + unit for number, unit in parts) == plain:
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        try:
            seconds = float(plain)
        except ValueError:
            raise SilicastError(
                f"expected a duration, found {text[:40]!r}", field="--budget", hint="90s, 2m, 1h30m"
            ) from None
    if not LEAST_S <= seconds <= MOST_S:
        raise SilicastError(
            f"{text.strip()[:40]} is {'too short' if seconds < LEAST_S else 'too long'}: "
            f"expected {LEAST_S:g} s to {MOST_S / 86400:g} days",
            field="--budget",
            hint="2m for a first calibration, 10m or 30m for a sharper one",
        )
    return seconds


def shown(seconds: float) -> str:
    """A duration as text.

    >>> shown(75.4), shown(8.26), shown(7200.0)
    ('1m15s', '8.3s', '2h')
    """
    if seconds < 60.0:
        return f"{seconds:.1f}s" if seconds < 10.0 else f"{seconds:.0f}s"
    whole = round(seconds)
    hours, minutes, remainder = whole // 3600, whole // 60 % 60, whole % 60
    named = ((hours, "h"), (minutes, "m"), (remainder, "s"))
    return "".join(f"{count}{unit}" for count, unit in named if count)
