"""Max-min fair rates: nobody gets more unless somebody who has no more would get less.

Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all rates grow alike;
whoever meets a full link stops. Links that are tight for all who use them are filled at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
