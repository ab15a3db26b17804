"""The flag ``--slo``: an objective in one word, such as ``ttft_p99=1s,tpot_p99=50ms``."""

from __future__ import annotations

import math

from silicast.core.errors import SilicastError
from silicast.core.plain_data import shown

FLAG = "--slo"
EXAMPLE = "for example ttft_p99=1s,tpot_p99=50ms"
QUANTILE = "quantile"


def slo_of(text: object) -> dict[str, float]:
    """The fields of a scenario's ``slo`` table.

    Args:
        text: ``statistic=duration`` words with commas between; a statistic is ``ttft``, ``tpot``,
            ``itl`` or ``e2e``, alone (it holds for ``quantile`` of the requests) or with one of
            ``_mean``, ``_p50``, ``_p90``, ``_p95``, ``_p99``; ``quantile=0.95`` is a word as well.

    Raises:
        SilicastError: a word is none of these, or stands twice.

    >>> slo_of("ttft_p99=1s,tpot_p99_ms=50")
    {'ttft_p99_ms': 1000.0, 'tpot_p99_ms': 50.0}
    >>> slo_of("e2e=2.5s,quantile=0.95")
    {'e2e_ms': 2500.0, 'quantile': 0.95}
    """
    from silicast.scenario.reading.numbers import milliseconds

    if not isinstance(text, str):  # Python's callers may give anything
        raise _wrong(f"expected a text, found {shown(text)}")
    slo: dict[str, float] = {}
    names = _statistics()
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (each.strip() for each in word.partition("="))
        field = name if name == QUANTILE else f"{name.removesuffix('_ms')}_ms"
        if not equals:
            raise _wrong(f"expected statistic=duration, found {word[:60]!r}")
        if name != QUANTILE and field not in names:
            statistics = ", ".join((*(each.removesuffix("_ms") for each in names), QUANTILE))
            raise _wrong(f"unknown statistic {name[:60]!r}", f"one of {statistics}")
        if field in slo:
            raise _wrong(f"{name!r} is given twice", "give it once")
        unit = "ms" if name.endswith("_ms") and value[-1:].isdigit() else ""
        slo[field] = _share(value) if name == QUANTILE else milliseconds(value + unit, FLAG)
    if all(name == QUANTILE for name in slo):
        raise _wrong("names no statistic")
    return slo


def _statistics() -> list[str]:
    """Fields of the scenario's table that hold milliseconds."""
    from silicast.scenario.workloads import SloTable

    return [name for name in SloTable.__struct_fields__ if name.endswith("_ms")]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise _wrong(f"quantile = {text[:60]!r} is not above 0 and at most 1", "for example 0.99")
    return share


def _wrong(message: str, hint: str = EXAMPLE) -> SilicastError:
    return SilicastError(message, field=FLAG, hint=hint)
