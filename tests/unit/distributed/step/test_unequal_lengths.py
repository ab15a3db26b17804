"""Documents of unequal lengths: packed, padded, and what ranks wait for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.distributed.step.unequal_lengths import Rows, UnequalLengths, packed, padded

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60).map(np.array)


@given(LENGTHS, st.integers(4, 50))
def test_packing_loses_no_token_and_fills_no_row_beyond_its_end(
    lengths: np.ndarray, row: int
) -> None:
    cut = np.minimum(lengths, row)
    rows = packed(lengths, row)
    assert rows.useful == cut.sum()
    assert rows.squares.sum() == (cut**2).sum()
    assert rows.computed.sum() >= cut.sum()
    assert len(rows.computed) <= len(lengths)
    # best fit never leaves two rows that are half empty
    assert len(rows.computed) <= 2 * cut.sum() / row + 1


@given(LENGTHS, st.integers(1, 5))
def test_padding_computes_the_longest_of_each_micro_batch(lengths: np.ndarray, micro: int) -> None:
    rows = padded(lengths, 1 << 20, micro)
    assert len(rows.computed) % micro == 0
    assert (rows.squares == rows.computed**2).all()
    if micro == 1:
        assert rows.padded_share == 0.0
        assert rows.computed.sum() == lengths.sum()


def test_rows_that_fit_exactly() -> None:
    rows = packed(np.array([5, 3, 6, 2, 8, 4, 4]), 8)
    assert len(rows.computed) == 4
    assert rows.padded_share == 0.0
    # 8 | 6 2 | 5 3 | 4 4: (64 + 36 + 4 + 25 + 9 + 16 + 16) / 32
    assert rows.document == 170 / 32


def test_rows_that_are_alike_add_nothing() -> None:
    rows = Rows(np.full(9, 64.0), np.full(9, 2 * 32.0**2), 9 * 64)
    result = UnequalLengths.from_rows(rows, 32, 2, 0.3, 512, 4)
    assert (result.factor, result.mean) == (1.0, 1.0)


def test_more_ranks_wait_longer_and_more_rows_between_shorter() -> None:
    rows = padded(np.arange(1, 1000), 4096, 1)
    length = int(rows.computed.mean())

    def factor(ranks: int, rows_between: int) -> float:
        return UnequalLengths.from_rows(rows, length, 1, 0.1, ranks, rows_between).factor

    assert 1.0 < factor(1, 1) < factor(8, 1) < factor(64, 1)
    assert factor(64, 64) < factor(64, 4) < factor(64, 1)
    # uniform to 1000: the longest of 64 is nearly twice the mean (its square a little more)
    assert factor(64, 1) > 1.7
    assert factor(64, 1) <= 2.2


def test_nothing_to_pack_is_refused() -> None:
    with pytest.raises(SilicastError, match="at least one token"):
        packed(np.array([], dtype=np.int64), 8)
