"""Max-min fair rates: nobody gets more unless somebody who has no more would get less.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all rates grow alike;
whoever meets a full link stops. Links that are tight for all who use them are filled at once.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.communication.flows.folding import Classes
from silicast.core.numerics import F64, I64

CLOSE = 1e-12
"""Shares of links that differ by less are one."""


def fair_rates(links: I64, flows: I64, count: F64, capacity: F64, active: NDArray[np.bool_]) -> F64:
    """Rates in bytes/s, 0 for flows that are not active, infinite for those without links.

    Args:
        links, flows: the link and the flow of each crossing, shape (crossings,).
        count: how many flows of the kind cross such a link, shape (crossings,).
        capacity: bytes/s, shape (links,).
        active: shape (flows,).

    >>> links, flows = np.array([0, 0, 1]), np.array([0, 1, 1])
    >>> fair_rates(links, flows, np.ones(3), np.array([6.0, 1.0]), np.array([True, True])).tolist()
    [5.0, 1.0]
    """
    live = active[flows]
    links, flows, count = links[live], flows[live], count[live]
    rates = np.where(active, np.inf, 0.0)
    rates[flows] = 0.0
    open_ = np.ones(len(flows), dtype=np.bool_)
    while open_.any():
        link, flow = links[open_], flows[open_]
        load = np.bincount(link, count[open_], len(capacity))
        used = np.bincount(links, count * rates[flows], len(capacity))
        loaded = load > 0.0
        left = np.maximum(capacity - used, 0.0)
        share = np.where(loaded, left / np.where(loaded, load, 1.0), np.inf)
        narrowest = np.full(len(rates), np.inf)
        np.minimum.at(narrowest, flow, share[link])
        least = np.full(len(capacity), np.inf)
        np.minimum.at(least, link, narrowest[flow])
        tight = share <= least * (1.0 + CLOSE)
        stopped = flow[tight[link]]
        rates[stopped] = narrowest[stopped]
        closed = np.zeros(len(rates), dtype=np.bool_)
        closed[stopped] = True
        open_ &= ~closed[flows]
    return rates


SENT = 1e-12
"""Messages whose ends differ by less than this share of the time until then end together."""


@final
class ContendingMessages:
    """Message classes that reach each other by common links; no others change their rates.

    Attributes:
        stamp: changes whenever the rates do.
        since: when what is left was last counted, seconds.
    """

    def __init__(self, messages: list[int], links: I64, flows: I64, count: F64, capacity: F64):
        self._place = {message: index for index, message in enumerate(messages)}
        self._crossings = links, flows, count, capacity
        self._left: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._known: dict[tuple[int, ...], dict[int, float]] = {}
        self._ending: tuple[float, list[int]] = (0.0, [])
        self.stamp, self.since = 0, 0.0

    def start(self, message: int, size: float, now: float) -> None:
        """Counts one more message of the class as under way."""
        self._count(now - self.since)
        self.since = now
        self._left[message] = size
        self.stamp += 1  # what was to end now has nothing left and ends when rates are found anew

    def ended(self) -> list[int]:
        """The messages that end first, which are no longer under way."""
        span, over = self._ending
        self._count(span)
        self.since += span
        for message in over:
            del self._left[message], self._rates[message]
        return over

    def priced(self) -> float | None:
        """Seconds until the first that are under way end, at rates found anew; None = none are."""
        self.stamp += 1
        if not self._left:
            return None
        self._rates = dict(self._fair(tuple(sorted(self._left))))
        spans = {m: left / self._rates[m] for m, left in self._left.items()}
        least = min(spans.values())
        over = sorted(m for m, span in spans.items() if span <= least * (1.0 + SENT))
        self._ending = (least, over)
        return least

    def left(self, now: float) -> list[tuple[int, float]]:
        """Bytes left of each that is under way."""
        past = now - self.since
        return [(m, self._left[m] - self._rates[m] * past) for m in sorted(self._left)]

    def _count(self, seconds: float) -> None:
        for message, rate in self._rates.items():
            self._left[message] = max(self._left[message] - rate * seconds, 0.0)

    def _fair(self, going: tuple[int, ...]) -> dict[int, float]:
        if going not in self._known:
            active = np.zeros(len(self._place), dtype=np.bool_)
            indices = [self._place[m] for m in going]
            active[indices] = True
            rates = fair_rates(*self._crossings, active)[indices].tolist()
            self._known[going] = dict(zip(going, rates, strict=True))
        return self._known[going]


def sharings(classes: Classes) -> tuple[list[ContendingMessages], list[int]]:
    """All groups, and the number of that of each message class."""
    count = len(classes.size)
    group = _joined(classes.link, classes.message, count, len(classes.capacity))
    numbers = {g: n for n, g in enumerate(dict.fromkeys(group))}
    number_of = [numbers[g] for g in group]
    members: list[list[int]] = [[] for _ in numbers]
    for message, number in enumerate(number_of):
        members[number].append(message)
    order = np.argsort(np.array(number_of, dtype=np.int64)[classes.message], kind="stable")
    of_crossing = np.array(number_of, dtype=np.int64)[classes.message[order]]
    ends = np.searchsorted(of_crossing, np.arange(len(members) + 1))
    shared = []
    for number, messages in enumerate(members):
        mine = order[ends[number] : ends[number + 1]]
        links, link = np.unique(classes.link[mine], return_inverse=True)
        flow = np.searchsorted(np.array(messages), classes.message[mine])
        shared.append(
            ContendingMessages(messages, link, flow, classes.count[mine], classes.capacity[links])
        )
    return shared, number_of


def _joined(link: I64, message: I64, messages: int, links: int) -> list[int]:
    """A number for each message; those joined by links have one."""
    group = np.arange(messages, dtype=np.int64)
    while True:
        least = np.full(links, messages, dtype=np.int64)
        np.minimum.at(least, link, group[message])
        now = group.copy()
        np.minimum.at(now, message, least[link])
        now = now[now]
        if np.array_equal(now, group):
            tolist: list[int] = group.tolist()
            return tolist
        group = now
