"""Trees of all rows and trees of each region: what one device's kernels have in common, and apart.

Oblivious trees ask the same questions everywhere; kernels of a handful of rows and those of ten
thousand have little in common to ask. A few splits cut the features' space into regions; each has
trees of its own on top of the common ones. A row costs its common and its own trees, however many
regions there are, and all of it is integer, so that the bits are those of any batch and order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.learning.oblivious import LEAF_SCALE, U8, Trees, binned, codes

_ONE_BY_ONE = 4
"""Up to so many rows are led through the splits in plain Python, which is quicker."""


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
        for number, (region, feature, _) in enumerate(self.splits.tolist()):
            if not (0 <= region <= number and 0 <= feature < len(self.common.bins)):
                raise ValueError("a split of a region or feature that there is not")

    def evaluate(self, columns: F64) -> F64:
        """The sum, shape (n,), for features of shape (F, n), none negative."""
        return self.of_codes(codes(columns))

    def of_codes(self, found: I64) -> F64:
        """The same for features' codes, shape (F, n)."""
        bins = binned(self.common.bins, found)
        total = self.common.of_bins(bins)
        if self.own:
            region = regions(self.splits, bins)
            for number in sorted(set(region.tolist())):
                if found.shape[1] == 1:
                    total = total + self.own[number].of_bins(bins)
                else:
                    rows = np.flatnonzero(region == number)
                    total[rows] += self.own[number].of_bins(bins[:, rows])
        return total.astype(np.float64) * LEAF_SCALE


def regions(splits: NDArray[np.int16], bins: U8) -> I64:
    """The region of each row, shape (n,), for bins of shape (F, n)."""
    count = bins.shape[1]
    if count <= _ONE_BY_ONE:
        return np.array([_region(splits, bins[:, row]) for row in range(count)], dtype=np.int64)
    found = np.zeros(count, dtype=np.int64)
    for number, (region, feature, first) in enumerate(splits.tolist()):
        found[(found == region) & (bins[feature] >= first)] = number + 1
    return found


def _region(splits: NDArray[np.int16], row: U8) -> int:
    values = row.tolist()
    found = 0
    for number, (region, feature, first) in enumerate(splits.tolist()):
        if region == found and values[feature] >= first:
            found = number + 1
    return found
