"""Which kernels of a correction are less certain than others, learned from what it leaves over.

Two halves of the training rows each predict the other; trees learn the log of how far a row is off
then, from the same features. Half the rows predict worse than all do, so this says only which rows
are further off than others. How far a usual one is off, held-out rows say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.learning.boosting import Settings, grown
from silicast.learning.oblivious import LEAF_SCALE, U8, Trees, binned, codes

QUICK = Settings(trees=40, depth=6, rate=0.25, rows=0.5)
OF_SPREAD = Settings(trees=24, depth=5, rate=0.2, prior=60.0, clip=4.0)
LEAST = 0.005
"""Nothing is told apart below half a percent."""


def spread_of(bins: U8, columns: F64, target: F64) -> Trees:
    """Trees of the log of a row's distance over the usual one.

    Args:
        bins: tables of the correction's features.
        columns, target: its training rows, as of :func:`~silicast.learning.boosting.train`.
    """
    result = binned(bins, codes(columns))
    half = np.random.default_rng(1).permutation(len(target)) % 2 == 0
    distance = np.empty(len(target))
    for mine in (half, ~half):
        distance[mine] = np.abs(_by_others(bins, result, target, mine))
    log = np.log(distance + LEAST)
    return grown(bins, result, log - np.median(log), OF_SPREAD)


def _by_others(bins: U8, result: U8, target: F64, mine: NDArray[np.bool_]) -> F64:
    """What trees of the other half leave over."""
    trees = grown(bins, result[:, ~mine], target[~mine], QUICK)
    left: F64 = target[mine] - trees.of_bins(result[:, mine]).astype(np.float64) * LEAF_SCALE
    return left
