"""The figures of promise 7: how far predictions are from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lab.scorecard.suite import Scored
from silicast.core.numerics import F64
from silicast.core.prediction import Z90

BOOTSTRAP_DRAWS = 400


def ape(measured: F64, predicted: F64) -> F64:
    """Absolute percentage errors, shape (n,); a missing prediction is 100 % off."""
    error = np.abs(predicted / measured - 1.0) * 100.0
    return np.where(np.isfinite(error), error, 100.0)


def point_figures(measured: F64, predicted: F64) -> dict[str, float]:
    """Mean and median APE, p90, signed bias (all %), |log ratio| and coverage of rows.

    The mean APE carries a 90 % bootstrap interval over rows (fixed seed).
    """
    errors = ape(measured, predicted)
    answered = np.isfinite(predicted)
    ratio = predicted[answered] / measured[answered]
    rng = np.random.default_rng(0)
    count = len(errors)
    # a sum of multinomial counts is the bootstrap mean without drawing n x draws indices
    draws = rng.multinomial(count, np.full(count, 1.0 / count), size=BOOTSTRAP_DRAWS)
    means = draws @ errors / count
    return {
        "rows": float(count),
        "answered_pct": 100.0 * float(np.mean(answered)),
        "mean_ape": float(np.mean(errors)),
        "mean_ape_low": float(np.percentile(means, 5)),
        "mean_ape_high": float(np.percentile(means, 95)),
        "median_ape": float(np.median(errors)),
        "p90_ape": float(np.percentile(errors, 90)),
        "bias_pct": float(np.mean(ratio - 1.0) * 100.0) if len(ratio) else float("nan"),
        "median_abs_log": _median_abs_log(ratio),
    }


def _median_abs_log(ratio: F64) -> float:
    """A prediction of nothing is infinitely far in log scale."""
    if not len(ratio):
        return float("nan")
    distance = np.full(len(ratio), np.inf)
    distance[ratio > 0.0] = np.abs(np.log(ratio[ratio > 0.0]))
    return float(np.median(distance))


def interval_figures(scored: Scored) -> dict[str, float]:
    """Coverage (%) and its deviation by chance, mean interval score and median width.

    The score is relative to the truth; ``constant_width_score`` is that of one factor around all
    our estimates, the best there is for these very rows. Only widths that know which rows are
    uncertain score below it.
    """
    low, high = scored.p05 / scored.measured, scored.p95 / scored.measured
    ok = np.isfinite(low) & np.isfinite(high)
    inside = ok & (low <= 1.0) & (high >= 1.0)
    coverage = 100.0 * float(np.mean(inside))
    chance = 100.0 * Z90 * math.sqrt(0.9 * 0.1 / len(inside))
    interval_figures = {"coverage_pct": coverage, "coverage_chance_pct": chance}
    if not ok.any():
        return interval_figures
    ratio = scored.estimate[ok] / scored.measured[ok]
    return {
        **interval_figures,
        "interval_score": _interval_score(low[ok], high[ok]),
        "constant_width_score": _best_constant_width(ratio),
        "median_width": float(np.median(high[ok] / low[ok])),
    }


def _interval_score(low: F64, high: F64) -> float:
    """The mean score of 90 % intervals of ratios to the truth: width, and 20 times what misses."""
    miss = np.maximum(low - 1.0, 0.0) + np.maximum(1.0 - high, 0.0)
    return float(np.mean(high - low + 20.0 * miss))


WIDTHS = 200
"""One-width intervals that are tried."""


def _best_constant_width(ratio: F64) -> float:
    """The least score that one factor around estimates reaches; ``ratio`` is theirs to the truth.

    >>> round(_best_constant_width(np.array([1.0, 1.1])), 3)
    0.2
    """
    apart = np.abs(np.log(np.maximum(ratio, 1e-300)))
    factors = np.exp(np.unique(np.quantile(apart, np.linspace(0.0, 1.0, WIDTHS))))
    return min(_interval_score(ratio / factor, ratio * factor) for factor in factors.tolist())


SMALL_GROUP = 60
"""Rows of a device up to which its constant is fitted without the row that it predicts."""


def one_constant(scored: Scored) -> F64 | None:
    """The baseline "roofline x one constant per device".

    The constant is the one with the least mean APE on the very rows it is scored on, which
    flatters it; of devices with few rows, on all rows but the one it predicts, since a constant
    nearly remembers those. A device with a single row takes the constant of all others.
    """
    if scored.roofline is None:
        return None
    share = scored.roofline / scored.measured
    predicted = np.full(len(scored.measured), np.nan)
    for label in np.unique(scored.groups["device"]):
        rows = np.flatnonzero(scored.groups["device"] == label)
        if len(rows) > SMALL_GROUP:
            predicted[rows] = scored.roofline[rows] * _best_constant(share[rows])
            continue
        for row in rows:
            others = rows[rows != row]
            if not len(others):
                others = np.flatnonzero(np.arange(len(share)) != row)
            if len(others):
                predicted[row] = scored.roofline[row] * _best_constant(share[others])
    return predicted


def _best_constant(share: F64) -> float:
    """The c with the least mean |c x share - 1|: the median of 1 / share weighted by share."""
    ratio = 1.0 / share
    order = np.argsort(ratio, kind="stable")
    running = np.cumsum(share[order])
    return float(ratio[order][np.searchsorted(running, 0.5 * running[-1])])


def competitors(scored: Scored) -> dict[str, F64]:
    """Name -> prediction of every baseline and peer."""
    competitors: dict[str, F64] = {}
    if scored.roofline is not None:
        competitors["roofline"] = scored.roofline
    constant = one_constant(scored)
    if constant is not None:
        competitors["roofline x constant"] = constant
    competitors.update(scored.baselines)
    competitors.update(scored.peers)
    return competitors


FEW = 10
"""Rows below which an order says little."""


def rank_correlation(predicted: F64, measured: F64) -> float:
    """Spearman's correlation; NaN where one was not predicted.

    >>> rank_correlation(np.array([1.0, 2.0, 4.0]), np.array([10.0, 30.0, 20.0]))
    0.5
    """
    if not np.isfinite(predicted).all():
        return float("nan")
    return float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])


def ranks(values: F64) -> F64:
    """Places in ascending order; equal values share the mean of theirs.

    >>> ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist()
    [2.5, 0.0, 2.5, 1.0]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: F64 = (np.cumsum(counts) - (counts + 1) / 2.0)[inverse]
    return ranks


