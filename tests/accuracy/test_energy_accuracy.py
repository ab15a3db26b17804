"""Energy of kernels against measured board power: figures, baselines, intervals, the split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.figures import ape
from lab.scorecard.suite import Scored, suites
from lab.scorecard.suites.energy import LONG_S, power_rows

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def scored(data: Path) -> dict[str, Scored]:
    return {part.metric: part for part in suites()["energy"].score(data, limit=1000)}


@pytest.mark.parametrize("metric", ["energy_mj", "power_w", "unseen_power_w"])
def test_beats_every_share_of_the_limit(scored: dict[str, Scored], metric: str) -> None:
    part = scored[metric]
    ours = float(np.mean(ape(part.measured, part.estimate)))
    for name, theirs in part.baselines.items():
        assert ours < float(np.mean(ape(part.measured, theirs))), name


@pytest.mark.parametrize(("metric", "least"), [("power_w", 0.85), ("unseen_power_w", 0.85)])
def test_intervals_of_power_cover(scored: dict[str, Scored], metric: str, least: float) -> None:
    part = scored[metric]
    inside = (part.p05 <= part.measured) & (part.measured <= part.p95)
    assert float(np.mean(inside)) >= least


@pytest.mark.parametrize("table", ["gemm", "generation_attention", "moe", "gdn"])
def test_fitted_and_scored_rows_are_apart(data: Path, table: str) -> None:
    free, held = (power_rows(data, table, 50, held_out=x) for x in (False, True))
    assert free
    assert held
    assert not any(rows.held_out.any() for rows in free)
    assert all(rows.held_out.all() for rows in held)
    assert all((rows.seconds >= LONG_S[table]).all() for rows in (*free, *held))


def test_measured_power_is_within_the_limit_of_the_board(data: Path) -> None:
    for rows in power_rows(data, "context_attention", 200):
        assert (rows.values["watts"] > 0.0).all()
        assert (rows.values["watts"] < 1.1 * rows.values["cap_w"]).all()
