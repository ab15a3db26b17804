"""Exact work of attention over sequences: live scores, live tiles and bytes, in closed form.

A causal query sees keys up to its own position, counted from the end of the cache; a window of
``w`` lets it see the last ``w`` of those. All sums over query blocks are integer closed forms, so
that a sequence costs the same few operations whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64, ceil_div
from silicast.workload.graphs.op import Op, OpBatch


@final
class AttentionSequences(Struct, frozen=True):
    """The sequences of a batch of attention ops, in one of two forms.

    Uniform: one entry an op, which stands for ``count`` equal sequences. Ragged: one entry a
    sequence; ``offsets`` says which belong to which op.

    Attributes:
        q, kv: new tokens and attended tokens (past and new), shape (entries,), int64.
        count: equal sequences an entry stands for, shape (entries,), int64; weight: as floats.
        owner: op of each entry, shape (entries,), or None where entries are ops.
        offsets: shape (ops + 1,), or None where entries are ops.
        one_op: all entries are of one op, whose own values are numbers.
    """

    q: I64
    kv: I64
    count: I64
    weight: F64
    owner: I64 | None = None
    offsets: I64 | None = None
    one_op: bool = False

    @staticmethod
    def from_batch(batch: OpBatch, *, decode: bool) -> AttentionSequences:
        """Sequences of ``batch``; a decode op's cache does not yet hold its new tokens. Keys count
        the queries' own among them, but not where an op states that it is not causal: its queries
        may be more.
        """
        dims = batch.dims
        causal = dict(batch.variant.flags).get("causal", True)
        if batch.offsets is None:
            q, count = column(batch, "q_len", 1), column(batch, "batch", 1)
            kv = dims["kv_len"] + (q if decode else 0)
            kv = xp.maximum(kv, q) if causal else kv
            return AttentionSequences(q, kv, count, xp.float64(count))
        ops = len(batch)
        owner = np.repeat(np.arange(ops, dtype=np.int64), np.diff(batch.offsets))

        def flat(name: str, default: int) -> I64:
            values = column(batch, name, default)
            return values if name in batch.ragged else np.atleast_1d(values)[owner]

        q, kv = flat("q_len", 1), flat("kv_len", 0)
        kv = kv + q if decode else xp.maximum(kv, q) if causal else kv
        ones = np.ones_like(q)
        return AttentionSequences(
            q, kv, ones, xp.float64(ones), owner, batch.offsets, batch.numbers
        )

    @property
    def sequences(self) -> F64:
        """Sequences of each op, shape (ops,)."""
        if self.offsets is None:
            return self.weight
        counts = xp.float64(np.diff(self.offsets))
        return counts.item() if self.one_op else counts  # type: ignore[return-value]

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """One value an op -> one value an entry."""
        return values if self.owner is None or self.one_op else values[self.owner]

    def total(self, values: F64 | I64) -> F64:
        """Sum over an op's sequences of one value an entry, in the order given; shape (ops,)."""
        if self.owner is None or self.offsets is None:
            return values * self.weight
        every = np.broadcast_to(values, self.q.shape)
        summed = np.bincount(self.owner, weights=every, minlength=len(self.offsets) - 1)
        sums = summed.astype(np.float64)
        return sums.item() if self.one_op else sums  # type: ignore[return-value]

    def largest(self, values: F64) -> F64:
        """Largest value over an op's sequences, shape (ops,)."""
        if self.offsets is None:
            return values
        every = np.broadcast_to(values, self.q.shape)
        result: F64 = np.maximum.reduceat(every, self.offsets[:-1])
        return result.item() if self.one_op else result  # type: ignore[return-value]


def windows(batch: OpBatch, work: AttentionSequences) -> I64:
    """Window of each entry of ``work``; one that reaches every key is none (0)."""
    window_sizes = batch.dims.get("window")
    if window_sizes is None or not xp.any_of(window_sizes):
        return work.kv * 0
    window = work.spread(window_sizes)
    return xp.where(window < work.kv, window, 0)


