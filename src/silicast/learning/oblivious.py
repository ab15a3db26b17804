"""Sums of oblivious trees: every node of one level asks the same question.

A tree of depth d asks d questions ("is feature f at least t?"); the d answers are the bits of the
leaf's number. That makes a row a handful of byte operations, the same for one row and for a
million, and the leaves are integers, so that a sum has the same bits in any order.

A feature enters as its bin: a positive number's exponent and the first bits of its mantissa, read
from its IEEE bits (piecewise linear between powers of two), looked up in a table of bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64

U8 = NDArray[np.uint8]

OCTAVES = 32
"""Powers of two on either side of 1 that a feature's code tells apart."""
STEPS = 16
"""Codes an octave."""
CODES = 2 * OCTAVES * STEPS
LEAF_SCALE = 1.0 / 4096.0
"""Of a leaf's integer: a resolution of a fortieth of a percent."""

_SHIFT = np.int64(52 - 4)
_LOWEST = np.int64((1023 - OCTAVES) * STEPS)
_CHUNK = 1 << 14
_FEW = 16
_SOME = 8192
_BLOCK = 256
"""Rows whose answers to all trees stay in a core's cache."""


def codes(values: F64) -> I64:
    """A monotonic code of non-negative numbers, 0..CODES - 1; shape as ``values``.

    >>> codes(np.array([0.0, 1.0, 1.0625, 2.0])).tolist()
    [0, 512, 513, 528]
    """
    raw = (np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _SHIFT) - _LOWEST
    found: I64 = np.minimum(np.maximum(raw, 0), CODES - 1)
    return found


def binned(bins: U8, found: I64) -> U8:
    """The bins of codes, both with a row a feature; shape as ``found``."""
    places = found + np.arange(0, bins.size, bins.shape[1]).reshape(-1, 1)
    picked: U8 = bins.reshape(-1).take(places)
    return picked


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
    features: NDArray[np.int16]
    thresholds: U8
    leaves: NDArray[np.int16]

    def __post_init__(self) -> None:
        trees, depth = self.features.shape
        wanted = ((len(self.bins), CODES), (trees, depth), (trees, 1 << depth))
        found = (self.bins.shape, self.thresholds.shape, self.leaves.shape)
        if found != wanted or not 1 <= depth <= 8:
            raise ValueError(f"trees of shapes {found}, expected {wanted}")
        if trees and not 0 <= int(self.features.min()) <= int(self.features.max()) < len(self.bins):
            raise ValueError("a tree asks for a feature that there is not")

    def evaluate(self, columns: F64) -> F64:
        """The sum of all trees, shape (n,), for features of shape (F, n), none negative."""
        return self.of_codes(codes(columns))

    def of_codes(self, found: I64) -> F64:
        """The same for features' codes, shape (F, n)."""
        return self.of_bins(binned(self.bins, found)).astype(np.float64) * LEAF_SCALE

    def of_bins(self, found: U8) -> I64:
        """The same for features' bins, shape (F, n), in units of :data:`LEAF_SCALE`."""
        count = found.shape[1]
        if count <= _FEW:
            return self._few(found)
        if count <= _SOME:
            return self._some(found)
        total = np.empty(count, dtype=np.int64)
        for start in range(0, count, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            total[chunk] = self._many(np.ascontiguousarray(found[:, chunk]))
        return total

    def _few(self, binned: U8) -> I64:
        """All trees of some rows at once."""
        trees, depth = self.features.shape
        if not trees:
            return np.zeros(binned.shape[1], dtype=np.int64)
        answers = binned[self.features.reshape(-1)] >= self.thresholds.reshape(-1, 1)
        # the answers of a tree are the bits of one byte, the first the lowest
        numbers = np.packbits(answers.reshape(trees, depth, -1), axis=1, bitorder="little")[:, 0]
        first = np.arange(0, trees << depth, 1 << depth).reshape(-1, 1)
        total: I64 = self.leaves.reshape(-1)[first + numbers].sum(axis=0, dtype=np.int64)
        return total

    def _some(self, binned: U8) -> I64:
        """All trees of a block of rows at once, one block after the other."""
        trees, depth = self.features.shape
        count = binned.shape[1]
        total = np.zeros(count, dtype=np.int64)
        if not trees:
            return total
        features = self.features.T.reshape(-1)
        thresholds = self.thresholds.T.reshape(-1, 1)
        first = np.arange(0, trees << depth, 1 << depth).reshape(-1, 1)
        leaves = self.leaves.reshape(-1)
        for start in range(0, count, _BLOCK):
            rows = slice(start, start + _BLOCK)
            block = np.ascontiguousarray(binned[:, rows])
            # level by level, so that each is one run of memory
            answers = (block[features] >= thresholds).view(np.uint8).reshape(depth, trees, -1)
            numbers = answers[depth - 1].copy()
            for level in range(depth - 2, -1, -1):
                np.add(numbers, numbers, out=numbers)
                np.bitwise_or(numbers, answers[level], out=numbers)
            total[rows] = leaves.take(first + numbers).sum(axis=0, dtype=np.int64)
        return total

    def _many(self, binned: U8) -> I64:
        """One tree after the other over many rows."""
        count = binned.shape[1]
        total = np.zeros(count, dtype=np.int32)
        number = np.empty(count, dtype=np.uint8)
        answer = np.empty(count, dtype=np.bool_)
        leaf = np.empty(count, dtype=np.int16)
        for features, thresholds, leaves in zip(
            self.features.tolist(), self.thresholds.tolist(), self.leaves, strict=True
        ):
            number.fill(0)
            for feature, threshold in zip(reversed(features), reversed(thresholds), strict=True):
                np.greater_equal(binned[feature], threshold, out=answer)
                np.add(number, number, out=number)
                np.bitwise_or(number, answer.view(np.uint8), out=number)
            np.take(leaves, number, out=leaf)
            np.add(total, leaf, out=total)
        return total.astype(np.int64)


def no_trees(bins: U8) -> Trees:
    """Trees whose sum is 0.

    >>> no_trees(np.zeros((2, CODES), dtype=np.uint8)).evaluate(np.ones((2, 3))).tolist()
    [0.0, 0.0, 0.0]
    """
    return Trees(
        bins, np.zeros((0, 1), np.int16), np.zeros((0, 1), np.uint8), np.zeros((0, 2), np.int16)
    )
