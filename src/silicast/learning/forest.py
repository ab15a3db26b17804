"""Trees of all rows and trees of each region: what one device's kernels have in common, and apart.

Oblivious trees ask the same questions everywhere; kernels of a handful of rows and those of ten
thousand have little in common to ask. A few splits cut the features' space into regions; each has
trees of its own on top of the common ones. A row costs its common and its own trees, however many
regions there are, and all of it is integer, so that the bits are those of any batch and order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.learning.oblivious import I16, U8, Trees, TreeSums, binned, codes, scaled


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

    def of_codes(self, result: I16) -> F64:
        """The same for features' codes, shape (F, n)."""
        total: F64 = self._alone.of_bins(binned(self.common.bins, result))[0]
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
    result = 0
    for number, (region, feature, first) in enumerate(splits):
        if region == result and bins[feature] >= first:
            result = number + 1
    return result