def promise_figures(scored: Scored) -> dict[str, float]:
    """Where a bound is scored: Spearman's correlation of all rows, and rows whose bound lies above
    what was measured by more than noise.
    """
    if scored.bound is None:
        return {}
    noise = 0.0 if scored.noise is None else scored.noise
    above = scored.bound > scored.measured * (1.0 + noise)
    promise_figures = {"rows_below_bound": float(np.sum(above))}
    if len(scored) >= FEW:
        promise_figures["spearman"] = rank_correlation(scored.estimate, scored.measured)
    return promise_figures


def summary(scored: Scored) -> dict[str, Any]:
    """All figures of one metric: overall, per group label, and the competitors' beside them."""
    result: dict[str, Any] = {
        "metric": scored.metric,
        "silicast": point_figures(scored.measured, scored.estimate)
        | interval_figures(scored)
        | promise_figures(scored),
        "others": {
            name: point_figures(scored.measured, predicted) | _where_answered(scored, predicted)
            for name, predicted in competitors(scored).items()
        },
        "peers": sorted(scored.peers),
        "by": {name: _by_label(scored, name) for name in scored.groups},
    }
    if scored.noise is not None:
        noise = scored.noise[np.isfinite(scored.noise)]
        if len(noise):
            result["noise_floor_pct"] = {
                "mean": 100.0 * float(np.mean(noise)),
                "median": 100.0 * float(np.median(noise)),
            }
    return result


def _where_answered(scored: Scored, predicted: F64) -> dict[str, float]:
    """A competitor's and our mean APE on the rows that it answered: few peers cover all rows."""
    rows = np.isfinite(predicted)
    if not rows.any():
        return {}
    measured = scored.measured[rows]
    return {
        "mean_ape_where_answered": float(np.mean(ape(measured, predicted[rows]))),
        "silicast_there": float(np.mean(ape(measured, scored.estimate[rows]))),
    }


def _by_label(scored: Scored, group: str) -> dict[str, Mapping[str, Any]]:
    table: dict[str, Mapping[str, Any]] = {}
    labels = scored.groups[group]
    others = competitors(scored)
    for label in sorted(set(labels.tolist())):
        rows = labels == label
        part = Scored(
            metric=scored.metric,
            measured=scored.measured[rows],
            estimate=scored.estimate[rows],
            p05=scored.p05[rows],
            p95=scored.p95[rows],
            noise=None if scored.noise is None else scored.noise[rows],
            bound=None if scored.bound is None else scored.bound[rows],
        )
        table[label] = {
            **point_figures(part.measured, part.estimate),
            **interval_figures(part),
            **promise_figures(part),
            "others_mean_ape": {
                name: float(np.mean(ape(part.measured, values[rows])))
                for name, values in others.items()
            },
        }
    return table
