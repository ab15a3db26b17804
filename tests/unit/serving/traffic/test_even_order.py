"""Orders that mix neighbours evenly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.serving.traffic.even_order import REGISTERS, _period, even_order
from silicast.serving.traffic.lengths import even_gamma, unit_gamma

SEQUENCES = range(3)


@pytest.mark.parametrize("bits", REGISTERS)
def test_a_register_makes_each_number_but_zero_once(bits: int) -> None:
    """A step that has a factor in common with the period, or a polynomial that is not primitive,
    repeats numbers.
    """
    for sequence in SEQUENCES:
        assert sorted(_period(bits, sequence)) == list(range(1, 1 << bits))


@pytest.mark.parametrize("bits", [12, 13])
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_neighbours_fill_all_boxes_alike(bits: int, sequence: int) -> None:
    """A t-value of at most 4 in three dimensions: of boxes with 2^-(bits - 4) of the space each has
    16 points (15 where the point that is left out, 0, would be). Numbers that do not know of each
    other have a standard deviation of 4 there.
    """
    numbers = _period(bits, sequence)
    triples = np.stack([numbers, np.roll(numbers, -1), np.roll(numbers, -2)])
    for one in range(bits - 3):
        for other in range(bits - 3 - one):
            shape = (one, other, bits - 4 - one - other)
            cells = [each >> (bits - digits) for each, digits in zip(triples, shape, strict=True)]
            box = (cells[0] << (shape[1] + shape[2])) + (cells[1] << shape[2]) + cells[2]
            assert set(np.bincount(box)) <= {15, 16}


@pytest.mark.parametrize("count", [1, 2, 63, 64, 1000, 3000, 4000, 40_000])
def test_an_order_has_each_rank_once_and_differs_by_seed(count: int) -> None:
    orders = [even_order(np.random.default_rng(seed), count) for seed in (0, 1)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert count < 8 or (orders[0] != orders[1]).mean() > 0.9


def test_sequences_do_not_follow_each_other() -> None:
    for one, other in itertools.combinations(SEQUENCES, 2):
        ranks = [even_order(np.random.default_rng(5), 4000, each) for each in (one, other)]
        for lag in range(20):
            assert abs(np.corrcoef(ranks[0], np.roll(ranks[1], lag))[0, 1]) < 0.1


def waits(gaps: F64, use: float) -> F64:
    """Waiting times at a queue with services of ``use`` mean gaps (Lindley)."""
    walk = np.concatenate([[0.0], np.cumsum(use - gaps[1:])])
    result: F64 = walk - np.minimum.accumulate(walk)
    return result


def test_waits_at_a_queue_are_those_of_theory_and_differ_less_than_chance() -> None:
    """M/D/1 at use 0.4 waits 0.4 / (2 (1 - 0.4)) services in the mean (Pollaczek and Khinchine)."""
    means = {}
    for name, draw in (("even", even_gamma), ("chance", unit_gamma)):
        drawn = [draw(np.random.default_rng(seed), 4000, 1.0) for seed in range(60)]
        means[name] = np.array([waits(gaps, 0.4).mean() / 0.4 for gaps in drawn])
    expected = 0.4 / (2.0 * 0.6)
    assert means["even"].mean() == pytest.approx(expected, rel=0.01)
    assert means["even"].std() < 0.5 * means["chance"].std()
    assert math.isclose(means["chance"].mean(), expected, rel_tol=0.03)
