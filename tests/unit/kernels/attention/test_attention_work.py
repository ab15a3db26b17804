"""Closed forms of attention work against counting one pair at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.numerics import I64
from silicast.kernels.attention.attention_work import (
    live_blocks,
    live_keys,
    live_scores,
    longest_row,
    useful,
)
from silicast.workload.graphs.op import Op, Variant
from tests.sampling import examples

CAUSAL = (("causal", True),)


def one(value: int) -> I64:
    return np.array([value], dtype=np.int64)


def seen(q: int, kv: int, window: int, token: int, *, causal: bool) -> range:
    """Keys that one query sees."""
    last = kv - q + token + 1
    first = max(0, last - window) if window else 0
    return range(first, last if causal else first + min(window, kv) if window else kv)


@examples(300)
@given(
    q=st.integers(1, 70),
    past=st.integers(0, 90),
    window=st.one_of(st.just(0), st.integers(1, 100)),
    tile_q=st.sampled_from([1, 2, 8, 16, 32]),
    tile_kv=st.sampled_from([1, 4, 16, 32]),
    causal=st.booleans(),
)
def test_closed_forms_equal_counting(
    q: int, past: int, window: int, tile_q: int, tile_kv: int, causal: bool
) -> None:
    kv = q + past
    rows = [seen(q, kv, window, token, causal=causal) for token in range(q)]
    per_tile = []
    for first in range(0, q, tile_q):
        keys = {key // tile_kv for row in rows[first : first + tile_q] for key in row}
        per_tile.append(len(keys))
    args = (one(q), one(kv), one(window))
    tiles = (one(tile_q), one(tile_kv))
    assert live_scores(*args, causal=causal)[0] == sum(len(row) for row in rows)
    assert live_keys(*args)[0] == len({key for row in rows for key in row})
    assert live_blocks(*args, *tiles, causal=causal)[0] == sum(per_tile)
    longest = longest_row(*args, *tiles)[0]
    assert max(per_tile) - 1 <= longest <= max(per_tile)


def test_flops_and_bytes_by_hand() -> None:
    op = Op.make(
        "attention_prefill",
        Variant("bf16", "fp8", flags=CAUSAL),
        q_len=(2, 1),
        kv_len=(3, 4),
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        window=0,
    )
    # live pairs: 2 + 3 and 4; two products of head_dim multiply-adds each, for every head
    flops = 9 * 4 * 8 * 4
    # queries and results of 3 tokens in two bytes; 7 keys and values in one
    assert useful(op, decode=False) == (flops, 2 * 3 * 4 * 8 * 2 + 2 * 7 * 2 * 8)


def test_decode_attends_to_its_own_token() -> None:
    op = Op.make("attention_decode", kv_len=10, batch=3, num_heads=1, num_kv_heads=1, head_dim=16)
    assert useful(op, decode=True)[0] == 3 * 11 * 4 * 16


def test_counts_beyond_64_bits_stay_exact() -> None:
    size = 1 << 24
    op = Op.make(
        "attention_prefill",
        Variant(flags=(("causal", False),)),
        batch=1 << 20,
        q_len=size,
        kv_len=size,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
    )
    assert useful(op, decode=False)[0] == 4 * 16 * size * size * (1 << 20)


def test_queries_may_outnumber_keys_without_a_mask() -> None:
    from silicast.kernels.attention.attention_prefill import AttentionPrefill

    sizes = {"batch": 8, "num_heads": 4, "num_kv_heads": 4, "head_dim": 64}
    model = AttentionPrefill()

    def op(q: int, kv: int, *, causal: bool = False) -> Op:
        variant = Variant("fp16", flags=(("causal", causal),))
        return Op.make("attention_prefill", variant, q_len=q, kv_len=kv, **sizes)

    assert model.flops(op(196, 49)) == model.flops(op(49, 196)) == 4 * 8 * 4 * 196 * 49 * 64
    assert model.compulsory_bytes(op(196, 49)) < model.compulsory_bytes(op(196, 196))
    assert model.flops(op(196, 49, causal=True)) == model.flops(op(196, 196, causal=True))
