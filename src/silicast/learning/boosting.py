"""Training of :class:`~silicast.learning.oblivious.Trees`: boosting on histograms, repeatable.

Each tree fits what the ones before it left over. A level takes the question that lowers the squared
error of the clipped residuals most, summed over all nodes of the level (the questions are shared);
clipping makes the loss Huber's, so that the outliers of a campaign do not steer the trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, exp_fixed
from silicast.learning.forest import Forest, regions
from silicast.learning.oblivious import CODES, LEAF_SCALE, U8, Trees, binned, codes

BINS = 64


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        trees, depth, rate: size of the sum and the share of a leaf's mean that a tree takes.
        regions: of a forest, at most; one for every :data:`ROWS_A_REGION` rows.
        own_trees: of each region.
        rows: share of the rows that each tree sees; columns: share of the features.
        prior: rows of residual zero that every leaf is shrunk with.
        clip: residuals are clipped at so many times the size that one in five exceeds.
        seed: of the rows and features that each tree sees.
    """

    trees: int = 160
    depth: int = 6
    rate: float = 0.15
    rows: float = 0.4
    columns: float = 0.6
    prior: float = 20.0
    clip: float = 1.6
    seed: int = 0
    regions: int = 16
    own_trees: int = 80


ROWS_A_REGION = 2000
SMALLEST_REGION = 600
"""A split leaves at least so many rows on either side."""
OWN_PRIOR = 4.0
OWN_ROWS = 0.6


def bin_tables(columns: F64, bins: int = BINS) -> U8:
    """For every feature the bin of each code, at quantiles of its values; shape (F, CODES)."""
    tables = np.zeros((len(columns), CODES), dtype=np.uint8)
    for row, column in enumerate(columns):
        counts = np.bincount(codes(column), minlength=CODES)
        reached = np.concatenate(([0], np.cumsum(counts)[:-1])) / max(int(counts.sum()), 1)
        # a bin begins where a new share of the rows has been passed, at codes that occur
        wanted = np.minimum((reached * bins).astype(np.int64), bins - 1)
        occurs = np.maximum.accumulate(np.where(counts > 0, wanted, 0))
        _, tables[row] = np.unique(occurs, return_inverse=True)
    return tables


def train(columns: F64, target: F64, settings: Settings = Settings()) -> Trees:
    """Trees whose sum approximates ``target``; the same bits in every run.

    Args:
        columns: features of shape (F, n), none negative.
        target: shape (n,), logs of ratios.
    """
    tables = bin_tables(columns)
    return grown(tables, binned(tables, codes(columns)), target, settings)


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
    current = []
    for number in range(len(splits) + 1):
        rows = np.flatnonzero(region == number)
        current.append(grown(tables, bins[:, rows], left[rows], apart))
    return Forest(common, splits, tuple(current))


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
        requested = _asked(rng, len(tables), settings)
        seen, number = bins[:, rows], np.zeros(len(rows), dtype=np.int64)
        for level in range(depth):
            feature, threshold = _best(
                seen, requested, number, pull[rows], 1 << level, settings.prior, mass[rows]
            )
            features[tree, level], thresholds[tree, level] = feature, threshold
            number |= (seen[feature] >= threshold).astype(np.int64) << level
        whole = _leaf_numbers(bins, features[tree], thresholds[tree])
        held = np.bincount(whole, mass, 1 << depth) + settings.prior
        total: F64 = (np.bincount(whole, pull, 1 << depth) / held).astype(np.float64)
        leaves[tree] = in_a_byte(settings.rate * total / LEAF_SCALE)
        log += leaves[tree][whole] * LEAF_SCALE
    return Trees(tables, features, thresholds, leaves)


def _asked(rng: np.random.Generator, count: int, settings: Settings) -> NDArray[np.int64]:
    """The features that one tree may ask for."""
    return np.sort(rng.permutation(count)[: max(1, round(settings.columns * count))])


def _leaf_numbers(bins: U8, features: NDArray[np.int16], thresholds: U8) -> NDArray[np.int64]:
    """The leaf of one tree that each row falls into."""
    leaf_numbers = np.zeros(bins.shape[1], dtype=np.int64)
    for level, (feature, threshold) in enumerate(zip(features, thresholds, strict=True)):
        leaf_numbers |= (bins[feature] >= threshold).astype(np.int64) << level
    return leaf_numbers


def _splits(bins: U8, target: F64, count: int) -> NDArray[np.int16]:
    """Best first: the splits that lower the squared error most; shape (at most count - 1, 3)."""
    region = np.zeros(len(target), dtype=np.int64)
    items: list[tuple[int, int, int]] = []
    open_ones = {0: _best_split(bins, target)}
    while len(items) < count - 1:
        chosen = max(open_ones, key=lambda number: open_ones[number][0])
        gain, feature, first = open_ones[chosen]
        if gain <= 0.0:
            break
        items.append((chosen, feature, first))
        region[(region == chosen) & (bins[feature] >= first)] = len(items)
        for number in (chosen, len(items)):
            rows = np.flatnonzero(region == number)
            open_ones[number] = _best_split(bins[:, rows], target[rows])
    return np.array(items, dtype=np.int16).reshape(-1, 3)


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


