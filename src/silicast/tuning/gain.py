"""A configured product's time by cause, and what a faster configuration would save.

The best configuration of a grid is never slower than what ran. A gain's log is believed to be
exponential before a kernel is looked at, with the mean that defaults of swept devices had; what is
seen of it, the log of measured over predicted best time, is off by a normal error. On a device that
was not swept most of that error is shared by kernels alike: measured times that would beat the
predicted best give it away (:func:`shared_error`). Where all of them are slower than that, either
the predictions are too quick or the file holds slow kernels alone: a belief holds both.

>>> gain_belief(0.2, 0.01, 0.1).middle > gain_belief(0.2, 0.1, 0.1).middle
True

Causes are microseconds that add up to the time. The model is evaluated with one effect after
another, from useful work at peak rates on; what each adds is its share. What is left between the
model and a measurement is not explained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import final

from silicast.core.prediction import Z90
from silicast.kernels.products.tile_times import TileTimes

NORMAL = NormalDist()
FARTHEST = 4.0
"""Shared errors are looked for within so many of their standard deviations."""
PLACES = 161
SMALLEST = 1e-12
STRANGERS, STRANGE = 0.1, 2.0
"""Judged: the share of a group's kernels that are not like the others, such as those whose operands
a large cache kept, and the range of logs that they may be off by."""
NONE = math.log(1.01)
"""Measurements of one kernel differ by as much."""


def normal_cdf(z: float) -> float:
    """The standard normal distribution, exact to rounding far below zero too, where 1 + erf is not.

    >>> f"{normal_cdf(-10.0):.4e}"
    '7.6199e-24'
    """
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@final
@dataclass(frozen=True, slots=True)
class GainBelief:
    """A normal belief of a gain's log, cut off below zero.

    Attributes:
        mean, sd: of the normal before it is cut.
        seen: the log of measured over predicted best time alone.
    """

    mean: float
    sd: float
    seen: float

    @property
    def _uncut(self) -> float:
        """The share of the normal that lies above zero."""
        return normal_cdf(self.mean / self.sd)

    def quantile(self, share: float) -> float:
        """The log that a share of the belief lies below.

        >>> GainBelief(-5.0, 0.1, 0.0).quantile(0.5) >= 0.0
        True
        """
        above = self._uncut * (1.0 - share)
        if above < SMALLEST:  # far below zero: exponential there
            rate = -self.mean / (self.sd * self.sd)
            return max(-math.log1p(-share) / rate, 0.0)
        return max(self.mean - self.sd * NORMAL.inv_cdf(above), 0.0)

    @property
    def middle(self) -> float:
        return self.quantile(0.5)

    @property
    def ends(self) -> tuple[float, float]:
        """The 90 % interval of the log: from no gain at all where less than :data:`NONE` is likely
        enough, to what the measured time allows without any belief beforehand: a few gains are far
        above the usual ones.
        """
        low = self.quantile(0.05)
        high = max(self.quantile(0.95), self.seen + Z90 * self.sd)
        return (low if low >= NONE else 0.0), high

    def chance(self, log: float) -> float:
        """That the gain's log exceeds one that is not negative.

        >>> round(GainBelief(0.1, 0.05, 0.1).chance(0.0), 6)
        1.0
        """
        above = normal_cdf((self.mean - log) / self.sd)
        total = self._uncut
        if total < SMALLEST:
            return math.exp(self.mean / (self.sd * self.sd) * log)
        return min(above / total, 1.0)


def gain_belief(log: float, sd: float, usual: float) -> GainBelief:
    """What is believed of a gain.

    Args:
        log: of measured over predicted best time; sd: of the error of that.
        usual: mean log of gains before anything is measured.
    """
    return GainBelief(log - sd * sd / usual, sd, log)


def shared_error(
    logs: Sequence[float], shared_sd: float, own_sd: float, usual: float
) -> tuple[float, float]:
    """What predicted best times of a group of kernels are all off by: mean and sd of its log, above
    zero where predictions are too slow.

    Args:
        logs: of measured over predicted best times.
        shared_sd: of the shared error beforehand; own_sd: of each kernel's own.
        usual: mean log of gains.

    >>> error, _ = shared_error([-0.1, -0.09, 0.02, -0.1], 0.1, 0.03, 0.1)
    >>> error > 0.08
    True
    >>> error, sd = shared_error([0.3, 0.31, 0.33, 0.4] * 10, 0.1, 0.03, 0.1)
    >>> -0.2 < error < 0.0 and sd > 0.1
    True
    >>> shared_error([], 0.1, 0.03, 0.1)[1] > 0.09
    True
    """
    step = 2.0 * FARTHEST * shared_sd / (PLACES - 1)
    indices = [step * (index - PLACES // 2) for index in range(PLACES)]
    scores = [
        -0.5 * (error / shared_sd) ** 2 + sum(_log_density(x + error, own_sd, usual) for x in logs)
        for error in indices
    ]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    mean = math.fsum(w * x for w, x in zip(weights, indices, strict=True)) / total
    spread = math.fsum(w * (x - mean) ** 2 for w, x in zip(weights, indices, strict=True)) / total
    if mean >= 0.0:
        return mean, math.sqrt(spread)
    share = predictions_share(shared_sd, usual)
    return mean * share, math.sqrt(spread + mean * mean * share * (1.0 - share))


def predictions_share(shared_sd: float, usual: float) -> float:
    """Of how much slower than predicted the quickest kernels of a group are, what predictions are
    expected to account for; the rest is that all its kernels are slow. Nothing in their times tells
    the two apart (an exponential has no memory), so that each counts by its variance: what
    predictions share beforehand, and what kernels usually lose.

    >>> predictions_share(0.1, 0.1)
    0.5
    """
    return shared_sd * shared_sd / (shared_sd * shared_sd + usual * usual)


def _log_density(value: float, sd: float, usual: float) -> float:
    """Of a sum of an exponential gain and a normal error; few kernels are off by anything."""
    below = normal_cdf(value / sd - sd / usual)
    alike = math.exp(0.5 * (sd / usual) ** 2 - value / usual) * below / usual
    return math.log((1.0 - STRANGERS) * alike + STRANGERS / STRANGE)


CAUSES: Mapping[str, str] = {
    "work": "useful work at peak rates",
    "padding": "rows and columns of tiles that hold nothing",
    "memory": "bytes fetched again, and memory's own efficiency",
    "pipelining": "operands and issue between matrix instructions",
    "occupancy": "waits that too few blocks of a core hide",
    "waves": "uneven rounds of blocks: the last one is part empty",
    "overlap": "resources that do not quite overlap",
    "launch": "start and end of the kernel",
    "learned": "what sweeps taught beyond that",
    "unexplained": "the rest of the measurement",
}
"""Every cause, in words, in the order of the model."""


def product_causes(times: TileTimes, index: int, time_s: float) -> dict[str, float]:
    """Seconds of each cause of one product, which add up to ``time_s``.

    Args:
        times: of configurations; place: of the one that ran.
        time_s: predicted for it, corrections included.
    """
    table: dict[str, float] = {}
    reached = 0.0
    for name, level in _levels(times, index):
        table[name] = max(level - reached, 0.0)
        reached = max(level, reached)
    table["launch"] = times.launch_s
    table["overlap"] = max(float(times.time_s[index]) - times.launch_s - reached, 0.0)
    total = sum(table.values())
    table["learned"] = time_s - total
    return {name: table[name] for name in CAUSES if name in table}


def _levels(times: TileTimes, index: int) -> Iterator[tuple[str, float]]:
    """Times with one effect more each, seconds."""
    multiply = float(times.ideal_multiply_s[index])
    memory = float(times.ideal_memory_s[index])
    yield "work", max(multiply, memory)
    padded = multiply * float(times.padded_rows[index]) * float(times.padded_columns[index])
    yield "padding", max(padded, memory)
    yield "memory", max(padded, float(times.memory_s[index]), float(times.l2_s[index]))
    yield "pipelining", float(times.multiply_s[index])
    yield "occupancy", float(times.even_s[index])
    yield "waves", float(times.core_s[index])


def summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Causes of several products together.

    >>> summed([{"work": 1.0}, {"work": 2.0, "launch": 0.5}])
    {'work': 3.0, 'launch': 0.5}
    """
    return {
        name: sum(part.get(name, 0.0) for part in parts)
        for name in CAUSES
        if any(name in part for part in parts)
    }
