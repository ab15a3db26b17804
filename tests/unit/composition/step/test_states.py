"""Batch states count tokens, sequences and cached lengths exactly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.passes.static_batch import decode_knots
from silicast.composition.step.node_times import in_chunks
from silicast.composition.step.states import BatchStates, segment_sums


def test_prefill_state_counts_all_new_tokens() -> None:
    states = BatchStates.prefill([5, 7])
    assert states.tokens.tolist() == [12]
    assert states.logit_rows.tolist() == [2]
    assert states.decode_sequences.tolist() == [0]


def test_decode_states_grow_by_one_token_a_step() -> None:
    states = BatchStates.decode([5, 7], np.array([1, 2, 4]))
    assert states.tokens.tolist() == [2, 2, 2]
    assert states.decode_kv.tolist() == [5, 7, 6, 8, 8, 10]


def test_joined_states_keep_what_other_groups_run() -> None:
    """Four groups, of which the first state says that the other three run 30 tokens; where nothing
    is stated each runs as many.
    """
    stated, plain = BatchStates.prefill([5, 7], 30), BatchStates.decode([9], np.array([1, 2]))
    for both in (stated.then(plain), BatchStates.joined([stated, plain])):
        assert both.tokens.tolist() == [12, 1, 1]
        assert both.all_tokens(4, both.tokens).tolist() == [12 + 30, 4, 4]
        assert both.prefill_q.tolist() == [5, 7]
        assert both.decode_kv.tolist() == [9, 10]
        assert both.chosen(np.array([2, 0])).all_tokens(4, np.array([1, 12])).tolist() == [4, 42]


@given(st.lists(st.lists(st.integers(0, 10**12), max_size=5), min_size=1, max_size=6))
def test_segment_sums_are_exact_also_for_empty_segments(segments: list[list[int]]) -> None:
    flat = np.array([v for s in segments for v in s], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, segments)])
    assert segment_sums(flat, offsets).tolist() == [sum(s) for s in segments]


@given(st.integers(1, 5_000))
def test_knots_stand_for_every_step_and_integrate_a_line_exactly(steps: int) -> None:
    knots, weights = decode_knots(steps)
    assert knots[0] == 1
    assert knots[-1] == steps
    assert np.isclose(weights.sum(), steps)
    line = 3.0 + 0.25 * np.arange(1, steps + 1)
    assert np.isclose((weights * (3.0 + 0.25 * knots)).sum(), line.sum())


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=6),
    st.integers(1, 20),
)
def test_pieces_hold_every_pair_of_a_chunk_once(
    sequences: list[tuple[int, int]], chunk: int
) -> None:
    new = np.array([q for q, _ in sequences])
    total = np.array([q + past for q, past in sequences])
    q, kv, offsets = in_chunks(new, total, np.arange(len(new) + 1), chunk)
    pairs = q * kv - q * (q - 1) // 2  # causal, aligned to the last query
    for i, (length, past) in enumerate(sequences):
        expected = sum(p % chunk + 1 for p in range(past, past + length))
        assert pairs[offsets[i] : offsets[i + 1]].sum() == expected


def test_chunks_hold_every_token_once_and_see_all_before_it() -> None:
    lengths = [700, 300, 24, 1]
    states = BatchStates.chunked(lengths, 512)
    assert states.tokens.tolist() == [512, 512, 1]
    assert states.prefill_q.tolist() == [512, 188, 300, 24, 1]
    assert states.prefill_kv.tolist() == [512, 700, 300, 24, 1]
    assert BatchStates.chunked([512], 512).tokens.tolist() == [512]
