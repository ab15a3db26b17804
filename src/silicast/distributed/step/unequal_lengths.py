"""Sequences of unequal lengths in one batch: packed into rows, or padded; and who waits for whom.

A row that holds several documents attends within each of them alone, so that its attention costs
the sum of their squared lengths. A pass is priced for documents of one length that has the same
cost, and what rows differ makes data ranks wait for the one with most work.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Part, Prediction
from silicast.distributed.ranks.dispersion import Dispersion

MOST_SPREAD = 1.0
"""Of the logarithm of a rank's work."""
NAME = "unequal_lengths"


@final
@dataclass(frozen=True)
class Rows:
    """Rows that passes compute.

    Attributes:
        computed: tokens of each row, shape (n,); squares: sum over its documents of their squared
            lengths as they are computed, shape (n,).
        useful: tokens of documents, over all rows.
    """

    computed: F64
    squares: F64
    useful: int

    @property
    def document(self) -> float:
        """The length of documents of one length that cost the same."""
        return float(self.squares.sum() / self.computed.sum())

    @property
    def padded_share(self) -> float:
        """Of computed tokens, those that belong to no document."""
        return max(1.0 - self.useful / float(self.computed.sum()), 0.0)


def packed(lengths: I64, row: int) -> Rows:
    """Documents packed into rows, the longest first, each into the fullest row that holds it (best
    fit decreasing); longer ones are cut.

    >>> rows = packed(np.array([5, 4, 4, 3]), 8)
    >>> len(rows.computed), round(rows.padded_share, 4)
    (2, 0.0)
    """
    _check(lengths)
    space: list[tuple[int, int]] = []  # what is free in a row, and its number
    squares: list[int] = []
    cut = np.minimum(lengths, row)
    for length in sorted(cut.tolist(), reverse=True):
        at = bisect_left(space, (length, -1))
        if at == len(space):
            free, number = row, len(squares)
            squares.append(0)
        else:
            free, number = space.pop(at)
        squares[number] += length * length
        if free > length:
            insort(space, (free - length, number))
    whole = np.full(len(squares), float(row))
    return Rows(whole, np.array(squares, dtype=np.float64), int(cut.sum()))


def padded(lengths: I64, row: int, micro_batch: int) -> Rows:
    """Sequences padded to the longest of their micro-batch, of at most ``row`` tokens.

    >>> padded(np.array([2, 4, 8, 8]), 8, 2).computed.tolist()
    [4.0, 4.0, 8.0, 8.0]
    """
    _check(lengths)
    count = max(len(lengths) // micro_batch, 1) * micro_batch
    cut = np.minimum(np.resize(lengths, count), row).reshape(-1, micro_batch)
    longest = np.repeat(cut.max(axis=1), micro_batch).astype(np.float64)
    return Rows(longest, longest**2, int(cut.sum()))


def _check(lengths: I64) -> None:
    if not len(lengths) or int(lengths.min()) < 1:
        raise SilicastError("expected lengths of at least one token", field="lengths")


@final
@dataclass(frozen=True)
class UnequalLengths:
    """What rows of unequal cost make of a step.

    Attributes:
        factor: time of the slowest data rank, over that of a step of rows that are all alike.
        mean: the same of the mean rank.
        padded_share: of computed tokens, those that belong to no document.
    """

    factor: float
    mean: float
    padded_share: float

    @staticmethod
    def from_rows(
        rows: Rows, seq_len: int, documents: int, attention: float, ranks: int, waits_after: int
    ) -> UnequalLengths:
        """Of rows that a pass stands for.

        Args:
            seq_len, documents: of the pass: so many documents of so many tokens for each row.
            attention: share of its operations whose number grows with the square of lengths.
            ranks: that wait for each other; ``waits_after``: rows between two such moments.
        """
        tokens, squares = seq_len * documents, seq_len * seq_len * documents
        cost = (1.0 - attention) * rows.computed / tokens + attention * rows.squares / squares
        mean = float(cost.mean())
        spread = float(cost.std()) / mean / math.sqrt(waits_after)
        log_sd = min(math.sqrt(math.log1p(spread * spread)), MOST_SPREAD)
        slowest = 1.0
        if ranks > 1 and log_sd > 1e-9:
            slowest = 1.0 + Dispersion(log_sd).wait_for_slowest(ranks)
            slowest = min(slowest, float(cost.max()) / mean)  # no rank has only longest rows
        return UnequalLengths(mean * slowest, mean, rows.padded_share)

    def beside(self, step: Prediction) -> Prediction:
        """A step of rows that are alike with what unequal ones add to its passes."""
        children = step.part.children
        passes = sum(part.exposed_ps for part in children[:-1])
        more = round(passes * (self.factor - 1.0))
        if more < 1:
            return step
        part = Part(NAME, more, bound_by=step.part.bound_by)
        grouped = Part.group(step.part.name, (*children[:-1], part, children[-1]))
        return replace(step, part=grouped)
