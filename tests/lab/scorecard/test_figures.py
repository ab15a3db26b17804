"""The scorecard's figures, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lab.scorecard.figures import (
    ape,
    interval_figures,
    one_constant,
    point_figures,
    promise_figures,
    rank_correlation,
    summary,
)
from lab.scorecard.suite import Scored


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


def test_bias_p90_and_log_ratio_by_hand() -> None:
    figures = point_figures(np.ones(10), np.array([0.5] + [1.2] * 9))
    assert figures["bias_pct"] == pytest.approx((-50 + 9 * 20) / 10)
    assert figures["median_ape"] == pytest.approx(20)
    assert figures["p90_ape"] == pytest.approx(np.percentile([50] + [20] * 9, 90))
    assert figures["median_abs_log"] == pytest.approx(np.log(1.2))


def test_order_is_spearmans_and_needs_every_prediction() -> None:
    measured = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(measured**3, measured) == pytest.approx(1.0)
    assert rank_correlation(-measured, measured) == pytest.approx(-1.0)
    assert np.isnan(rank_correlation(np.array([1.0, np.nan, 2.0, 3.0]), measured))


def test_a_bound_is_broken_by_more_than_noise_only() -> None:
    bound = np.array([10.05, 20.0, 41.0])
    assert promise_figures(scored()) == {}, "a plain roofline promises nothing"
    assert promise_figures(scored(bound=bound)) == {"rows_below_bound": 2.0}
    assert promise_figures(scored(bound=bound, noise=np.full(3, 0.01))) == {"rows_below_bound": 1.0}
    assert summary(scored(bound=bound))["by"]["device"]["b"]["rows_below_bound"] == 1.0


def test_interval_score_charges_twenty_times_the_miss() -> None:
    row = scored(
        measured=np.array([1.0, 1.0]), estimate=np.array([1.0, 1.5]), p05=np.array([0.9, 1.2]),
        p95=np.array([1.1, 1.8]), roofline=None, groups={"device": np.array(["a", "a"])},
    )  # fmt: skip
    figures = interval_figures(row)
    assert figures["coverage_pct"] == 50.0
    assert figures["interval_score"] == pytest.approx((0.2 + 0.6 + 20 * 0.2) / 2)
    assert figures["median_width"] == pytest.approx((1.1 / 0.9 + 1.5) / 2)


def test_bootstrap_interval_surrounds_the_mean() -> None:
    figures = point_figures(np.ones(200), 1 + np.linspace(0, 0.4, 200))
    assert figures["mean_ape_low"] < figures["mean_ape"] < figures["mean_ape_high"]
    # standard error of the mean of a uniform 0..40 % over 200 rows, two sides of 90 %
    width = figures["mean_ape_high"] - figures["mean_ape_low"]
    assert width == pytest.approx(2 * 1.645 * 40 / np.sqrt(12) / np.sqrt(200), rel=0.15)


def test_the_best_constant_has_the_least_mean_error() -> None:
    rng = np.random.default_rng(1)
    measured = np.exp(rng.normal(size=200))
    roofline = measured * np.exp(rng.normal(-0.5, 0.8, 200))
    predicted = one_constant(
        scored(
            measured=measured, estimate=measured, p05=measured, p95=measured, roofline=roofline,
            groups={"device": np.full(200, "a")},
        )
    )  # fmt: skip
    assert predicted is not None
    best = ape(measured, predicted).mean()
    for constant in np.linspace(0.05, 8, 400):
        assert best <= ape(measured, roofline * constant).mean() + 1e-9


def test_a_constant_does_not_remember_the_row_it_predicts() -> None:
    predicted = one_constant(scored())
    assert predicted is not None
    # a: each row takes the other's ratio 2; b: alone, so the better of a's ratios
    assert predicted.tolist() == [10.0, 20.0, 20.0]


def test_coverage_counts_unanswered_rows_as_missed() -> None:
    figures = summary(scored())["silicast"]
    assert figures["coverage_pct"] == pytest.approx(100 / 3)


def test_groups_are_reported_apart() -> None:
    table = summary(scored(peers={"peer": np.array([10.0, np.nan, 40.0])}))
    assert table["by"]["device"]["a"]["rows"] == 2
    assert table["others"]["peer"]["answered_pct"] == pytest.approx(100 * 2 / 3)
    assert table["by"]["device"]["a"]["others_mean_ape"]["peer"] == pytest.approx(50.0)


def test_one_width_for_all_rows_covers_as_many_and_scores_worse_where_rows_differ() -> None:
    rng = np.random.default_rng(0)
    sd = np.where(np.arange(4000) % 2, 0.02, 0.3)
    estimate = np.exp(rng.normal(0.0, sd))
    spread = np.exp(1.645 * sd)
    measured = np.ones(4000)
    figures = interval_figures(
        Scored("x_us", measured, estimate, estimate / spread, estimate * spread)
    )
    assert abs(figures["coverage_pct"] - 90.0) < 2.0
    assert figures["interval_score"] < 0.8 * figures["constant_width_score"]
    assert figures["coverage_chance_pct"] == pytest.approx(0.78, abs=0.01)


def test_equal_intervals_score_as_one_width_does() -> None:
    rng = np.random.default_rng(1)
    estimate = np.exp(rng.normal(0.0, 0.1, 4000))
    spread = np.exp(1.645 * 0.1)
    result = interval_figures(
        Scored("x_us", np.ones(4000), estimate, estimate / spread, estimate * spread)
    )
    assert result["interval_score"] == pytest.approx(result["constant_width_score"], rel=0.02)