def grown(
    tables: U8, binned_rows: U8, target: F64, settings: Settings, quantile: float | None = None
) -> Trees:
    """Trees over rows whose bins are known.

    Args:
        tables: as of :func:`bin_tables`.
        binned_rows: bins of shape (F, n).
        quantile: the quantile they approximate, None = the middle.
    """
    rng = np.random.default_rng(settings.seed)
    count, depth = len(target), settings.depth
    residual = np.array(target, dtype=np.float64)
    shape = (settings.trees, depth)
    features, thresholds = np.zeros(shape, np.int16), np.zeros(shape, np.uint8)
    leaves = np.zeros((settings.trees, 1 << depth), np.int16)
    per_tree = max(1, min(count, round(settings.rows * count)))
    for tree in range(settings.trees):
        rows = np.sort(rng.permutation(count)[:per_tree])
        requested = _asked(rng, len(tables), settings)
        if quantile is None:
            limit = settings.clip * float(np.quantile(np.abs(residual[rows]), 0.8)) + 1e-12
            clipped = np.clip(residual, -limit, limit)
        else:
            clipped = np.where(residual > 0.0, quantile, quantile - 1.0)
        number = np.zeros(per_tree, dtype=np.int64)
        seen, pull = binned_rows[:, rows], clipped[rows]
        for level in range(depth):
            feature, threshold = _best(seen, requested, number, pull, 1 << level, settings.prior)
            features[tree, level], thresholds[tree, level] = feature, threshold
            number |= (seen[feature] >= threshold).astype(np.int64) << level
        whole = _leaf_numbers(binned_rows, features[tree], thresholds[tree])
        size = 1 << depth
        total: F64 = np.bincount(whole, clipped, size).astype(np.float64)
        if quantile is not None:
            total = _quantiles(whole, residual, size, quantile)
        mass = np.bincount(whole, minlength=size) + settings.prior
        leaves[tree] = in_a_byte(settings.rate * total / mass / LEAF_SCALE)
        residual -= leaves[tree][whole] * LEAF_SCALE
    return Trees(tables, features, thresholds, leaves)


def _quantiles(leaf: NDArray[np.int64], values: F64, size: int, quantile: float) -> F64:
    """The quantile of each leaf's values, times their number; shape (size,)."""
    order = np.lexsort((values, leaf))
    mass = np.bincount(leaf, minlength=size)
    last = np.cumsum(mass)
    at = last - mass + np.floor(quantile * np.maximum(mass - 1, 0)).astype(np.int64)
    picked = values[order][np.minimum(at, len(values) - 1)]
    quantiles: F64 = np.where(mass > 0, picked * mass, 0.0)
    return quantiles


def in_a_byte(leaf: F64) -> NDArray[np.int16]:
    """A tree's leaves in steps so wide that a byte holds them, so that artefacts stay small.

    >>> in_a_byte(np.array([1.4, -300.0, 2.6])).tolist()
    [0, -300, 4]
    """
    largest = min(float(np.abs(leaf).max()), 32000.0)
    step = 1 << max(0, math.ceil(math.log2(max(largest, 1.0) / 127.0)))
    return (np.clip(np.round(leaf / step), -127, 127) * step).astype(np.int16)


def _best(
    seen: U8,
    requested: NDArray[np.int64],
    number: NDArray[np.int64],
    pull: F64,
    nodes: int,
    prior: float,
    weight: F64 | None = None,
) -> tuple[int, int]:
    """The question (feature, bin) that all nodes of a level gain most from, the first of equals;
    rows count 1 where they have no weight.
    """
    best, items = -1.0, (int(requested[0]), 255)
    base = number * BINS
    for feature in requested.tolist():
        cell = base + seen[feature]
        sums = np.bincount(cell, pull, nodes * BINS).reshape(nodes, BINS)
        mass = np.bincount(cell, weight, nodes * BINS).reshape(nodes, BINS)
        left, left_mass = np.cumsum(sums, axis=1), np.cumsum(mass, axis=1)
        right, right_mass = left[:, -1:] - left, left_mass[:, -1:] - left_mass
        gain = left**2 / (left_mass + prior) + right**2 / (right_mass + prior)
        gains = gain.sum(axis=0)[:-1]
        threshold = int(np.argmax(gains))
        if gains[threshold] > best:
            best, items = float(gains[threshold]), (feature, threshold + 1)
    return items
