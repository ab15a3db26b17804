"""Forests: sums of oblivious trees, common to all rows and of regions.

Trees of all rows and trees of each region: what one device's kernels have in common, and apart.

Oblivious trees ask the same questions everywhere; kernels of a handful of rows and those of ten
thousand have little in common to ask. A few splits cut the features' space into regions; each has
trees of its own on top of the common ones. A row costs its common and its own trees, however many
regions there are, and all of it is integer, so that the bits are those of any batch and order.

Sums of oblivious trees: every node of one level asks the same question.

A tree of depth d asks d questions ("is feature f at least t?"); the d answers are the bits of the
leaf's number. That makes a row a handful of byte operations, the same for one row and for a
million, and the leaves are integers, so that a sum has the same bits in any order.

A feature enters as its bin: a positive number's exponent and the first bits of its mantissa, read
from its IEEE bits (piecewise linear between powers of two), looked up in a table of bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64

U8 = NDArray[np.uint8]
I16 = NDArray[np.int16]

OCTAVES = 32
"""Powers of two on either side of 1 that a feature's code tells apart."""
STEPS = 16
"""Codes an octave: the first 4 bits of the mantissa."""
CODES = 2 * OCTAVES * STEPS
LEAF_SCALE = 1.0 / 4096.0
"""Unit of a leaf's integer: a resolution of a fortieth of a percent."""

_LOWEST = (1023 - OCTAVES) * STEPS
_FEW = 16
"""Up to so many rows, packing the answers' bits in one call is quicker than level by level."""
_LEAVES = 1 << 16
"""Leaves looked up at once: what a core's cache holds with all that leads to them."""


def codes(values: F64) -> I16:
    """A monotonic code of non-negative numbers, 0..CODES - 1; shape as ``values``.

    >>> codes(np.array([0.0, 1.0, 1.0625, 2.0])).tolist()
    [0, 512, 513, 528]
    """
    return clipped(leading_bits(values))


def leading_bits(values: F64 | I64) -> I16:
    """Sign, exponent and the first 4 bits of the mantissa of numbers as floats: the upper two bytes
    of each, without a copy where they are floats already.
    """
    bits: I16 = np.ascontiguousarray(values, dtype="<f8").view("<i2")[..., 3::4]
    return bits


def clipped(bits: I16) -> I16:
    """Codes of leading bits, limited to the range that bins cover."""
    clipped: I16 = np.minimum(np.maximum(bits, _LOWEST), _LOWEST + CODES - 1)
    clipped -= _LOWEST
    return clipped


def binned(bins: U8, feature_codes: I16 | I64) -> U8:
    """The bins of codes, both with a row a feature; shape as ``feature_codes``."""
    picked: U8 = bins.reshape(-1).take(_places(feature_codes, bins.size, bins.shape[1]))
    return picked


def _places(columns: NDArray[Any], size: int, width: int) -> I64:
    """Places in a flat table of ``size`` values from each row's columns; its rows are ``width``
    long. Narrow sums that are widened at once are quicker than wide sums.
    """
    first = np.arange(0, size, width, dtype=np.uint16 if size <= 1 << 16 else np.int32)
    indices: I64 = (columns + first.reshape(-1, 1)).astype(np.int64)
    return indices


@final
@dataclass(frozen=True)
class Trees:
    """A trained sum of ``T`` trees of depth ``D`` over ``F`` features.

    Attributes:
        bins: shape (F, CODES), uint8: the bin of every code; monotonic.
        features: shape (T, D), int16: which feature each level asks for.
        thresholds: shape (T, D), uint8: the answer is yes from this bin on.
        leaves: shape (T, 2**D), int16, in units of :data:`LEAF_SCALE`.
    """

    bins: U8
    features: I16
    thresholds: U8
    leaves: I16

    def __post_init__(self) -> None:
        trees, depth = self.features.shape
        wanted = ((len(self.bins), CODES), (trees, depth), (trees, 1 << depth))
        shapes = (self.bins.shape, self.thresholds.shape, self.leaves.shape)
        if shapes != wanted or not 1 <= depth <= 8:
            raise ValueError(f"trees of shapes {shapes}, expected {wanted}")
        if trees and not 0 <= int(self.features.min()) <= int(self.features.max()) < len(self.bins):
            raise ValueError("a tree asks for a feature that there is not")

    @cached_property
    def _alone(self) -> TreeSums:
        return TreeSums([self])

    def evaluate(self, columns: F64) -> F64:
        """The sum of all trees, shape (n,), for features of shape (F, n), none negative."""
        return self.of_codes(codes(columns))

    def of_codes(self, feature_codes: I16) -> F64:
        """The same for features' codes, shape (F, n)."""
        return scaled(self.of_bins(binned(self.bins, feature_codes)))

    def of_bins(self, feature_bins: U8) -> I64:
        """The same for features' bins, shape (F, n), in units of :data:`LEAF_SCALE`."""
        total: I64 = self._alone.of_bins(feature_bins)[0]
        return total


