"""Numbers as people write them: durations (``2.5ms``), shares (``3%``), ranges (``1,2,4..256``)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

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


_TOKENS = re.compile(r"(\d{1,9})\s*([km]?)")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def tokens_of(text: str, field: str) -> int:
    """A number of tokens; "k" and "m" count 1024 and its square.

    Raises:
        SilicastError: something else stands there.

    >>> tokens_of("32k", "--context"), tokens_of("5000", "--context")
    (32768, 5000)
    """
    match = _TOKENS.fullmatch(text.strip().casefold())
    if match is None:
        raise SilicastError(
            f"expected a number of tokens, found {text[:40]!r}", field=field, hint="4096, or 32k"
        )
    return int(match.group(1)) * _UNITS[match.group(2)]


def share_of(text: str, flag: str) -> float:
    """A share above 0 and below 1.

    Raises:
        SilicastError: it is none; names the flag.

    >>> share_of("3%", "--tolerance"), share_of("0.05", "--tolerance")
    (0.03, 0.05)
    """
    stripped = text.strip()
    try:
        share = float(stripped.removesuffix("%"))
    except ValueError:
        share = math.nan
    if stripped.endswith("%"):
        share /= 100.0
    if not 0.0 < share < 1.0:
        raise SilicastError(f"expected a share such as 3% or 0.03, found {text[:60]!r}", field=flag)
    return share


def series(
    words: str, number: Callable[[str], float], most: int, wrong: Callable[[str], Exception]
) -> list[float]:
    """Values with commas between; two points go on from the two values before, by their ratio if
    the next is the same ratio away, else by their difference, and by 1 after a single one.

    Args:
        number: reads one value.
        most: values at which a run of points ends in any case, one more than the caller takes.
        wrong: makes the error of a run that does not grow.

    >>> series("1,2,4..20", float, 64, ValueError)
    [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    """
    values: list[float] = []
    for word in words.split(","):
        first, dots, last = word.partition("..")
        values.append(number(first))
        if dots:
            values += _going_on(values, number(last), most, wrong)
    return values


def _going_on(
    values: list[float], last: float, most: int, wrong: Callable[[str], Exception]
) -> list[float]:
    """Values after the given ones up to ``last``, which is one of them."""
    now = values[-1]
    if last <= now:
        raise wrong(f"{now:g}..{last:g} does not grow")
    step, ratio = 1.0, 0.0
    if len(values) > 1:
        step = now - values[-2]
        # three values, or a doubling, tell a ratio from a difference
        if len(values) > 2 and math.isclose(now * values[-3], values[-2] ** 2):
            ratio = now / values[-2]
    further: list[float] = []
    while len(further) <= most:
        now = now * ratio if ratio > 1.0 else now + step
        if now >= last * (1.0 - 1e-9):
            break
        further.append(round(now, 9))
    return [*further, last]
