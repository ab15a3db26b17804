"""What one replica is like at each load: the share of its requests that break each limit.

A few simulations at steady rates say it; between them it is interpolated. A machine that is slower
by a factor is at rate r what the predicted one is at r times the factor, with all times longer by
it: so one curve holds for every pace.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.serving.capacity.objective import LatencyObjective
from silicast.serving.statistics.metrics import QUANTILES


@final
@dataclass(frozen=True)
class RequestLimit:
    """What a share of the requests may take at most.

    Attributes:
        latency: ``ttft``, ``tpot`` or ``e2e``; ``quantile``: share that must keep it.
    """

    latency: str
    limit_ms: float
    quantile: float

    @property
    def waits(self) -> bool:
        """Whether a wait before the engine adds to it."""
        return self.latency != "tpot"


def request_limits(objective: LatencyObjective) -> tuple[RequestLimit, ...]:
    """The limits of an objective, each as one on a share of the requests.

    Raises:
        SilicastError: a limit on a mean, which no share of requests stands for, or none at all.

    >>> [each.quantile for each in request_limits(
    ...     LatencyObjective({"ttft_p90_ms": 500.0}, {"tpot": 20.0}))]
    [0.9, 0.99]
    """
    limits = []
    for name, limit in objective.named.items():
        latency, statistic, _ = name.split("_")
        if statistic not in QUANTILES or latency == "itl":
            raise SilicastError(
                "a fleet in time is judged by the share of late requests",
                field=f"workload.slo.{name}",
                hint="limits on quantiles of ttft, tpot or e2e, such as ttft_p99_ms",
            )
        limits.append(RequestLimit(latency, limit, QUANTILES[statistic]))
    for latency, limit in objective.each.items():
        if latency == "itl":
            raise SilicastError(
                "a fleet in time is judged by the share of late requests",
                field="workload.slo.itl_ms",
                hint="tpot_ms",
            )
        limits.append(RequestLimit(latency, limit, objective.quantile))
    if not limits:
        raise SilicastError("limits nothing", field="workload.slo", hint="ttft_p99_ms = 1000")
    return tuple(limits)


@final
@dataclass(frozen=True)
class LoadPoint:
    """One replica at a steady rate.

    Attributes:
        rate_per_s: requests that arrive.
        taken_ms: latency -> what each request took; ``tpot`` of those with two tokens and more.
        in_flight: requests that are not answered, on average; kv_share: of the cache in use.
    """

    rate_per_s: float
    taken_ms: Mapping[str, F64]
    in_flight: float
    kv_share: float

    def spare_ms(self, limits: Sequence[RequestLimit], factors: Sequence[float]) -> list[F64]:
        """What requests may wait until they are beyond each limit, and beyond any; sorted.

        Args:
            factors: by which what is limited takes longer.
        """
        spare = []
        for limit, factor in zip(limits, factors, strict=True):
            left = limit.limit_ms - self.taken_ms[limit.latency] * factor
            spare.append(left if limit.waits else np.where(left < 0.0, -math.inf, math.inf))
        longest = max(len(times) for times in spare)
        alike = [times for times in spare if len(times) == longest]
        return [np.sort(times) for times in (*spare, np.min(alike, axis=0))]

    def late(self, limits: Sequence[RequestLimit], factors: Sequence[float]) -> F64:
        """Share of requests beyond each limit, and beyond any of them."""
        spare = self.spare_ms(limits, factors)
        late = [float(np.mean(times < 0.0)) if len(times) else 0.0 for times in spare]
        return np.array([*late[:-1], max(late)])


def risen(values: F64, weights: F64) -> F64:
    """The nearest values that never fall (pool adjacent violators, weighted least squares).

    >>> risen(np.array([1.0, 4.0, 2.0, 5.0]), np.array([1.0, 1.0, 3.0, 1.0])).tolist()
    [1.0, 2.5, 2.5, 5.0]
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, size, length = blocks.pop()
            mean = (before * size + mean * total) / (size + total)
            total, count = total + size, count + length
        blocks.append((mean, total, count))
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


