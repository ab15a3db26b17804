"""A service-level objective: what a statistic may be at most, and whether a run keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.serving.statistics.metrics import LATENCIES, QUANTILES, statistics_ms
from silicast.serving.statistics.records import Gaps, Records
from silicast.serving.statistics.steady import GROWTH, MOST_CUT, queue_growth

MILLI = 1e-6
"""Milliseconds of a nanosecond."""
ODDS = 4.0
"""An e-fold of the odds of a late request counts as a fourth of one of a latency: near its limit a
tail thins out about so much faster than its quantile grows.
"""


@final
@dataclass(frozen=True)
class LatencyObjective:
    """Limits in milliseconds.

    Attributes:
        named: statistic ("ttft_p99_ms") -> what it may be at most.
        each: ``ttft``, ``tpot``, ``e2e`` -> what a request may take; ``quantile`` of the requests
            keep all of them. ``itl`` is a quantile of the gaps.
        growth: how much longer requests may wait, per second, in the later part of an open run:
            more than that and the queue only grows.
    """

    named: Mapping[str, float]
    each: Mapping[str, float]
    quantile: float = 0.99
    growth: float = GROWTH

    @staticmethod
    def from_fields(fields: Mapping[str, float | None]) -> LatencyObjective:
        """From the fields of a scenario's ``slo``.

        >>> LatencyObjective.from_fields({"ttft_ms": 100.0, "tpot_p99_ms": 20.0,
        ...     "quantile": 0.9}).each
        {'ttft': 100.0}
        """
        limits = {name: value for name, value in fields.items() if value is not None}
        quantile = limits.pop("quantile", 0.99)
        each = {n.removesuffix("_ms"): v for n, v in limits.items() if n.count("_") == 1}
        named = {n: v for n, v in limits.items() if n.count("_") > 1}
        return LatencyObjective(named, each, quantile)

    def divided(self, factors: Mapping[str, float]) -> LatencyObjective:
        """With limits so many times as strict; ``factors`` by the names of :meth:`values`.

        >>> LatencyObjective({"ttft_p99_ms": 100.0}, {}).divided({"ttft_p99_ms": 2.0}).named
        {'ttft_p99_ms': 50.0}
        """
        named = {name: limit / factors.get(name, 1.0) for name, limit in self.named.items()}
        each = {name: limit / factors.get(f"{name}_ms", 1.0) for name, limit in self.each.items()}
        return replace(self, named=named, each=each)

    @property
    def limits_anything(self) -> bool:
        return bool(self.named or self.each)

    @property
    def highest_quantile(self) -> float:
        """The highest quantile that it limits; 0 where it limits means alone.

        >>> LatencyObjective({"ttft_p90_ms": 1.0, "tpot_mean_ms": 1.0}, {}).highest_quantile
        0.9
        """
        statistics = [name.split("_")[1] for name in self.named]
        each = [self.quantile] if self.each else []
        return max((*each, *(QUANTILES.get(name, 0.0) for name in statistics)), default=0.0)

    def idle(self) -> dict[str, str]:
        """Limits that say nothing, each with a stricter one: on a higher quantile of the same
        latency, or on the whole request where it limits the first token.

        >>> LatencyObjective({"ttft_p50_ms": 300.0, "ttft_p99_ms": 100.0}, {"e2e": 50.0}).idle()
        {'ttft_p50_ms': 'ttft_p99_ms', 'ttft_p99_ms': 'e2e_ms'}
        """
        limits = {name: (name.split("_")[0], *self._at_rank(name)) for name in self.named}
        limits |= {f"{name}_ms": (name, self.quantile, limit) for name, limit in self.each.items()}
        idle: dict[str, str] = {}
        for name, (latency, rank, limit) in limits.items():
            for other, (whole, higher, stricter) in limits.items():
                alike = whole == latency or (latency, whole) == ("ttft", "e2e")
                comparable = higher >= rank if rank and higher else rank == higher
                implied = other != name and alike and comparable and stricter <= limit
                if implied and idle.get(other) != name:  # of two alike one says something
                    idle.setdefault(name, other)
        return idle

    def _at_rank(self, name: str) -> tuple[float, float]:
        """The quantile of a named limit, 0 of a mean, and the limit."""
        return QUANTILES.get(name.split("_")[1], 0.0), self.named[name]

    def values(self, *runs: Records) -> dict[str, float]:
        """The statistics that it limits, as they are, of ``each`` the quantile: over the requests
        of all runs of one traffic.
        """
        result = statistics_ms(*runs)
        values = {name: result[name] for name in self.named if name in result}
        for name in self.each:
            if name == "itl":
                gaps, counts = Gaps.union([records.gaps for records in runs]).table()
                if len(gaps):
                    rank = self.quantile * (int(counts.sum()) - 1) + 1
                    values["itl_ms"] = float(gaps[np.searchsorted(np.cumsum(counts), rank)]) * MILLI
            elif len(taken := np.concatenate([_taken_ms(each, name) for each in runs])):
                values[f"{name}_ms"] = float(np.quantile(taken, self.quantile))
        return values

    def limit(self, name: str) -> float:
        """What a statistic of :meth:`values` may be."""
        return self.named[name] if name in self.named else self.each[name.removesuffix("_ms")]

    def broken(self, *runs: Records) -> dict[str, float]:
        """Statistics above their limits; "queue" where it only grows; empty = it is met.

        Args:
            runs: of one traffic, taken together.
        """
        values = self.values(*runs)
        over = {name: value for name, value in values.items() if value > self.limit(name)}
        late = sum(self._late(each, each.end_ns) for each in runs)
        if not over and late > sum(self._allowed(each.measured) for each in runs):
            over = {name: values[name] for name in values if name not in self.named}
        if not over and not runs[0].requests.concurrency:
            grown = fmean(queue_growth(each) for each in runs)
            if grown > self.growth:
                over["queue"] = grown
        return over

    def excess(self, records: Records) -> dict[str, float]:
        """By how much a run exceeds each limit; below zero a limit is kept.

        Of a quantile, of late requests likewise: the odds of a request that is later, over those
        allowed, as a logarithm in parts of :data:`ODDS`. It has the sign of quantile less limit,
        but where just as many are late as may be, and grows evenly with the load also where
        latencies are of few kinds, as with so many prompts between the tokens of an answer, and a
        quantile leaps from one to the next. Of means and gaps: the logarithm of value over limit.
        "queue" is its growth over that allowed, less one; clients have none.
        """
        values = self.values(records)
        excess: dict[str, float] = {}
        for name, value in values.items():
            latency, statistic = (*name.removesuffix("_ms").split("_"), "")[:2]
            limit = self.limit(name)
            if statistic in QUANTILES and latency in LATENCIES:
                over = LATENCIES[latency](records) > limit * 1e-3
                excess[name] = _odds(int(over.sum()), len(over), QUANTILES[statistic])
            elif name in self.named or name == "itl_ms":
                excess[name] = math.log(max(value, 1e-9) / limit)
        if self.each:
            late = self._late(records, records.end_ns)
            excess["late"] = _odds(late, int(records.measured.sum()), self.quantile)
        if not records.requests.concurrency:
            excess["queue"] = queue_growth(records) / self.growth - 1.0
        return excess

    def hopeless(self, records: Records, now_ns: int) -> bool:
        """Whether a run that is not over will break it for certain."""
        count = len(records.requests)
        unmeasured = 2 * int(count * MOST_CUT) if records.requests.steady else 0
        if self._late(records, now_ns) > self._allowed(records.measured) + unmeasured:
            return True
        for name, limit in self.named.items():
            latency, statistic, _ = name.split("_")
            if latency not in ("ttft", "e2e"):
                continue
            so_far = _so_far_ms(records, latency, now_ns)
            if statistic == "mean":
                if float(np.sort(so_far)[: count - unmeasured].sum()) > limit * count:
                    return True
            elif int((so_far > limit).sum()) >= unmeasured + count - math.floor(
                QUANTILES[statistic] * (count - 1)
            ):
                return True
        return False

    def _allowed(self, measured: NDArray[np.bool_]) -> float:
        return (1.0 - self.quantile) * int(measured.sum()) + 1e-9

    def _late(self, records: Records, now_ns: int) -> int:
        """Requests that have broken a limit of ``each``, those under way included."""
        late = np.zeros(len(records.requests), dtype=bool)
        for name, limit in self.each.items():
            if name in ("ttft", "e2e"):
                late |= _so_far_ms(records, name, now_ns) > limit
            elif name == "tpot":
                late[records.finished] |= _each_tpot_ms(records) > limit
        return int((late & records.measured).sum())


def _odds(late: int, count: int, quantile: float) -> float:
    """Of so many late requests of ``count``, in parts of :data:`ODDS`; half a request more of each
    kind, so that none is no infinity.

    >>> round(_odds(20, 1000, 0.99), 3), _odds(10, 1000, 0.99) > 0.0 > _odds(9, 1000, 0.99)
    (0.182, True)
    """
    odds = (late + 0.5) / (count - late + 0.5)
    return math.log(odds * quantile / (1.0 - quantile)) / ODDS


def _so_far_ms(records: Records, latency: str, now_ns: int) -> F64:
    """How long each request took, or has taken; 0 of those not sent."""
    ends = records.first_ns if latency == "ttft" else records.done_ns
    sent: I64 = records.sent_ns
    until = np.where(ends >= 0, ends, now_ns)
    so_far_ms: F64 = np.where(sent >= 0, np.maximum(until - sent, 0), 0) * MILLI
    return so_far_ms


def _each_tpot_ms(records: Records) -> F64:
    """Time per further token of each finished request; 0 of those with one token."""
    rows = records.finished
    tokens = np.maximum(records.requests.output_tokens[rows] - 1, 1)
    tpot_ms: F64 = (records.done_ns[rows] - records.first_ns[rows]) * MILLI / tokens
    return tpot_ms


def _taken_ms(records: Records, latency: str) -> F64:
    if latency == "tpot":
        return _each_tpot_ms(records)
    return _so_far_ms(records, latency, records.end_ns)[records.finished]
