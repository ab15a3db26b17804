"""Statistics at other paces of the steps, from the first requests where these tell enough.

How much slower requests are when steps are slower is known from far fewer of them than how long
they take: the same requests run at both paces, and the error of both cancels. So the first
requests run at the predicted pace and at the other one, and every statistic of the whole run is
moved by the ratio of the two. They are :data:`FIRST` requests, or twice as many again and again, up
to half of all, until they wait and decode as long as all do: a run begins with an empty server, and
the more requests it serves at once, the longer it takes to fill. Where a pace moves the longest
waits by more than :data:`WAITS_CHANGE`, bursts make them, which few requests do not meet: a
:data:`QUARTER` of all runs then. All run again where no number of first requests is served as all
are, or the queue of the whole run only grows; and at one pace where

* the queue of the first ones only grows, or their longest waits move by more than
  :data:`MOST_WAITS_CHANGE`;
* later ones are slowed by more than earlier ones;
* something happens only in some of the runs, such as preemptions.

The largest use of the cache moves as its mean does: of few requests it is one of few moments. The
deepest queue is a whole number of requests, rounded down: asynchronous engines take in two at a
slower pace where they took one, so that it falls where its mean grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np

from silicast.composition.prices.stepper import Pace
from silicast.core.metrics import METRICS
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.steady import keeps_up

FIRST = 400
"""The fewest requests that tell what a pace does to all."""
QUARTER = 4
"""One over the share of all requests that tells what bursts do."""
WAITS, WAITS_CHANGE, MOST_WAITS_CHANGE = "ttft_p99_ms", 0.6, 1.2
"""The longest waits, and by how much they may move, in logs."""
DRIFT = 0.02
"""How far, in logs, thirds of the first requests may be apart in how much they are slowed."""
OFF = {"tpot_mean_ms": 0.05, "ttft_mean_ms": 0.1}
"""How far, in logs, statistics of the first requests may be from those of all."""
PARTS = 3
CHANGES_WITH = {"kv_utilisation_max": "kv_utilisation"}
"""Largest values of a run -> what they move with."""
DEEPEST_QUEUE = "queue_depth_max"

Metrics = Mapping[str, float]


def at_paces(
    records: Records,
    base: Metrics,
    paces: Sequence[Pace],
    metrics_of: Callable[[Records], Metrics],
    again: Callable[[Pace], Records],
    begin: Callable[[Pace, int], Records] | None = None,
) -> list[Metrics]:
    """What the statistics of a run would be at other paces.

    Args:
        records: of the run; ``base``: its statistics.
        again: all of its requests at another pace.
        begin: so many of its first requests at another pace; None = all run again.
    """
    ends: list[Metrics | None] = [None for _ in paces]
    if begin is not None and keeps_up(records):
        beginnings = _Beginnings(len(records.requests), base, metrics_of, begin)
        ends = [beginnings.at(pace) for pace in paces]
    return [
        metrics_of(again(pace)) if end is None else end
        for pace, end in zip(paces, ends, strict=True)
    ]


@final
class _Beginnings:
    """Runs of the first requests, and what they say of all.

    Args:
        requests: all of them; ``base``: statistics of their run.
        begin: so many of the first at a pace.
    """

    def __init__(
        self,
        requests: int,
        base: Metrics,
        metrics_of: Callable[[Records], Metrics],
        begin: Callable[[Pace, int], Records],
    ) -> None:
        self._base, self._metrics_of, self._begin = base, metrics_of, begin
        self._known: dict[int, tuple[Records, Metrics] | None] = {}
        self._quarter = requests // QUARTER
        self._fewest = FIRST
        while 2 * self._fewest <= requests and self._unchanged(self._fewest) is None:
            self._fewest *= 2
        self._tells = 2 * self._fewest <= requests

    def at(self, pace: Pace) -> Metrics | None:
        """Statistics of all requests at a pace; None = the first ones do not tell."""
        if not self._tells:
            return None
        end, waits = self._at_other_pace(pace, self._fewest)
        if end is not None and waits > WAITS_CHANGE and self._fewest < self._quarter:
            end, waits = self._at_other_pace(pace, self._quarter)
        return end if waits <= MOST_WAITS_CHANGE else None

    def _unchanged(self, count: int) -> tuple[Records, Metrics] | None:
        """So many of the first requests at the predicted pace; None = they are served otherwise
        than all are.
        """
        if count not in self._known:
            first = self._begin(Pace(), count)
            unchanged = self._metrics_of(first)
            self._known[count] = (first, unchanged) if _alike(unchanged, self._base) else None
        return self._known[count]

    def _at_other_pace(self, pace: Pace, count: int) -> tuple[Metrics | None, float]:
        """The whole run as so many first requests move, None = they do not tell; and by how much
        the longest waits move, in logs.
        """
        beginning = self._unchanged(count)
        if beginning is None:
            return None, 0.0
        first, unchanged = beginning
        other = self._begin(pace, count)
        if drift(first, other) > DRIFT or not keeps_up(other):
            return None, 0.0
        changed = self._metrics_of(other)
        if changed.keys() != unchanged.keys() or _occur(changed) != _occur(unchanged):
            return None, 0.0
        waits_ms = unchanged.get(WAITS)
        waits = abs(math.log(changed[WAITS] / waits_ms)) if waits_ms else 0.0
        return with_ratios(self._base, unchanged, changed), waits


def with_ratios(base: Metrics, unchanged: Metrics, changed: Metrics) -> dict[str, float]:
    """Statistics times how those of the first requests change, those of :data:`CHANGES_WITH` as
    others; shares of what devices could do stay within 1.

    >>> with_ratios({"tpot_mean_ms": 12.0, "preemptions": 0.0, "mfu": 0.6},
    ...             {"tpot_mean_ms": 10.0, "preemptions": 0.0, "mfu": 0.4},
    ...             {"tpot_mean_ms": 11.0, "preemptions": 0.0, "mfu": 0.8})
    {'tpot_mean_ms': 13.2, 'preemptions': 0.0, 'mfu': 1.0}
    """
    table = {}
    for name, value in base.items():
        leader = CHANGES_WITH.get(name, name)
        scaled = value * changed[leader] / unchanged[leader] if unchanged.get(leader) else value
        if name == DEEPEST_QUEUE:
            scaled = float(math.floor(scaled))
        table[name] = min(scaled, 1.0) if METRICS[name].kind in ("use", "share") else scaled
    return table


def drift(first: Records, other: Records) -> float:
    """How far parts of some requests, in the order in which they are sent, are apart in how much
    longer they take in another run, in logs.
    """
    rows = np.intersect1d(first.finished, other.finished)
    rows = rows[np.argsort(first.sent_ns[rows], kind="stable")]
    if len(rows) < PARTS:
        return math.inf
    logs = []
    for part in np.array_split(rows, PARTS):
        spent, slowed = (int((run.done_ns - run.sent_ns)[part].sum()) for run in (first, other))
        logs.append(math.log(slowed / spent))
    return max(logs) - min(logs)


def _alike(unchanged: Metrics, base: Metrics) -> bool:
    """Whether the first requests are served as all are."""
    if unchanged.keys() != base.keys() or _occur(unchanged) != _occur(base):
        return False
    return all(
        abs(math.log(unchanged[name] / base[name])) <= most
        for name, most in OFF.items()
        if unchanged.get(name)
    )


def _occur(metrics: Metrics) -> set[str]:
    return {name for name, value in metrics.items() if value}
