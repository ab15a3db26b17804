"""Training of :class:`~silicast.learning.forest.Trees`: boosting on histograms, repeatable.

Each tree fits what the ones before it left over. A level takes the question that lowers the squared
error of the clipped residuals most, summed over all nodes of the level (the questions are shared);
clipping makes the loss Huber's, so that the outliers of a campaign do not steer the trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.learning.forest import CODES, LEAF_SCALE, U8, Trees, binned, codes

BINS = 64


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        trees, depth, rate: size of the sum and the share of a leaf's mean that a tree takes.
        regions: of a forest, at most; one for every :data:`lab.boosted_forests.ROWS_A_REGION` rows.
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


def drawn_features(rng: np.random.Generator, count: int, settings: Settings) -> NDArray[np.int64]:
    """The features that one tree may ask for."""
    return np.sort(rng.permutation(count)[: max(1, round(settings.columns * count))])


def leaf_numbers(bins: U8, features: NDArray[np.int16], thresholds: U8) -> NDArray[np.int64]:
    """The leaf of one tree that each row falls into."""
    numbers = np.zeros(bins.shape[1], dtype=np.int64)
    for level, (feature, threshold) in enumerate(zip(features, thresholds, strict=True)):
        numbers |= (bins[feature] >= threshold).astype(np.int64) << level
    return numbers


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
        drawn = drawn_features(rng, len(tables), settings)
        if quantile is None:
            limit = settings.clip * float(np.quantile(np.abs(residual[rows]), 0.8)) + 1e-12
            clipped = np.clip(residual, -limit, limit)
        else:
            clipped = np.where(residual > 0.0, quantile, quantile - 1.0)
        number = np.zeros(per_tree, dtype=np.int64)
        seen, pull = binned_rows[:, rows], clipped[rows]
        for level in range(depth):
            feature, threshold = best_question(
                seen, drawn, number, pull, 1 << level, settings.prior
            )
            features[tree, level], thresholds[tree, level] = feature, threshold
            number |= (seen[feature] >= threshold).astype(np.int64) << level
        whole = leaf_numbers(binned_rows, features[tree], thresholds[tree])
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


def best_question(
    seen: U8,
    drawn: NDArray[np.int64],
    number: NDArray[np.int64],
    pull: F64,
    nodes: int,
    prior: float,
    weight: F64 | None = None,
) -> tuple[int, int]:
    """The question (feature, bin) that all nodes of a level gain most from, the first of equals;
    rows count 1 where they have no weight.
    """
    best, question = -1.0, (int(drawn[0]), 255)
    base = number * BINS
    for feature in drawn.tolist():
        cell = base + seen[feature]
        sums = np.bincount(cell, pull, nodes * BINS).reshape(nodes, BINS)
        mass = np.bincount(cell, weight, nodes * BINS).reshape(nodes, BINS)
        left, left_mass = np.cumsum(sums, axis=1), np.cumsum(mass, axis=1)
        right, right_mass = left[:, -1:] - left, left_mass[:, -1:] - left_mass
        gain = left**2 / (left_mass + prior) + right**2 / (right_mass + prior)
        gains = gain.sum(axis=0)[:-1]
        threshold = int(np.argmax(gains))
        if gains[threshold] > best:
            best, question = float(gains[threshold]), (feature, threshold + 1)
    return question
