"""Sums of oblivious trees: the same bits alone and in any batch, and what they say by hand."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.learning.boosting import Settings, bin_tables, train
from silicast.learning.forest import CODES, LEAF_SCALE, Trees, codes


def stump() -> Trees:
    """One question: is the only feature at least 2?"""
    bins = (np.arange(CODES) >= codes(np.array([2.0]))[0]).astype(np.uint8)[None]
    return Trees(
        bins, np.zeros((1, 1), np.int16), np.ones((1, 1), np.uint8),
        np.array([[-4096, 2048]], np.int16),
    )  # fmt: skip


def random_rows(count: int, seed: int = 0) -> F64:
    random_rows: F64 = np.exp(np.random.default_rng(seed).normal(0.0, 3.0, (3, count)))
    return random_rows


def law(rows: F64) -> F64:
    """Something with an interaction and a step."""
    law: F64 = np.log(rows[0]) * 0.1 + np.where(rows[1] > 1.0, 0.3, 0.0) * (rows[2] > 0.5)
    return law


def test_a_stump_by_hand() -> None:
    evaluate = stump().evaluate(np.array([[0.0, 1.99, 2.0, 1e9]]))
    assert evaluate.tolist() == [-1.0, -1.0, 0.5, 0.5]


def test_codes_grow_with_the_number() -> None:
    numbers = np.sort(np.concatenate(([0.0], np.exp(np.linspace(-30.0, 30.0, 5000)))))
    result = codes(numbers)
    assert (np.diff(result) >= 0).all()
    assert result[0] == 0
    assert result[-1] == CODES - 1
    # a sixteenth of an octave is told apart everywhere in between
    inner = np.exp2(np.arange(-30.0, 30.0))
    assert (codes(inner * 1.0626) > codes(inner)).all()


def test_bits_do_not_depend_on_the_batch() -> None:
    rows = random_rows(40_000)
    trees = train(rows[:, :3000], law(rows[:, :3000]), settings=Settings(trees=12, depth=4))
    whole = trees.evaluate(rows)
    for start, end in ((0, 1), (7, 70), (100, 164), (5, 1300), (16_000, 33_000)):
        assert (trees.evaluate(rows[:, start:end]) == whole[start:end]).all()
    order = np.random.default_rng(1).permutation(rows.shape[1])
    assert (trees.evaluate(rows[:, order]) == whole[order]).all()


def test_training_repeats_itself_and_learns() -> None:
    rows, new = random_rows(20_000), random_rows(5_000, seed=9)
    settings = Settings(trees=80, depth=5)
    first, second = (train(rows, law(rows), settings=settings) for _ in range(2))
    assert (first.leaves == second.leaves).all()
    assert (first.features == second.features).all()
    left = first.evaluate(new) - law(new)
    assert np.abs(left).mean() < 0.1 * np.abs(law(new)).mean()


def test_outliers_do_not_steer() -> None:
    rows = random_rows(8_000)
    target = law(rows)
    target[::50] += 8.0
    left = train(rows, target, settings=Settings(trees=80)).evaluate(rows) - law(rows)
    assert abs(float(np.median(left))) < 0.02


def test_a_leaf_is_a_whole_number_of_steps() -> None:
    rows = random_rows(500)
    evaluate = train(rows, law(rows), settings=Settings(trees=3, depth=2)).evaluate(rows)
    assert (evaluate / LEAF_SCALE == np.round(evaluate / LEAF_SCALE)).all()


def test_bins_are_monotonic_and_few() -> None:
    tables = bin_tables(random_rows(5_000))
    assert (np.diff(tables.astype(int), axis=1) >= 0).all()
    assert tables.max() < 64


def test_shapes_that_do_not_fit_are_refused() -> None:
    good = stump()
    with pytest.raises(ValueError, match="shapes"):
        Trees(good.bins, good.features, good.thresholds, good.leaves[:, :1])
    with pytest.raises(ValueError, match="feature"):
        Trees(good.bins, good.features + 1, good.thresholds, good.leaves)