def live_scores(q: I64, kv: I64, window: I64, *, causal: bool) -> I64:
    """Query-key pairs that count, exactly; shape of ``q``.

    Without a causal mask every query sees ``window`` keys: those that end at its own position,
    or the first ones where fewer end there.

    >>> one = lambda *v: [np.array([x]) for x in v]
    >>> int(live_scores(*one(4, 6, 0), causal=True)[0])     # 3 + 4 + 5 + 6
    18
    >>> int(live_scores(*one(4, 6, 5), causal=True)[0])     # 3 + 4 + 5 + 5
    17
    """
    past = kv - q
    if causal and not xp.any_of(window):
        triangle: I64 = q * past + q * (q + 1) // 2
        return triangle
    reach = xp.where(window > 0, window, kv)
    if not causal:
        every: I64 = q * xp.minimum(kv, reach)
        return every
    growing = xp.minimum(xp.maximum(reach - past, 0), q)
    scores: I64 = growing * past + growing * (growing + 1) // 2 + (q - growing) * reach
    return scores


def live_keys(q: I64, kv: I64, window: I64) -> I64:
    """Keys that at least one query sees, per sequence; windows slide, causal or not."""
    if not xp.any_of(window):
        return kv
    first: I64 = xp.where(window > 0, xp.maximum(0, kv - q - window + 1), 0)
    return kv - first


