"""Training of :class:`~silicast.learning.oblivious.Trees`: boosting on histograms, repeatable.

Each tree fits what the ones before it left over. A level takes the question that lowers the squared
error of the clipped residuals most, summed over all nodes of the level (the questions are shared);
clipping makes the loss Huber's, so that the outliers of a campaign do not steer the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.learning.oblivious import CODES, LEAF_SCALE, U8, Trees, codes

BINS = 64


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How to train.

    Attributes:
        trees, depth, rate: size of the sum and the share of a leaf's mean that a tree takes.
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
    rng = np.random.default_rng(settings.seed)
    tables = bin_tables(columns)
    binned = np.stack([table[codes(row)] for table, row in zip(tables, columns, strict=True)])
    count, depth = len(target), settings.depth
    residual = np.array(target, dtype=np.float64)
    shape = (settings.trees, depth)
    features, thresholds = np.zeros(shape, np.int16), np.zeros(shape, np.uint8)
    leaves = np.zeros((settings.trees, 1 << depth), np.int16)
    per_tree = max(1, min(count, round(settings.rows * count)))
    for tree in range(settings.trees):
        rows = np.sort(rng.permutation(count)[:per_tree])
        asked = np.sort(
            rng.permutation(len(columns))[: max(1, round(settings.columns * len(columns)))]
        )
        limit = settings.clip * float(np.quantile(np.abs(residual[rows]), 0.8)) + 1e-12
        clipped = np.clip(residual, -limit, limit)
        number = np.zeros(per_tree, dtype=np.int64)
        seen, pull = binned[:, rows], clipped[rows]
        for level in range(depth):
            feature, threshold = _best(seen, asked, number, pull, 1 << level, settings.prior)
            features[tree, level], thresholds[tree, level] = feature, threshold
            number |= (seen[feature] >= threshold).astype(np.int64) << level
        whole = np.zeros(count, dtype=np.int64)
        for level in range(depth):
            whole |= (binned[features[tree, level]] >= thresholds[tree, level]).astype(
                np.int64
            ) << level
        size = 1 << depth
        total = np.bincount(whole, clipped, size)
        mass = np.bincount(whole, minlength=size) + settings.prior
        leaf = np.round(settings.rate * total / mass / LEAF_SCALE)
        leaves[tree] = np.clip(leaf, -32768, 32767).astype(np.int16)
        residual -= leaves[tree][whole] * LEAF_SCALE
    return Trees(tables, features, thresholds, leaves)


def _best(
    seen: U8,
    asked: NDArray[np.int64],
    number: NDArray[np.int64],
    pull: F64,
    nodes: int,
    prior: float,
) -> tuple[int, int]:
    """The question (feature, bin) that all nodes of a level gain most from, the first of equals."""
    best, found = -1.0, (int(asked[0]), 255)
    base = number * BINS
    for feature in asked.tolist():
        cell = base + seen[feature]
        sums = np.bincount(cell, pull, nodes * BINS).reshape(nodes, BINS)
        mass = np.bincount(cell, minlength=nodes * BINS).reshape(nodes, BINS)
        left, left_mass = np.cumsum(sums, axis=1), np.cumsum(mass, axis=1)
        right, right_mass = left[:, -1:] - left, left_mass[:, -1:] - left_mass
        gain = left**2 / (left_mass + prior) + right**2 / (right_mass + prior)
        gains = gain.sum(axis=0)[:-1]
        threshold = int(np.argmax(gains))
        if gains[threshold] > best:
            best, found = float(gains[threshold]), (feature, threshold + 1)
    return found
