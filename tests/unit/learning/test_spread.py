"""Which rows are less certain than others, learned from halves of the rows."""

from __future__ import annotations

import numpy as np

from lab.family_training import spread_of
from silicast.learning.boosting import bin_tables


def test_rough_rows_are_told_from_smooth_ones() -> None:
    rng = np.random.default_rng(0)
    columns = np.exp(rng.normal(0.0, 1.0, (2, 8000)))
    sd = np.where(columns[0] > 1.0, 0.2, 0.02)
    target = 0.1 * np.log(columns[1]) + rng.normal(0.0, sd)
    trees = spread_of(bin_tables(columns), columns, target)
    result = np.exp(trees.evaluate(columns))
    rough, smooth = np.median(result[columns[0] > 1.1]), np.median(result[columns[0] < 0.9])
    assert 3.0 < rough / smooth < 12.0
    again = spread_of(bin_tables(columns), columns, target)
    assert (again.leaves == trees.leaves).all()
