"""Intervals of whole models against every label there is, recomputed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.figures import interval_figures
from lab.scorecard.suite import Scored, suites

pytestmark = pytest.mark.full

LABELS_BELOW = ()
"""Labels whose coverage is known to be below its band; none."""


@pytest.fixture(scope="module")
def scored(data: Path) -> dict[str, Scored]:
    """Metric -> the rows of all labels."""
    return {each.metric: each for each in suites()["intervals"].score(data)}


def least_inside(count: int, share: float = 0.9, chance: float = 0.01) -> int:
    """What 99 in 100 binomial counts reach: rows of one model and device are off together, so that
    chance does more than that.
    """
    below = 0.0
    for inside in range(count + 1):
        below += math.comb(count, inside) * share**inside * (1.0 - share) ** (count - inside)
        if below >= chance:
            return inside
    return count


def inside(rows: Scored) -> np.ndarray:
    """Which rows' intervals hold."""
    return (rows.p05 <= rows.measured) & (rows.measured <= rows.p95)


def test_every_label_is_covered_as_often_as_promised(scored: dict[str, Scored]) -> None:
    rows = scored["time_ms"]
    hold, labels = inside(rows), rows.groups["label"]
    assert len(set(labels.tolist())) >= 8
    for label in sorted(set(labels.tolist()) - set(LABELS_BELOW)):
        mine = hold[labels == label]
        assert int(mine.sum()) >= least_inside(len(mine)), label


def test_all_together_nine_in_ten(scored: dict[str, Scored]) -> None:
    rows = scored["time_ms"]
    assert 0.87 <= float(inside(rows).mean()) <= 0.95


def test_neither_simpler_rule_does(scored: dict[str, Scored]) -> None:
    ours, independent, linear = (
        interval_figures(scored[name])
        for name in ("time_ms", "time_if_independent_ms", "time_if_linear_ms")
    )
    assert independent["coverage_pct"] < 40.0
    assert linear["median_width"] > ours["median_width"]
    for simpler in (independent, linear):
        assert simpler["interval_score"] > ours["interval_score"]
