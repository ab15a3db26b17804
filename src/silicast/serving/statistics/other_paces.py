"""Statistics at other paces of the steps, from the first requests where these tell enough.

How much slower requests are when steps are slower is known from far fewer of them than how long
they take: the same requests run at both paces, and the error of both cancels. So the first
:data:`FIRST` requests run at the predicted pace and at the other one, and every statistic of the
whole run is moved by the ratio of the two. Queues may take longer than that to show what a pace
does to them. All requests run again where

* the queue of the whole run, or of the slower one, only grows;
* later ones of the first requests are slowed by more than earlier ones;
* the first requests wait or decode as long as they do at another load, since fewer run at once;
* something happens only in some of the runs, such as preemptions.

The largest use of the cache moves as its mean does: of few requests it is one of few moments. The
deepest queue is a whole number of requests, rounded down: asynchronous engines take in two at a
slower pace where they took one, so that it falls where its mean grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from silicast.composition.prices.stepper import Pace
from silicast.core.metrics import METRICS
from silicast.serving.statistics.records import Records
from silicast.serving.statistics.steady import keeps_up

FIRST = 400
"""Requests that run again."""
WORTH = 2 * FIRST
"""Requests from which on a part of them runs again."""
DRIFT = 0.02
"""How far, in logs, thirds of the first requests may be apart in how much they are slowed."""
OFF = {"tpot_mean_ms": 0.05, "ttft_mean_ms": 0.1}
"""How far, in logs, statistics of the first requests may be from those of all."""
PARTS = 3
MOVES_WITH = {"kv_utilisation_max": "kv_utilisation"}
"""Largest values of a run -> what they move with."""
DEEPEST_QUEUE = "queue_depth_max"

Metrics = Mapping[str, float]


def at_paces(
    records: Records,
    base: Metrics,
    paces: Sequence[Pace],
    metrics_of: Callable[[Records], Metrics],
    again: Callable[[Pace], Records],
    begin: Callable[[Pace], Records] | None = None,
) -> list[Metrics]:
    """What the statistics of a run would be at other paces.

    Args:
        records: of the run; ``base``: its statistics.
        again: all of its requests at another pace.
        begin: the first :data:`FIRST` of them; None = all run again.
    """
    tells = len(records.requests) >= WORTH and keeps_up(records)
    if begin is None or not tells:
        return [metrics_of(again(pace)) for pace in paces]
    first = begin(Pace())
    unchanged, ends = metrics_of(first), list[Metrics]()
    if _alike(unchanged, base):
        for pace in paces:
            end = _moved(first, unchanged, base, begin(pace), metrics_of)
            if end is None:  # nor would it at the next pace, mostly
                break
            ends.append(end)
    return [*ends, *(metrics_of(again(pace)) for pace in paces[len(ends) :])]


def _moved(
    first: Records,
    unchanged: Metrics,
    base: Metrics,
    other: Records,
    metrics_of: Callable[[Records], Metrics],
) -> Metrics | None:
    """Statistics of the whole run as the first requests move; None = they do not tell."""
    if drift(first, other) > DRIFT or not keeps_up(other):
        return None
    changed = metrics_of(other)
    if changed.keys() != unchanged.keys() or _occur(changed) != _occur(unchanged):
        return None
    return moved(base, unchanged, changed)


def moved(base: Metrics, unchanged: Metrics, changed: Metrics) -> dict[str, float]:
    """Statistics times how those of the first requests change, those of :data:`MOVES_WITH` as
    others; shares of what devices could do stay within 1.

    >>> moved({"tpot_mean_ms": 12.0, "preemptions": 0.0, "mfu": 0.6},
    ...       {"tpot_mean_ms": 10.0, "preemptions": 0.0, "mfu": 0.4},
    ...       {"tpot_mean_ms": 11.0, "preemptions": 0.0, "mfu": 0.8})
    {'tpot_mean_ms': 13.2, 'preemptions': 0.0, 'mfu': 1.0}
    """
    table = {}
    for name, value in base.items():
        leader = MOVES_WITH.get(name, name)
        there = value * changed[leader] / unchanged[leader] if unchanged.get(leader) else value
        if name == DEEPEST_QUEUE:
            there = float(math.floor(there))
        table[name] = min(there, 1.0) if METRICS[name].kind in ("use", "share") else there
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
