"""FlashInfer's plan: the shortest chunk that fits, found without trying every one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.kernels.attention.attention_plan import (
    BLOCKS_PER_CORE,
    SHORTEST_CHUNK,
    chunk_keys,
    mean_rows,
)
from silicast.kernels.attention.attention_work import AttentionSequences
from silicast.workload.graphs.op import OpBatch, Variant

CORES = 108


def ragged(*ops: list[int]) -> AttentionSequences:
    """Sequences of ops whose caches have the lengths given."""
    lengths = np.array([x for op in ops for x in op], dtype=np.int64)
    offsets = np.cumsum([0, *(len(op) for op in ops)])
    dims = {"q_len": np.ones_like(lengths), "kv_len": lengths}
    batch = OpBatch("attention_prefill", Variant(), dims, offsets, frozenset(dims))
    return AttentionSequences.from_batch(batch, decode=False)


def tried(tiles: list[int], kv: list[int], heads: int) -> float:
    """The shortest chunk by trying all; the longest cache where the tiles alone are too many."""
    limit = BLOCKS_PER_CORE * CORES // heads
    if sum(tiles) > limit:
        return float(max(kv))
    for chunk in range(1, max(kv) + 1):
        parts = sum(t * -(-k // chunk) for t, k in zip(tiles, kv, strict=True))
        if parts <= limit:
            return max(float(chunk), SHORTEST_CHUNK)
    raise AssertionError("whole caches fit")


SEQUENCES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9_000)), min_size=1, max_size=12)


@given(sequences=SEQUENCES, heads=st.sampled_from([1, 2, 4, 8, 16]))
def test_the_shortest_chunk_that_fits(sequences: list[tuple[int, int]], heads: int) -> None:
    tiles, kv = ([each[n] for each in sequences] for n in (0, 1))
    work = ragged(kv)
    result = chunk_keys(np.array(tiles, float), work.kv, np.array([float(heads)]), work, CORES)
    assert result.tolist() == [tried(tiles, kv, heads)]


@given(tiles=st.integers(1, 60), kv=st.integers(1, 50_000), count=st.integers(1, 40))
def test_equal_sequences_in_either_form(tiles: int, kv: int, count: int) -> None:
    dims = {name: np.array([value]) for name, value in
            (("q_len", 1), ("kv_len", kv), ("batch", count))}  # fmt: skip
    alike = AttentionSequences.from_batch(
        OpBatch("attention_prefill", Variant(), dims), decode=False
    )
    each = ragged([kv] * count)
    heads = np.array([4.0])
    # an entry of equal sequences stands for all of them
    first = chunk_keys(np.array([float(tiles)]), alike.kv, heads, alike, CORES)
    second = chunk_keys(np.full(count, float(tiles)), each.kv, heads, each, CORES)
    assert first.tolist() == second.tolist()


def test_an_op_does_not_see_its_neighbours() -> None:
    one, other = [100, 5000, 31], [20_000]
    heads, tiles = np.array([2.0]), np.array([3.0, 1.0, 2.0])
    alone = chunk_keys(tiles, np.array(one), heads, ragged(one), CORES)
    both = ragged(one, other)
    together = chunk_keys(np.append(tiles, 9.0), both.kv, np.array([2.0, 8.0]), both, CORES)
    assert together[0] == alone[0]


@pytest.mark.parametrize(("rows", "mean"), [([10, 20, 33], 21), ([64], 64)])
def test_rows_of_a_batch_on_average(rows: list[int], mean: int) -> None:
    result = mean_rows(np.array(rows), ragged([9] * len(rows)))
    assert result.tolist() == [mean] * len(rows)
