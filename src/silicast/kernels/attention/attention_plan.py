"""How FlashInfer cuts a batch of prefills into parts: its plan, as its source makes it.

A query tile holds 128, 64 or 16 rows, by the mean number of rows that the batch's sequences bring.
All caches are cut into chunks of one length, the shortest (of 128 keys or more) for which tiles
times chunks times key-value heads still are at most two thread blocks a core; where the tiles alone
are more than that, nothing is cut (``scheduler.cuh``: ``PrefillSplitQOKVIndptr``,
``PrefillBinarySearchKVChunkSize``; FlashInfer 0.2 to 0.6).
"""

from __future__ import annotations

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.kernels.attention.attention_work import AttentionSequences

BLOCKS_PER_CORE = 2
"""Thread blocks that the plan assumes on a core."""
SHORTEST_CHUNK = 128.0
"""Keys of the shortest chunk."""
ROUNDING = 2.0**-30
"""A number of parts that is whole but for rounding counts as whole."""


def mean_rows(rows: I64, work: AttentionSequences) -> I64:
    """Rows of a batch's sequences on average, one value an entry; shape of ``rows``."""
    if work.owner is None or work.offsets is None:
        return rows
    starts = work.offsets[:-1]
    mean: I64 = np.add.reduceat(rows, starts) // np.diff(work.offsets)
    return mean[work.owner]


def chunk_keys(tiles: F64, kv: I64, heads: F64, work: AttentionSequences, cores: int) -> F64:
    """Keys of a chunk, one value an op, shape (ops,); at least the longest cache: nothing is cut.

    Args:
        tiles: query tiles of each entry, a last one as full as it is; kv: keys that it attends to;
            shape (entries,).
        heads: key-value heads of each op, shape (ops,).
    """
    limit = xp.maximum(xp.floor(BLOCKS_PER_CORE * cores / heads), 1.0)
    uncut = work.total(tiles)
    longest = work.largest(xp.float64(xp.maximum(kv, 1)))
    whole = _equal(uncut, kv, limit) if work.owner is None else _varied(tiles, kv, limit, work)
    return xp.where(uncut > limit, longest, xp.maximum(whole, SHORTEST_CHUNK))


def _equal(uncut: F64, kv: I64, limit: F64) -> F64:
    """The shortest chunk of equal sequences."""
    most = xp.maximum(xp.floor(limit / uncut + ROUNDING), 1.0)
    return xp.ceil(kv / most)


def _varied(tiles: F64, kv: I64, limit: F64, work: AttentionSequences) -> F64:
    """The shortest chunk of sequences of different lengths, by bisection."""
    uncut, every = work.total(tiles), work.total(tiles * kv)
    longest = work.largest(xp.float64(kv))
    # whole chunks are at least every / chunk and at most every / chunk + uncut
    low = xp.minimum(xp.ceil(every / limit), longest)
    high = xp.where(limit > uncut, xp.ceil(every / xp.maximum(limit - uncut, 1.0)), longest)
    high = xp.minimum(xp.maximum(high, low), longest)
    low = xp.where(uncut > limit, high, low)
    while xp.any_of(low < high):
        middle = xp.floor(0.5 * (low + high))
        parts = work.total(tiles * xp.ceil(kv / xp.maximum(work.spread(middle), 1.0)))
        fits = parts <= limit + ROUNDING
        high = xp.where(fits, middle, high)
        low = xp.where(fits, low, xp.minimum(middle + 1.0, high))
    return high
