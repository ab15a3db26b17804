"""Forests with regions, quantiles, odds and choices: what only the making of constants trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, exp_fixed
from silicast.learning.boosting import (
    BINS,
    Settings,
    best_question,
    bin_tables,
    drawn_features,
    grown,
    in_a_byte,
    leaf_numbers,
)
from silicast.learning.forest import LEAF_SCALE, U8, Forest, Trees, binned, codes, regions

ROWS_A_REGION = 2000
SMALLEST_REGION = 600
"""A split leaves at least so many rows on either side."""
OWN_PRIOR = 4.0
OWN_ROWS = 0.6


def train_forest(columns: F64, target: F64, settings: Settings = Settings()) -> Forest:
    """Common trees, regions and the trees of each; arguments as of :func:`train`."""
    tables = bin_tables(columns)
    bins = binned(tables, codes(columns))
    common = grown(tables, bins, target, settings)
    count = min(settings.regions, len(target) // ROWS_A_REGION)
    splits = _splits(bins, target, count)
    if not len(splits):
        return Forest(common, splits)
    left = target - common.of_bins(bins).astype(np.float64) * LEAF_SCALE
    region = regions(splits, bins)
    apart = replace(settings, trees=settings.own_trees, prior=OWN_PRIOR, rows=OWN_ROWS)
    own_trees = []
    for number in range(len(splits) + 1):
        rows = np.flatnonzero(region == number)
        own_trees.append(grown(tables, bins[:, rows], left[rows], apart))
    return Forest(common, splits, tuple(own_trees))


def train_quantile(
    bins: U8, columns: F64, target: F64, quantile: float, settings: Settings
) -> Trees:
    """Trees whose sum approximates a quantile of ``target`` instead of its middle.

    Args:
        bins: tables as of :func:`bin_tables`.
        columns, target: as of :func:`train`.
        quantile: 0..1.
    """
    return grown(bins, binned(bins, codes(columns)), target, settings, quantile)


def train_odds(
    columns: F64, label: F64, weight: F64, settings: Settings = Settings(), start: float = 0.0
) -> Trees:
    """Trees whose sum approximates the log of the odds of a label: gradient boosting of the
    logistic loss with Newton steps.

    Args:
        columns: features of shape (F, n), none negative.
        label: 0 or 1, shape (n,); weight: of each row.
        start: added to the sum before the first tree.
    """

    def pull(log_odds: F64) -> tuple[F64, F64]:
        chance = 1.0 / (1.0 + np.exp(-log_odds))
        return weight * (label - chance), weight * chance * (1.0 - chance)

    tables = bin_tables(columns)
    return _newton(tables, columns, np.full(len(label), start), pull, settings)


def train_choice(
    tables: U8,
    columns: F64,
    chosen: F64,
    first: NDArray[np.int64],
    start: F64,
    settings: Settings = Settings(),
) -> Trees:
    """Trees whose sum approximates the log of the chance that a row is chosen among those of its
    list, up to what all of a list share: gradient boosting of the softmax loss.

    Args:
        tables: as of :func:`bin_tables`.
        columns: features of shape (F, n), none negative; rows of a list follow one another.
        chosen: shape (n,), sums to 1 in each list: how the choice is spread.
        first: the first row of each list, shape (lists,), ascending, beginning with 0.
        start: shape (n,), added to the sum before the first tree: for a row that stands for
            several that were not drawn, the log of how many.
    """
    repeat = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(chosen))))

    def pull(log: F64) -> tuple[F64, F64]:
        raised = exp_fixed(log - np.maximum.reduceat(log, first)[repeat])
        chance = raised / np.add.reduceat(raised, first)[repeat]
        return chosen - chance, chance * (1.0 - chance)

    return _newton(tables, columns, start.copy(), pull, settings)


def _newton(
    tables: U8,
    columns: F64,
    log: F64,
    pull_of: Callable[[F64], tuple[F64, F64]],
    settings: Settings,
) -> Trees:
    """Boosting with Newton steps.

    Args:
        tables: as of :func:`bin_tables`; columns: features of shape (F, n).
        log: the sum before the first tree, shape (n,); changed.
        pull_of: the sum -> descent and curvature of the loss.
    """
    bins = binned(tables, codes(columns))
    rng, count, depth = np.random.default_rng(settings.seed), len(log), settings.depth
    features = np.zeros((settings.trees, depth), np.int16)
    thresholds = np.zeros((settings.trees, depth), np.uint8)
    leaves = np.zeros((settings.trees, 1 << depth), np.int16)
    for tree in range(settings.trees):
        pull, mass = pull_of(log)
        rows = np.sort(rng.permutation(count)[: max(1, round(settings.rows * count))])
        drawn = drawn_features(rng, len(tables), settings)
        seen, number = bins[:, rows], np.zeros(len(rows), dtype=np.int64)
        for level in range(depth):
            feature, threshold = best_question(
                seen, drawn, number, pull[rows], 1 << level, settings.prior, mass[rows]
            )
            features[tree, level], thresholds[tree, level] = feature, threshold
            number |= (seen[feature] >= threshold).astype(np.int64) << level
        whole = leaf_numbers(bins, features[tree], thresholds[tree])
        held = np.bincount(whole, mass, 1 << depth) + settings.prior
        total: F64 = (np.bincount(whole, pull, 1 << depth) / held).astype(np.float64)
        leaves[tree] = in_a_byte(settings.rate * total / LEAF_SCALE)
        log += leaves[tree][whole] * LEAF_SCALE
    return Trees(tables, features, thresholds, leaves)


def _splits(bins: U8, target: F64, count: int) -> NDArray[np.int16]:
    """Best first: the splits that lower the squared error most; shape (at most count - 1, 3)."""
    region = np.zeros(len(target), dtype=np.int64)
    splits: list[tuple[int, int, int]] = []
    open_ones = {0: _best_split(bins, target)}
    while len(splits) < count - 1:
        chosen = max(open_ones, key=lambda number: open_ones[number][0])
        gain, feature, first = open_ones[chosen]
        if gain <= 0.0:
            break
        splits.append((chosen, feature, first))
        region[(region == chosen) & (bins[feature] >= first)] = len(splits)
        for number in (chosen, len(splits)):
            rows = np.flatnonzero(region == number)
            open_ones[number] = _best_split(bins[:, rows], target[rows])
    return np.array(splits, dtype=np.int16).reshape(-1, 3)


def _best_split(bins: U8, target: F64) -> tuple[float, int, int]:
    """Gain, feature and bin of the best split of some rows; gain 0 = there is none."""
    count, best = len(target), (0.0, 0, 0)
    pull = target - target.mean() if count else target
    for feature, column in enumerate(bins):
        left = np.cumsum(np.bincount(column, pull, BINS))[:-1]
        mass = np.cumsum(np.bincount(column, minlength=BINS))[:-1]
        allowed = (mass >= SMALLEST_REGION) & (count - mass >= SMALLEST_REGION)
        if allowed.any():
            gains = np.where(
                allowed, left**2 / np.maximum(mass, 1) + left**2 / np.maximum(count - mass, 1), 0.0
            )
            first = int(np.argmax(gains))
            if gains[first] > best[0]:
                best = (float(gains[first]), feature, first + 1)
    return best
