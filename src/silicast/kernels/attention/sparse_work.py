"""Exact work of sparse attention: which query sees how many entries of a cache, in closed form.

A cache may be compressed: one entry for every ``ratio`` tokens, visible once its last token is in
the past. A query at position p then sees ``floor((p + 1) / ratio)`` entries, or at most ``cap`` of
them where an indexer selects, or the last ``cap`` where there is a window.
"""

from __future__ import annotations

from typing import Any

from silicast.core import xp
from silicast.core.numerics import F64

ROUNDING = 1e-9
"""Share of a count that is an error of its arithmetic, not a task."""


def seen(q: Any, kv: Any, ratio: Any = 1, cap: Any = 0) -> Any:
    """Pairs of a query and an entry it sees, summed over ``q`` queries that end at ``kv`` tokens.

    Python integers or int64 arrays alike; exact. ``cap`` 0 = no limit.

    >>> seen(4, 6)                       # 3 + 4 + 5 + 6
    18
    >>> seen(4, 6, 2), seen(4, 6, 1, 4)  # 1 + 2 + 2 + 3, and 3 + 4 + 4 + 4
    (8, 15)
    """
    return _up_to(kv, ratio, cap) - _up_to(kv - q, ratio, cap)


def _up_to(tokens: Any, ratio: Any, cap: Any) -> Any:
    """Sum over x = 1 .. tokens of min(floor(x / ratio), cap)."""
    limited = cap > 0
    edge = tokens + limited * (_smaller(tokens, cap * ratio) - tokens)
    whole, remainder = edge // ratio, edge % ratio
    below = ratio * (whole * (whole - 1) // 2) + whole * (remainder + 1)
    return below + limited * cap * (tokens - edge)


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else xp.minimum(a, b)


def whole_rounds(share: F64) -> F64:
    """``share`` rounded up, but for what rounding errors left over: tasks that were made as many as
    there are servers are one round.

    >>> import numpy as np
    >>> whole_rounds(np.array([1.0 + 1e-15, 1.5, 2.0])).tolist()
    [1.0, 2.0, 2.0]
    """
    whole_rounds: F64 = xp.ceil(share * (1.0 - ROUNDING))
    return whole_rounds


def in_rounds(tasks: F64, slots: float | F64, tail: float) -> F64:
    """Rounds in which ``slots`` servers take ``tasks``: at least one; ``tail`` of the last one's
    idle share counts, because tasks end at different times.
    """
    share = tasks / slots
    rounds: F64 = xp.maximum(1.0, share + tail * (whole_rounds(share) - share))
    return rounds