@final
class TreeSums:
    """Several sums of trees over the same bins, evaluated in one pass.

    Args:
        parts: one or more sums; trees of less depth than the deepest repeat their leaves.
    """

    def __init__(self, parts: Sequence[Trees]) -> None:
        depth = max(part.features.shape[1] for part in parts)
        counts = [len(part.features) for part in parts]
        features = np.zeros((depth, sum(counts)), dtype=np.int64)
        thresholds = np.zeros((depth, sum(counts)), dtype=np.uint8)
        leaves = np.zeros((sum(counts), 1 << depth), dtype=np.int16)
        borders = np.concatenate(([0], np.cumsum(counts))).tolist()
        self._trees = [slice(first, last) for first, last in pairwise(borders)]
        for part, trees in zip(parts, self._trees, strict=True):
            depth_of_part = part.features.shape[1]
            features[:depth_of_part, trees] = part.features.T
            thresholds[:depth_of_part, trees] = part.thresholds.T
            leaves[trees] = np.tile(part.leaves, 1 << (depth - depth_of_part))
        self._depth, self._count = depth, sum(counts)
        # level by level, so that the answers of each are one run of memory
        self._features = features.reshape(-1)
        self._thresholds = thresholds.reshape(-1, 1)
        self._width = 1 << depth
        self._leaves = leaves.reshape(-1)

    def of_bins(self, bins: U8) -> I64:
        """The sums for features' bins of shape (F, n), in units of :data:`LEAF_SCALE`; shape
        (parts, n).
        """
        count = bins.shape[1]
        total = np.empty((len(self._trees), count), dtype=np.int64)
        block = max(1, _LEAVES // max(self._count, 1))
        for start in range(0, count, block):
            rows = slice(start, start + block)
            numbers = self._leaf_numbers(bins[:, rows])
            leaf = self._leaves.take(_places(numbers, self._leaves.size, self._width), mode="wrap")
            for part, trees in enumerate(self._trees):
                np.add.reduce(leaf[trees], axis=0, dtype=np.int32, out=total[part, rows])
        return total

    def _leaf_numbers(self, bins: U8) -> U8:
        """The leaf of every tree and row, shape (trees, rows)."""
        asked_bins = np.ascontiguousarray(bins).take(self._features, axis=0)
        answers = (asked_bins >= self._thresholds).view(np.uint8)
        answers = answers.reshape(self._depth, self._count, bins.shape[1])
        if bins.shape[1] <= _FEW:
            packed: U8 = np.packbits(answers, axis=0, bitorder="little")[0]
            return packed
        numbers: U8 = answers[-1]
        for level in range(self._depth - 2, -1, -1):
            np.add(numbers, numbers, out=numbers)
            np.bitwise_or(numbers, answers[level], out=numbers)
        return numbers


def scaled(sums: I64) -> F64:
    """Sums of leaves as logs of a factor."""
    return sums.astype(np.float64) * LEAF_SCALE


def no_trees(bins: U8) -> Trees:
    """Trees whose sum is 0.

    >>> no_trees(np.zeros((2, CODES), dtype=np.uint8)).evaluate(np.ones((2, 3))).tolist()
    [0.0, 0.0, 0.0]
    """
    return Trees(
        bins, np.zeros((0, 1), np.int16), np.zeros((0, 1), np.uint8), np.zeros((0, 2), np.int16)
    )


@final
@dataclass(frozen=True)
class Forest:
    """A trained sum of common trees and of those of a row's region.

    Attributes:
        common: trees of all rows; their bins hold for all trees.
        splits: shape (S, 3): region, feature, bin. Split i takes from its region the rows whose bin
            is at least that; they are region i + 1.
        own: trees of each of the S + 1 regions; empty where there is none.
    """

    common: Trees
    splits: NDArray[np.int16]
    own: tuple[Trees, ...] = ()

    def __post_init__(self) -> None:
        if self.splits.shape != (max(len(self.own) - 1, 0), 3):
            raise ValueError(f"splits of shape {self.splits.shape} for {len(self.own)} regions")
        if len(self.own) > 256:
            raise ValueError("more than 256 regions")
        for number, (region, feature, _) in enumerate(self.splits.tolist()):
            if not (0 <= region <= number and 0 <= feature < len(self.common.bins)):
                raise ValueError("a split of a region or feature that there is not")

    @cached_property
    def _alone(self) -> ForestSums:
        return ForestSums(self)

    def evaluate(self, columns: F64) -> F64:
        """The sum, shape (n,), for features of shape (F, n), none negative."""
        return self.of_codes(codes(columns))

    def of_codes(self, feature_codes: I16) -> F64:
        """The same for features' codes, shape (F, n)."""
        total: F64 = self._alone.of_bins(binned(self.common.bins, feature_codes))[0]
        return total


@final
class ForestSums:
    """A forest's sum and further sums of trees over the same bins, evaluated together.

    Args:
        forest: whose sum comes first.
        others: trees whose sums follow.
    """

    def __init__(self, forest: Forest, *others: Trees) -> None:
        self._forest, self._others = forest, others
        self._common = TreeSums([forest.common, *others])
        self._own: dict[int, TreeSums] = {}
        self._together: dict[int, TreeSums] = {}

    @property
    def parts(self) -> tuple[Trees, Trees, tuple[Trees, ...]]:
        """Trees of all rows, the further sum (there has to be one), and those of each region."""
        (other,) = self._others
        return self._forest.common, other, self._forest.own

    @property
    def splits(self) -> NDArray[np.int16]:
        """Of the regions: region, feature and bin of each, shape (S, 3)."""
        return self._forest.splits

    def of_bins(self, bins: U8) -> F64:
        """The sums, shape (1 + others, n), for features' bins of shape (F, n)."""
        forest = self._forest
        if bins.shape[1] == 1 and forest.own:
            total = self._of_one(_region(forest.splits.tolist(), bins[:, 0].tolist()), bins)
        else:
            total = self._common.of_bins(bins)
            if forest.own:
                self._add_own(regions(forest.splits, bins), bins, total)
        return scaled(total)

    def _of_one(self, region: int, bins: U8) -> I64:
        """Common trees and the region's in one pass."""
        sums = self._together.get(region)
        if sums is None:
            forest = self._forest
            sums = TreeSums([forest.common, *self._others, forest.own[region]])
            self._together[region] = sums
        result = sums.of_bins(bins)
        result[0] += result[-1]
        return result[:-1]

    def _add_own(self, region: U8, bins: U8, total: I64) -> None:
        for number in np.flatnonzero(np.bincount(region)).tolist():
            sums = self._own.get(number)
            if sums is None:
                sums = self._own[number] = TreeSums([self._forest.own[number]])
            rows = np.flatnonzero(region == number)
            total[0, rows] += sums.of_bins(bins.take(rows, axis=1))[0]


def regions(splits: NDArray[np.int16], bins: U8) -> U8:
    """The region of each row, shape (n,), for bins of shape (F, n)."""
    regions = np.zeros(bins.shape[1], dtype=np.uint8)
    for number, (region, feature, first) in enumerate(splits.tolist()):
        moves = (regions == region) & (bins[feature] >= first)
        regions += moves * np.uint8(number + 1 - region)
    return regions


def _region(splits: list[list[int]], bins: list[int]) -> int:
    """The region of one row; quicker in plain Python."""
    number_of_region = 0
    for number, (region, feature, first) in enumerate(splits):
        if region == number_of_region and bins[feature] >= first:
            number_of_region = number + 1
    return number_of_region