def live_blocks(q: I64, kv: I64, window: I64, tile_q: I64, tile_kv: I64, *, causal: bool) -> I64:
    """Key-value tiles visited by all query tiles of a sequence, per head; exact.

    ``tile_q`` and ``tile_kv`` are powers of two, in tokens.
    """
    blocks = ceil_div(q, tile_q)
    past = kv - q
    if causal:
        ends = _ceil_sum(past + tile_q, tile_q, blocks - 1, tile_kv) + ceil_div(kv, tile_kv)
    else:
        reach = xp.where(window > 0, xp.minimum(kv, window), kv)
        early: I64 = xp.minimum(xp.maximum(reach - past, 0) // tile_q, blocks - 1)
        follow = _ceil_sum(past + (early + 1) * tile_q, tile_q, blocks - 1 - early, tile_kv)
        ends = early * ceil_div(reach, tile_kv) + follow + ceil_div(kv, tile_kv)
    if not xp.any_of(window):
        return ends
    # floor(x / n) = ceil((x + 1) / n) - 1, over the query tiles whose window starts inside.
    whole = xp.maximum(0, ceil_div(xp.maximum(window - 1 - past, 0), tile_q))
    late: I64 = xp.where(window > 0, xp.maximum(0, blocks - whole), 0)
    first = xp.maximum(past + whole * tile_q - window + 2, 1)
    return ends - (_ceil_sum(first, tile_q, late, tile_kv) - late)


def longest_row(q: I64, kv: I64, window: I64, tile_q: I64, tile_kv: I64) -> I64:
    """Most key-value tiles that one query tile visits: the last tile or the last full one."""
    past, last = kv - q, ceil_div(q, tile_q) - 1
    longest = xp.full_like(q, 0.0)
    for tile in (last, xp.maximum(last - 1, 0)):
        end = past + xp.minimum((tile + 1) * tile_q, q)
        if not xp.any_of(window):
            return ceil_div(end, tile_kv)  # the last tile sees all keys
        start = xp.where(window > 0, xp.maximum(0, past + tile * tile_q - window + 1), 0)
        longest = xp.maximum(longest, ceil_div(end, tile_kv) - start // tile_kv)
    return longest


def _ceil_sum(first: I64, step: I64, count: I64, unit: I64) -> I64:
    """Sum of ceil((first + j * step) / unit) for j in 0 .. count - 1; powers of two, first >= 1."""
    if not xp.any_of(count):
        return count
    wide = step >= unit
    if xp.all_of(wide):  # one case for all rows: integers are the same either way
        return _even_sum(first, step, count, unit)
    start = ceil_div(first, step)
    ratio = xp.maximum(unit // step, 1)
    narrow: I64 = _stairs(start + count - 1, ratio) - _stairs(start - 1, ratio)
    if not xp.any_of(wide):
        return narrow
    return xp.where(wide, _even_sum(first, step, count, unit), narrow)


def _even_sum(first: I64, step: I64, count: I64, unit: I64) -> I64:
    """The same where every step crosses whole units."""
    sums: I64 = count * ceil_div(first, unit) + (step // unit) * (count * (count - 1) // 2)
    return sums


def _stairs(m: I64, ratio: I64) -> I64:
    """Sum of ceil(k / ratio) for k in 1 .. m."""
    full, remainder = m // ratio, m % ratio
    sums: I64 = ratio * (full * (full + 1) // 2) + remainder * (full + 1)
    return sums


def element_bytes(dtype: str) -> float:
    """Bytes of one stored activation of a format or recipe.

    Raises:
        SilicastError: unknown format.
    """
    if dtype in RECIPES:
        dtype = RECIPES[dtype].activations
    if dtype not in BITS:
        raise SilicastError(
            f"unknown number format {dtype!r}", field="kv_dtype", hint=f"one of {', '.join(BITS)}"
        )
    return BITS[dtype] / 8.0


def compute_format(dtype: str) -> str:
    """The pipe format in which ``dtype`` is multiplied."""
    return RECIPES[dtype].compute if dtype in RECIPES else dtype


def column(batch: OpBatch, name: str, default: int) -> I64:
    """A dimension of ``batch``, or ``default`` for every op where it is not given."""
    return batch.dims[name] if name in batch.dims else batch.filled(default)


def exact_sum(values: I64, counts: I64) -> int:
    """Sum of products in whole numbers of any size."""
    pairs = zip(xp.tolist(values), xp.tolist(counts), strict=True)
    return sum(value * count for value, count in pairs)


def useful(op: Op, *, decode: bool) -> tuple[int, int]:
    """Exact FLOPs and bytes of one op.

    4 x head_dim FLOPs for every live score of every head (scores and weighted values). Queries and
    results once, live keys and values once, new keys and values included, and a mask once.
    """
    batch = OpBatch.single(op)
    work = AttentionSequences.from_batch(batch, decode=decode)
    window = windows(batch, work)
    causal = op.variant.flag("causal", default=True)
    scores = exact_sum(live_scores(work.q, work.kv, window, causal=causal), work.count)
    keys = exact_sum(live_keys(work.q, work.kv, window), work.count)
    queries = exact_sum(work.q, work.count)
    heads, groups, width = (int(batch.dims[n]) for n in ("num_heads", "num_kv_heads", "head_dim"))
    q_bytes = element_bytes(op.variant.dtype)
    kv_bytes = element_bytes(op.variant.kv_dtype or op.variant.dtype)
    moved = 2 * queries * heads * width * q_bytes + 2 * keys * groups * width * kv_bytes
    mask = int(batch.dims["mask_bytes"]) if "mask_bytes" in batch.dims else 0
    return 4 * heads * width * scores, int(moved) + mask


ROWS = 128
"""Rows of the usual query tile."""


def shape_features(
    batch: OpBatch, work: AttentionSequences, heads: I64, groups: I64, cores: int
) -> Mapping[str, F64]:
    """Features by name, shape (ops,).

    group: query heads of a key-value head. pairs: sequences times key-value heads, each the least
    work that shares keys; pair_fill: of their last round over the cores, the share that is filled.
    window_share: of the longest cache, what a window lets a query see; 1 without one.
    """
    sequences = work.sequences
    pairs = sequences * groups
    rounds = pairs / cores
    table = {"group": heads / groups, "pairs": pairs, "pair_fill": rounds - xp.floor(rounds)}
    window = batch.dims.get("window")
    if window is None or not xp.any_of(window):
        return {**table, "window_share": xp.full_like(pairs, 1.0)}
    longest = work.largest(xp.float64(work.kv))
    share = xp.where(window > 0, xp.minimum(window / xp.maximum(longest, 1.0), 1.0), 1.0)
    return {**table, "window_share": share}


def row_rest(work: AttentionSequences, heads: I64, groups: I64) -> F64:
    """Rows of a sequence and group beyond whole tiles, as a mean share of a tile, shape (ops,)."""
    group = work.spread(heads // xp.maximum(groups, 1))
    remainder = xp.float64(work.q * group % ROWS)
    if work.offsets is None:
        return remainder / ROWS
    return work.total(remainder) / (work.sequences * float(ROWS))
