"""The slowest of many devices, messages or ranks that are not all alike.

Whoever waits for n of them waits for the slowest. The time of one relative to the usual one is
lognormal; a small share of them, stragglers, are slower by a factor. The largest of n then has the
distribution function F(x) ** n, whose inverse is tabulated once over the Gumbel variate

    g = -log(-log u),  u uniform,

in which largest values are nearly linear. Means, quantiles and samples come from that table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, exp_fixed, log_fixed

_LEAST, _MOST, _POINTS = -4.0, 36.0, 4001
"""Of the Gumbel variate: beyond lie a share of 1e-23 below and 1e-16 above."""
_HALVINGS = 60


@final
@dataclass(frozen=True)
class Dispersion:
    """How unlike devices, or messages, of one kind are.

    Attributes:
        log_sd: standard deviation of the logarithm of the time that one takes.
        straggler_share: of them that are slower, ``straggler_slowdown`` times.

    >>> round(Dispersion(0.015).slowest(1).mean, 4), round(Dispersion(0.015).slowest(16384).mean, 4)
    (1.0001, 1.0614)
    """

    log_sd: float
    straggler_share: float = 0.0
    straggler_slowdown: float = 1.0

    def __post_init__(self) -> None:
        """Refuses what is no distribution of times."""
        for field, low, high in (
            ("log_sd", 0.0, 1.0),
            ("straggler_share", 0.0, 1.0),
            ("straggler_slowdown", 1.0, 100.0),
        ):
            value = getattr(self, field)
            if not low <= value <= high:
                raise SilicastError(f"is {value}, expected {low:g} to {high:g}", field=field)

    def slowest(self, count: int) -> Slowest:
        """The largest of ``count`` of them.

        Raises:
            SilicastError: there are none.
        """
        if count < 1:
            raise SilicastError(f"is {count}, expected at least 1", field="count")
        return _slowest(self, count)

    def wait_for_slowest(self, count: int) -> float:
        """By which share the slowest of ``count`` takes longer than one of them, in the mean.

        >>> Dispersion(0.015).wait_for_slowest(1), round(Dispersion(0.015).wait_for_slowest(64), 4)
        (0.0, 0.0357)
        """
        if count == 1:
            return 0.0
        return max(self.slowest(count).mean / self.slowest(1).mean - 1.0, 0.0)


@lru_cache(maxsize=256)
def _slowest(spread: Dispersion, count: int) -> Slowest:
    return Slowest(spread, count)


@final
@dataclass(frozen=True)
class Slowest:
    """The slowest of ``count``: its time relative to the usual one, at the usual one 1."""

    spread: Dispersion
    count: int

    @cached_property
    def _table(self) -> tuple[F64, F64]:
        """The Gumbel variate, and the factor at each, both shape (points,)."""
        variate = np.linspace(_LEAST, _MOST, _POINTS)
        share = _wide_exp(-variate) / self.count  # -log(u) / n
        slower = np.where(share < 1e-4, share * (1 - share / 2), 1 - _wide_exp(-share))
        return variate, self.spread_quantile(slower)

    def spread_quantile(self, slower: F64) -> F64:
        """The time that a share ``slower`` of single ones exceeds, any shape."""
        spread = self.spread
        extra = math.log(spread.straggler_slowdown)
        low = np.full_like(slower, -12.0 * spread.log_sd)
        high = np.full_like(slower, 12.0 * spread.log_sd + extra)
        if spread.log_sd == 0.0:
            return np.where(slower < spread.straggler_share, spread.straggler_slowdown, 1.0)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            above = (1 - spread.straggler_share) * upper_tail(middle / spread.log_sd)
            if spread.straggler_share:
                above += spread.straggler_share * upper_tail((middle - extra) / spread.log_sd)
            beyond = above > slower
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return exp_fixed(0.5 * (low + high))

    @cached_property
    def mean(self) -> float:
        """Its mean, by the trapezoidal rule over the Gumbel variate."""
        variate, factor = self._table
        weight = _wide_exp(-variate - _wide_exp(-variate))
        return float((factor * weight).sum() / weight.sum())

    def quantile(self, share: float) -> float:
        """The time that it stays below with probability ``share``, in (0, 1)."""
        return float(self._at(np.array([share]))[0])

    def sampled(self, shape: tuple[int, ...], random: np.random.Generator) -> F64:
        return self._at(1.0 - random.random(math.prod(shape))).reshape(shape)

    def _at(self, uniform: F64) -> F64:
        near = np.clip(uniform, 1e-300, 1 - 1e-16)
        return np.interp(-log_fixed(-log_fixed(near)), *self._table)

    @property
    def extreme_mean(self) -> float:
        """Its mean by extreme value theory, without stragglers: exp(s b) gamma(1 - s a).

        The largest of n normal variates is nearly b + a g, g a Gumbel variate, with b exceeded by
        one of n and b + a by one of n e (Fisher and Tippett 1928; David and Nagaraja, Order
        Statistics, 2003, section 10.5).
        """
        if self.count == 1:
            return math.exp(self.spread.log_sd**2 / 2)
        single = Slowest(Dispersion(1.0), 1)
        shares = np.array([1.0, 1.0 / math.e]) / self.count
        b, most = log_fixed(single.spread_quantile(shares)).tolist()
        s = self.spread.log_sd
        return math.exp(s * b) * math.gamma(1.0 - s * (most - b))


def upper_tail(z: F64) -> F64:
    """The share of a normal variate beyond z, |z| <= 12; relative error < 1e-8.

    Method: West 2005 after Hart 1968, a rational function to 7.07 and a continued fraction beyond.

    >>> upper_tail(np.array([0.0, 1.959963984540054])).round(12).tolist()
    [0.5, 0.025]
    """
    size = np.abs(z)
    bell = _wide_exp(-0.5 * size * size)
    over, under = np.full_like(size, _OVER[0]), np.full_like(size, _UNDER[0])
    for coefficient in _OVER[1:]:
        over = over * size + coefficient
    for coefficient in _UNDER[1:]:
        under = under * size + coefficient
    chain = size + 0.65
    for number in (4.0, 3.0, 2.0, 1.0):
        chain = size + number / chain
    tail = bell * np.where(size < 7.07106781186547, over / under, 1 / (chain * 2.506628274631))
    return np.where(z > 0, tail, 1.0 - tail)


_OVER = (
    3.52624965998911e-02,
    0.700383064443688,
    6.37396220353165,
    33.912866078383,
    112.079291497871,
    221.213596169931,
    220.206867912376,
)
_UNDER = (
    8.83883476483184e-02,
    1.75566716318264,
    16.064177579207,
    86.7807322029461,
    296.564248779674,
    637.333633378831,
    793.826512519948,
    440.413735824752,
)


def _wide_exp(x: F64) -> F64:
    """e**x for |x| <= 80."""
    fourth = exp_fixed(0.25 * x)
    square = fourth * fourth
    return square * square
