"""The time that work has left is right where the pace holds, and sharpens where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.report.remaining import Remaining

SECONDS = st.floats(0.1, 1e4)


@given(pieces=st.integers(2, 200), each_s=SECONDS)
def test_alike_pieces_leave_what_is_left_of_them(pieces: int, each_s: float) -> None:
    remaining = Remaining(pieces)
    for done in range(1, pieces + 1):
        remaining.report(done, done * each_s)
        assert remaining.left_s(done * each_s) == pytest.approx((pieces - done) * each_s)


@given(foretold=st.lists(SECONDS, min_size=1, max_size=50))
def test_what_was_foretold_and_comes_true_is_told_throughout(foretold: list[float]) -> None:
    remaining = Remaining(len(foretold), foretold)
    elapsed = 0.0
    for done, seconds in enumerate(foretold):
        remaining.report(done, elapsed)
        half = elapsed + seconds / 2.0
        assert remaining.left_s(half) == pytest.approx(sum(foretold) - half, abs=1e-6)
        elapsed += seconds
    remaining.report(len(foretold), elapsed)
    assert remaining.left_s(elapsed) == 0.0


@given(slower=st.floats(0.2, 8.0))
def test_a_machine_of_another_speed_is_found_out(slower: float) -> None:
    foretold = [30.0] * 40
    remaining = Remaining(40, foretold)
    errors = []
    for done in range(40):
        elapsed = done * 30.0 * slower
        remaining.report(done, elapsed)
        truth = (40 - done) * 30.0 * slower
        told = remaining.left_s(elapsed)
        assert told is not None
        errors.append(abs(told / truth - 1.0))
    assert errors[0] == pytest.approx(abs(1.0 / slower - 1.0))
    assert max(errors[16:]) < 0.2
    assert max(errors[20:]) <= max(errors[:20])


def test_pieces_that_an_earlier_run_did_soon_count_for_nothing() -> None:
    remaining = Remaining(2000)
    for done in range(1001, 1500):
        remaining.report(done, float(done - 1000))
    assert remaining.left_s(499.0) == pytest.approx(501.0)


def test_a_piece_that_takes_longer_than_foretold_is_never_less_than_nothing() -> None:
    remaining = Remaining(2, [10.0, 20.0])
    assert remaining.left_s(100.0) == 20.0


def test_a_piece_of_which_nothing_is_known_is_as_the_others() -> None:
    assert Remaining(3, [10.0, None, 30.0]).left_s(5.0) == 55.0
    assert Remaining(2, [None, None]).left_s(5.0) is None


def test_more_pieces_than_were_counted_are_all() -> None:
    remaining = Remaining(2)
    remaining.report(5, 10.0)
    assert remaining.left_s(11.0) == 0.0
