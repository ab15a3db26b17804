"""The flag ``--slo``: an objective in one word, such as ``ttft_p99=1s,tpot_p99=50ms``."""

from __future__ import annotations

import math
import re

from silicast.core.errors import SilicastError

FLAG = "--slo"
EXAMPLE = "for example ttft_p99=1s,tpot_p99=50ms"
QUANTILE = "quantile"
MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3}
"""Unit of a duration -> milliseconds."""

_DURATION = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-zµμ]*)")


def slo_of(text: str) -> dict[str, float]:
    """The fields of a scenario's ``slo`` table.

    Args:
        text: ``statistic=duration`` words with commas between; a statistic is ``ttft``, ``tpot``,
            ``itl`` or ``e2e``, alone (it holds for ``quantile`` of the requests) or with one of
            ``_mean``, ``_p50``, ``_p90``, ``_p95``, ``_p99``; ``quantile=0.95`` is a word as well.

    Raises:
        SilicastError: a word is none of these, or stands twice.

    >>> slo_of("ttft_p99=1s,tpot_p99=50ms")
    {'ttft_p99_ms': 1000.0, 'tpot_p99_ms': 50.0}
    >>> slo_of("e2e=2.5s,quantile=0.95")
    {'e2e_ms': 2500.0, 'quantile': 0.95}
    """
    found: dict[str, float] = {}
    names = _statistics()
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (each.strip() for each in word.partition("="))
        field = name if name == QUANTILE else f"{name.removesuffix('_ms')}_ms"
        if not equals:
            raise _wrong(f"expected statistic=duration, found {word[:60]!r}")
        if name != QUANTILE and field not in names:
            known = ", ".join((*(each.removesuffix("_ms") for each in names), QUANTILE))
            raise _wrong(f"unknown statistic {name[:60]!r}", f"one of {known}")
        if field in found:
            raise _wrong(f"{name!r} is given twice", "give it once")
        found[field] = _share(value) if name == QUANTILE else milliseconds(value, FLAG)
    if not found.keys() - {QUANTILE}:
        raise _wrong("names no statistic")
    return found


def milliseconds(text: str, flag: str) -> float:
    """A duration with its unit as milliseconds.

    Args:
        flag: that an error names.

    Raises:
        SilicastError: no unit, an unknown one, or not above zero.

    >>> milliseconds("250us", "--slo"), milliseconds("1.5 s", "--slo")
    (0.25, 1500.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise _wrong(f"expected a duration, found {text[:60]!r}", "for example 50ms", flag)
    number, unit = match.groups()
    factor = MILLISECONDS.get(unit.replace("µ", "u").replace("μ", "u"))
    if factor is None:
        said = f"unit {unit!r} of {text[:60]!r}" if unit else f"{text[:60]!r} has no unit"
        raise _wrong(said, f"one of {', '.join(MILLISECONDS)}", flag)
    found = float(number) * factor
    if not 0.0 < found < math.inf:
        raise _wrong(f"{text[:60]!r} is not above zero", "for example 50ms", flag)
    return found


def _statistics() -> list[str]:
    """Fields of the scenario's table that hold milliseconds."""
    from silicast.scenario.workloads import SloTable

    return [name for name in SloTable.__struct_fields__ if name.endswith("_ms")]


def _share(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 < found <= 1.0:
        raise _wrong(f"quantile = {text[:60]!r} is not above 0 and at most 1", "for example 0.99")
    return found


def _wrong(message: str, hint: str = EXAMPLE, flag: str = FLAG) -> SilicastError:
    return SilicastError(message, field=flag, hint=hint)
