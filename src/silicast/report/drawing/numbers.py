"""Numbers as people read them: three significant digits, the unit that suits the size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, final

from msgspec.structs import asdict

from silicast.core.metrics import words_and_unit
from silicast.scenario.answer import Belief

_TIME_TO_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LONG_STEPS = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"))
"""From how many seconds on a time is told in so many."""

DIGITS = 3
MOST_DIGITS = 1e15
"""From here on a number is written as a power of ten: a float does not know its last digits."""
MOST_TOLD = 15
"""Significant digits that a float has."""


def whole(value: float) -> str:
    """A count, with all of its digits as far as they are known.

    >>> whole(12345.0), whole(2.5e30)
    ('12,345', '2.50e+30')
    """
    return f"{value:,.0f}" if abs(value) < MOST_DIGITS else f"{value:.2e}"


def rounded(value: float, digits: int = DIGITS) -> str:
    """So many significant digits; whole numbers where all of these are before the point.

    >>> [rounded(x) for x in (0.012345, 1.0, 12.345, 123.45, 12345.6, 0.0, 1e30)]
    ['0.0123', '1.00', '12.3', '123', '12,346', '0', '1.00e+30']
    >>> rounded(20.013, 5), rounded(12345.67, 6), rounded(12345.6, 4)
    ('20.013', '12,345.7', '12,346')
    """
    if value == 0.0:
        return "0"
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = digits - 1 - math.floor(math.log10(size))
    return f"{value:,.{decimals}f}" if decimals > 0 else whole(value)


def scaled_time(seconds: float) -> tuple[float, str]:
    """The factor and unit in which a duration reads best.

    >>> scaled_time(0.0042)
    (1000.0, 'ms')
    """
    for least, size, unit in _LONG_STEPS:
        if abs(seconds) >= least:
            return 1.0 / size, unit
    for size, unit in _TIME_STEPS:
        if abs(seconds) >= size:
            return 1.0 / size, unit
    return 1e9, "ns"


def duration(seconds: float, digits: int = DIGITS) -> str:
    """A duration with its unit.

    >>> duration(0.0042), duration(90.0), duration(0.0), duration(5400.0), duration(1e6)
    ('4.20 ms', '90.0 s', '0 s', '90.0 min', '11.6 days')
    """
    if seconds == 0.0:
        return "0 s"
    factor, unit = scaled_time(seconds)
    return f"{rounded(seconds * factor, digits)} {unit}"


def against(seconds: float, limit_s: float) -> tuple[str, str]:
    """Two durations, with as many digits as tell them apart.

    >>> against(0.0200049, 0.02), against(1.2, 1.0)
    (('20.005 ms', '20.000 ms'), ('1.20 s', '1.00 s'))
    >>> against(0.02, 0.02)
    ('20.0 ms', '20.0 ms')
    """
    digits = DIGITS
    while seconds != limit_s and digits < MOST_TOLD:
        texts = duration(seconds, digits), duration(limit_s, digits)
        if texts[0] != texts[1]:
            return texts
        digits += 1
    return duration(seconds), duration(limit_s)


def quantity(value: float, unit: str) -> str:
    """A large amount with its unit, in steps of a thousand.

    >>> quantity(1.5e12, "B"), quantity(320.0, "B")
    ('1.50 TB', '320 B')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{rounded(value / size)} {prefix}{unit if len(unit) == 1 else ' ' + unit}"
    return f"{rounded(value)} {unit}"


def bytes_text(size: int) -> str:
    """A size in the unit in which it is shortest.

    >>> bytes_text(512), bytes_text(1 << 20), bytes_text(256_000_000), bytes_text(1536)
    ('512 B', '1 MiB', '256 MB', '1.5 KiB')
    """
    units = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "kB": 1000}
    texts = [f"{size / unit:.4g} {name}" for name, unit in units.items() if size >= unit]
    return min(texts, key=len, default=f"{size} B")


def percent(share: float) -> str:
    """A share as a percentage without needless digits.

    >>> percent(0.4567), percent(0.0123)
    ('46 %', '1.2 %')
    """
    value = share * 100.0
    return f"{value:.0f} %" if abs(value) >= 9.5 or value == 0 else f"{value:.1f} %"


def with_interval(
    quantity: Mapping[str, float], text: Callable[[float], str] = rounded, unit: str = ""
) -> str:
    """An estimate with its unit, and its interval where it has one.

    >>> with_interval({"estimate": 2.0, "p05": 1.5, "p95": 3.0}, unit=" s")
    '2.00 s (90 %: 1.50 to 3.00)'
    >>> with_interval({"estimate": 2.0, "p05": 2.0, "p95": 2.0})
    '2.00'
    """
    middle, low, high = (text(quantity[name]) for name in ("estimate", "p05", "p95"))
    return f"{middle}{unit}" if low == high else f"{middle}{unit} (90 %: {low} to {high})"


@final
class Shown:
    """A metric's three numbers in one unit, as text.

    Args:
        quantity: a belief, the same as a table, or a number that is exact.

    Attributes:
        label: the metric in words; unit: what the numbers are in.
        estimate, p05, p95: rounded numbers without unit.
    """

    def __init__(self, name: str, quantity: Mapping[str, Any] | Belief | float) -> None:
        if isinstance(quantity, Belief):
            quantity = asdict(quantity)
        elif not isinstance(quantity, Mapping):
            quantity = dict.fromkeys(("estimate", "p05", "p95"), quantity)
        self.label, unit = words_and_unit(name)
        factor = 1.0
        estimate = float(quantity["estimate"])
        if unit in _TIME_TO_SECONDS:
            base = _TIME_TO_SECONDS[unit]
            factor, unit = scaled_time(estimate * base)
            factor *= base
        self.unit = unit
        self.estimate = rounded(estimate * factor)
        self.p05 = rounded(float(quantity["p05"]) * factor)
        self.p95 = rounded(float(quantity["p95"]) * factor)
        self.exact = quantity["p05"] == quantity["p95"]

    @property
    def value(self) -> str:
        """The estimate with its unit.

        >>> Shown("prefill_ms", {"estimate": 1234.0, "p05": 1000.0, "p95": 1500.0}).value
        '1.23 s'
        """
        return f"{self.estimate} {self.unit}".strip()

    @property
    def interval(self) -> str:
        """The 90 % interval in the estimate's unit, or "exact"."""
        return "exact" if self.exact else f"{self.p05} – {self.p95}"

    @property
    def cell(self) -> str:
        """The interval in a table; "" where both ends are printed as one number.

        >>> Shown("tpot_ms", {"estimate": 2.0, "p05": 1.9999, "p95": 2.0001}).cell
        ''
        """
        return "" if self.p05 == self.p95 else self.interval
