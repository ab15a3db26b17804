"""Work that runs at the same time shares the device: the one law of concurrency.

Each kernel or collective, where it runs alone, takes a share of the cores, of the memory's
bandwidth, of the links in its node and of the network. Where the shares of those that run together
exceed one of these resources, all of them slow down alike:

    slowdown = max(1, sum of shares of cores, sum of shares of memory, sum of shares of links,
                   sum of shares of the network)

Two kernels that fill the device thus gain nothing from running together. The law holds between two
events (a kernel starts or ends): :func:`together_s` follows it for two queues that start together,
over many states at once; :func:`silicast.composition.timeline.timeline.simulated` for any streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64


@final
@dataclass(frozen=True, slots=True)
class ResourceShares:
    """Of each resource, the share that each node takes alone; arrays (nodes, n), at most 1."""

    cores: F64
    dram: F64
    links: F64
    network: F64

    @property
    def tables(self) -> tuple[F64, F64, F64, F64]:
        """In the order of :data:`RESOURCES`, each of shape (nodes, n)."""
        return self.cores, self.dram, self.links, self.network

    def of_nodes(self, indices: tuple[int, ...]) -> F64:
        """Those of some nodes, shape (resources, len(places), n)."""
        rows = list(indices)
        return np.stack([table[rows] for table in self.tables])


def slowdown(total_shares: Iterable[float]) -> float:
    """How much slower everything runs, by the total share of each resource.

    >>> slowdown([1.5, 0.4, 0.0])
    1.5
    """
    return max(1.0, *total_shares)


def pair_s(one_s: float, other_s: float, slower: float) -> float:
    """:func:`together_s` of two kernels that slow down by ``slower`` while both run.

    >>> pair_s(4.0, 6.0, 1.5)
    8.0
    """
    first = min(one_s, other_s)
    return first * slower + (max(one_s, other_s) - first)


def together_s(main_s: F64, side_s: F64, main: F64, side: F64) -> F64:
    """Time until two queues that start together have both ended, shape (n,).

    Args:
        main_s, side_s: time of each kernel of a queue where it runs alone, shape (kernels, n).
        main, side: their shares, shape (resources, kernels, n).

    >>> one, half = np.ones((1, 1)), np.full((3, 1, 1), 0.5)
    >>> float(together_s(4 * one, 4 * one, half, half)[0])
    4.0
    >>> float(together_s(4 * one, 4 * one, 2 * half, 2 * half)[0])
    8.0
    """
    states = np.arange(main_s.shape[1])
    left = [np.vstack((queue, np.zeros((1, len(states))))) for queue in (main_s, side_s)]
    none = np.zeros((len(main), 1, len(states)))
    shares = [np.concatenate((queue, none), axis=1) for queue in (main, side)]
    last = [len(main_s), len(side_s)]
    head = [np.zeros(len(states), dtype=np.int64) for _ in last]
    elapsed = np.zeros(len(states))
    for _ in range(sum(last)):
        running = [head[queue] < last[queue] for queue in (0, 1)]
        remainder = [left[queue][head[queue], states] for queue in (0, 1)]
        total = shares[0][:, head[0], states] + shares[1][:, head[1], states]
        slower = np.maximum(1.0, total.max(axis=0))  # the law of :func:`slowdown`
        # the next event: the first of the two that ends, or the one that is left
        step = np.where(
            running[0] & running[1],
            np.minimum(remainder[0], remainder[1]),
            np.where(running[0], remainder[0], remainder[1]),
        )
        elapsed = elapsed + step * slower
        for queue in (0, 1):
            remaining = remainder[queue] - step
            left[queue][head[queue], states] = np.where(running[queue], remaining, 0.0)
            head[queue] = head[queue] + (running[queue] & (remaining <= 0.0))
    return elapsed
