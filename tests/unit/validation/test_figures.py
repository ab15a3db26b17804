"""The scorecard's figures, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.validation.figures import ape, one_constant, point_figures, summary
from silicast.validation.suite import Scored


def scored(**changes: object) -> Scored:
    rows: dict[str, object] = {
        "metric": "latency_us",
        "measured": np.array([10.0, 20.0, 40.0]),
        "estimate": np.array([11.0, 18.0, np.nan]),
        "p05": np.array([9.0, 10.0, np.nan]),
        "p95": np.array([12.0, 19.0, np.nan]),
        "roofline": np.array([5.0, 10.0, 10.0]),
        "groups": {"device": np.array(["a", "a", "b"])},
    }
    return Scored(**{**rows, **changes})  # type: ignore[arg-type]


def test_a_missing_prediction_is_100_percent_off() -> None:
    row = scored()
    assert ape(row.measured, row.estimate) == pytest.approx([10.0, 10.0, 100.0])
    figures = point_figures(row.measured, row.estimate)
    assert figures["mean_ape"] == pytest.approx(40.0)
    assert figures["median_ape"] == pytest.approx(10.0)
    assert figures["bias_pct"] == pytest.approx(0.0)
    assert figures["answered_pct"] == pytest.approx(100 * 2 / 3)


def test_bootstrap_interval_surrounds_the_mean() -> None:
    figures = point_figures(np.ones(200), 1 + np.linspace(0, 0.4, 200))
    assert figures["mean_ape_low"] < figures["mean_ape"] < figures["mean_ape_high"]


def test_one_constant_is_each_devices_own_median_ratio() -> None:
    predicted = one_constant(scored())
    assert predicted is not None
    assert predicted.tolist() == [10.0, 20.0, 40.0]


def test_coverage_counts_unanswered_rows_as_missed() -> None:
    figures = summary(scored())["silicast"]
    assert figures["coverage_pct"] == pytest.approx(100 / 3)


def test_groups_are_reported_apart() -> None:
    table = summary(scored(peers={"peer": np.array([10.0, np.nan, 40.0])}))
    assert table["by"]["device"]["a"]["rows"] == 2
    assert table["others"]["peer"]["answered_pct"] == pytest.approx(100 * 2 / 3)
    assert table["by"]["device"]["a"]["others_mean_ape"]["peer"] == pytest.approx(50.0)