@final
class ReplicaCurve:
    """One replica from no load to its most.

    Args:
        points: by rate, the first nearly idle.
        most_per_s: that steps of the largest batch answer.
        limits: that requests are to keep.
        slower: factor by which all steps take longer than predicted; beyond: latency -> factor by
            which what is observed takes longer than its steps.

    Attributes:
        carried_per_s: the highest rate at which every limit is kept by its share of the requests;
            0 = none.
    """

    def __init__(
        self,
        points: Sequence[LoadPoint],
        most_per_s: float,
        limits: Sequence[RequestLimit],
        slower: float = 1.0,
        beyond: Mapping[str, float] | None = None,
    ) -> None:
        self.points, self.limits = tuple(points), tuple(limits)
        self._most, self._slower = most_per_s, slower
        self._factors = [slower * (beyond or {}).get(limit.latency, 1.0) for limit in limits]
        self.most_per_s = most_per_s / slower
        self._rates = [0.0, *(point.rate_per_s / slower for point in self.points)]
        rows = np.array([point.late(self.limits, self._factors) for point in self.points])
        counts = np.array([float(len(point.taken_ms["ttft"])) for point in self.points])
        rising = np.stack([risen(column, counts) for column in rows.T], axis=1)
        self._late = np.concatenate((rising[:1], rising))
        flights = [0.0, *(point.in_flight for point in self.points)]
        self._flights = np.maximum.accumulate(flights).tolist()
        self._kv = np.maximum.accumulate([0.0, *(e.kv_share for e in self.points)]).tolist()
        self.allowed = np.array([1.0 - limit.quantile + 1e-9 for limit in self.limits])
        self.carried_per_s = min(self._carried(), self.most_per_s)

    def at_pace(self, slower: float, beyond: Mapping[str, float]) -> ReplicaCurve:
        """The same replica on a machine that is slower than predicted."""
        return ReplicaCurve(self.points, self._most, self.limits, slower, beyond)

    def late(self, rate_per_s: float) -> F64:
        """Share of requests beyond each limit, and beyond any of them."""
        left, share = self._between(rate_per_s)
        late: F64 = self._late[left] * (1.0 - share) + self._late[left + 1] * share
        return late

    def late_behind(self, prompts_s: F64, work_s: F64) -> F64:
        """Share of requests beyond each limit that come behind others, and beyond any of them.

        A request waits for the prompts ahead of it in a replica that has room, and beside it runs
        what is not done; once that is more than a replica has at a time, it waits for room.

        Args:
            prompts_s: time that prompts ahead of each take; work_s: the same of all their work.
        """
        if not work_s.any():
            return np.zeros(len(self.limits) + 1)
        ahead = work_s * self.most_per_s
        waits_s = np.maximum(ahead - self._flights[-1], 0.0) / self.most_per_s
        beside = np.interp(ahead, self._flights, np.arange(len(self._flights)))
        late = []
        for column, (idle, full) in enumerate(zip(*self._spare_ms, strict=True)):
            shares = np.interp(beside, np.arange(len(self._late)), self._late[:, column])
            for spare, waited in ((idle, prompts_s), (full, waits_s)):
                late_ones = np.searchsorted(spare, waited * 1e3) / max(len(spare), 1)
                shares = np.maximum(shares, np.where(waited > 0.0, late_ones, 0.0))
            late.append(float(shares.mean()))
        return np.array(late)

    @cached_property
    def _spare_ms(self) -> tuple[list[F64], list[F64]]:
        """What requests may wait until they are late, nearly idle and at most: sorted."""
        both = [p.spare_ms(self.limits, self._factors) for p in (self.points[0], self.points[-1])]
        return both[0], both[1]

    def in_flight(self, rate_per_s: float) -> float:
        """Requests that are not answered, on average."""
        return self._mix(self._flights, rate_per_s)

    def kv_share(self, rate_per_s: float) -> float:
        """Share of the cache in use."""
        return self._mix(self._kv, rate_per_s)

    def _mix(self, values: Sequence[float], rate_per_s: float) -> float:
        left, share = self._between(rate_per_s)
        return values[left] * (1.0 - share) + values[left + 1] * share

    def _between(self, rate_per_s: float) -> tuple[int, float]:
        """The point on the left, and how far the rate is from it to the next."""
        rates = self._rates
        if rate_per_s >= rates[-1]:
            return len(rates) - 2, 1.0
        left = bisect_right(rates, rate_per_s) - 1
        return left, (rate_per_s - rates[left]) / (rates[left + 1] - rates[left])

    def _carried(self) -> float:
        """Where the first limit is broken by more requests than may."""
        over = [bool((row > self.allowed).any()) for row in self._late[:, :-1]]
        if over[0]:
            return 0.0
        if True not in over:
            return self.most_per_s
        right = over.index(True)
        low, high = self._late[right - 1, :-1], self._late[right, :-1]
        grown = np.maximum(high - low, 1e-12)
        shares = np.where(high > self.allowed, (self.allowed - low) / grown, 1.0)
        rates = self._rates
        return rates[right - 1] + float(shares.min()) * (rates[right] - rates[right - 1])
