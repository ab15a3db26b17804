"""Partial mappings, decided from the innermost slot outwards, many at once.

A partial mapping knows the tile at its top, and what the decided loops cost for the whole problem
if every undecided loop makes each tile come anew. An undecided loop can only lower that: when it
leaves a tensor in place (the words of its edge are divided by its bound), when a window slides,
or when a fan-out shares what several instances take. So sums over decided parts, less what may
still be saved, bound the cost of every completion from below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64

Flags = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class States:
    """Partial mappings; the last axis of every array runs over them.

    Attributes:
        tile: extents of the tile at the top, (dims, n).
        booked: energy that no undecided loop changes, (n,), pJ.
        steps: iterations in time so far, (n,).
        credit: energy of first visits of outputs, which read nothing; undecided fan-outs multiply
            it, (n,).
        waiting: energy of edges further in that come anew only when the edge at the top does,
            (tensors, n).
        fills, passes: words into the child, and words that leave the fan-outs above it, (tensors,
            n); 0 once booked.
        spans: length of each window of the child's tile, (windows, n).
        inner: of edges in ``waiting``, what of their windows decides how they can slide: a number
            that differs if that does, (windows, n); 0 = no such edge.
        slack: by how much ``booked`` may be too low, where a window's run of neighbours may go on
            in an undecided loop, (n,).
        open: whether no decided loop in time moves the tensor past its child, (tensors, n).
        fresh: whether no decided loop in time stands outside its child at all, (tensors, n).
        parent: row of the partial mapping that this one extends, (n,).
        factors: loop bounds of the slot decided last, (dims, n).
        order: which of the slot's orders, (n,).
    """

    tile: F64
    booked: F64
    steps: F64
    credit: F64
    waiting: F64
    fills: F64
    passes: F64
    spans: F64
    inner: F64
    slack: F64
    open: Flags
    fresh: Flags
    parent: I64
    factors: F64
    order: I64

    def __len__(self) -> int:
        return int(self.booked.shape[0])

    def take(self, rows: NDArray[Any]) -> States:
        return States(*(getattr(self, f.name)[..., rows] for f in fields(self)))

    @staticmethod
    def joined(parts: list[States]) -> States:
        """Those of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return States(
            *(np.concatenate([getattr(p, f.name) for p in parts], axis=-1) for f in fields(States))
        )


def undominated(keys: I64, costs: F64, surely: F64 | None = None) -> I64:
    """Rows that no other row of the same key beats in every cost.

    Rows that six comparisons with the best of their key leave undecided are kept.

    Args:
        keys: (n,).
        costs: at least, (k, n); the first decides the order of comparison.
        surely: at most, (k, n): a row beats with these; default ``costs``.

    >>> undominated(np.array([1, 1, 1]), np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 4.0]])).tolist()
    [0, 2]
    """
    order = np.lexsort((costs[0], keys))
    keys, costs = keys[order], costs[:, order]
    upper = costs if surely is None else surely[:, order]
    retained: list[I64] = []
    left = np.arange(len(order))
    for _ in range(6):
        if not len(left):
            break
        group = keys[left]
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        first = left[starts]
        retained.append(first)
        best = np.repeat(first, np.diff(np.append(starts, len(left))))
        alone = best == left
        left, best = left[~alone], best[~alone]
        beaten = np.ones(len(left), dtype=bool)
        for row, most in zip(costs, upper, strict=True):
            # Sums that differ in rounding only count as equal.
            beaten &= row[left] >= most[best] * (1 - 1e-12)
        left = left[~beaten]
    retained.append(left)
    return order[np.sort(np.concatenate(retained))]
