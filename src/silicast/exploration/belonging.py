"""How probable it is that a point is on a front, where its metrics are beliefs.

The error of a point is how much slower or quicker the machine is than believed: it moves all of the
point's metrics together, by the power of time that each has. Points share the part of it that their
common causes make (:class:`~silicast.core.prediction.ErrorFactors`); the remainder is their own.
Draws are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.metrics import metric_of
from silicast.core.numerics import F64
from silicast.core.prediction import Z90, Quantity
from silicast.exploration.pareto import dominated

DRAWS = 1000
SEED = 20261128
LARGER_IS_BETTER = ("rate", "use", "yield")
"""Kinds of metrics of which more is better."""


@final
@dataclass(frozen=True)
class UncertainPoint:
    """A point with what is believed of it.

    Attributes:
        beliefs: metric -> estimate and interval.
        shared: common cause -> its part of the standard deviation of the error, 0 to 1; their
            squares add up to 1 at most.
    """

    beliefs: Mapping[str, Quantity]
    shared: Mapping[str, float] = field(default_factory=dict)


def sign_of(metric: str) -> int:
    """1 where less of a metric is better, -1 where more is.

    >>> sign_of("ttft_p99_ms"), sign_of("output_tokens_per_s"), sign_of("gpus")
    (1, -1, 1)
    """
    meaning = metric_of(metric)
    return -1 if meaning is not None and meaning.kind in LARGER_IS_BETTER else 1


def belonging(points: Sequence[UncertainPoint], metrics: Sequence[str]) -> F64:
    """Of each point, the probability that no other beats it in all metrics.

    Args:
        metrics: at least one, which every point has.

    >>> def point(ms, spread):
    ...     return UncertainPoint({"ttft_p50_ms": Quantity(ms, ms / spread, ms * spread)})
    >>> belonging([point(10.0, 1.0), point(20.0, 1.0)], ["ttft_p50_ms"]).tolist()
    [1.0, 0.0]
    """
    drawn = drawn_metrics(points, metrics)
    signs = np.array([sign_of(name) for name in metrics])
    on_front = np.zeros(len(points))
    for each in drawn * signs:
        on_front += ~dominated(each)
    probability: F64 = on_front / len(drawn)
    return probability


def best_probability(
    points: Sequence[UncertainPoint], metric: str, meets: NDArray[np.bool_]
) -> F64:
    """Of each point, the probability that it is the best in one metric among those that count.

    Args:
        meets: (draws, points), whether a point counts in a draw, as :func:`meeting` has it.
    """
    drawn = drawn_metrics(points, [metric])[:, :, 0] * sign_of(metric)
    values = np.where(meets, drawn, np.inf)
    least = values.min(axis=1, keepdims=True)
    # of points that are equally good the first is taken, as a choice takes it
    first = np.argmax(values == least, axis=1)
    counted = np.bincount(first[meets.any(axis=1)], minlength=len(points))
    probability: F64 = counted / len(drawn)
    return probability


def expected_worth(points: Sequence[UncertainPoint], metric: str, meets: NDArray[np.bool_]) -> F64:
    """Of each point, the mean over all draws of what it is worth: the metric, its inverse where
    less of it is better, and nothing in draws in which the point does not count.

    Whoever takes the point with the most does best in the mean: a point that is a little better by
    its estimate and near its limit is worth less than one with room.

    Args:
        meets: (draws, points), as of :func:`meeting`.
    """
    drawn = drawn_metrics(points, [metric])[:, :, 0] ** -sign_of(metric)
    worth: F64 = np.where(meets, drawn, 0.0).mean(axis=0)
    return worth


def meeting(points: Sequence[UncertainPoint], limits: Mapping[str, float]) -> NDArray[np.bool_]:
    """Whether each point keeps all limits in each draw, (draws, points); a limit is the most of a
    time and the least of a rate; a point without the metric keeps none.
    """
    names = [name for name in limits if all(name in each.beliefs for each in points)]
    drawn = drawn_metrics(points, names)
    signs = np.array([sign_of(name) for name in names])
    limit = np.array([limits[name] for name in names])
    met: NDArray[np.bool_] = np.all(drawn * signs <= limit * signs, axis=2)
    return met if len(names) == len(limits) else np.zeros_like(met)


def drawn_metrics(points: Sequence[UncertainPoint], metrics: Sequence[str]) -> F64:
    """Metrics of all points in every draw, (draws, points, metrics)."""
    causes = list(dict.fromkeys(name for each in points for name in each.shared))
    loadings = np.array([[each.shared.get(name, 0.0) for name in causes] for each in points])
    loadings = loadings.reshape(len(points), len(causes))
    remainder = np.sqrt(np.clip(1.0 - np.square(loadings).sum(axis=1), 0.0, 1.0))
    rng = np.random.default_rng(SEED)
    common = rng.standard_normal((DRAWS, len(causes)))
    alone = rng.standard_normal((DRAWS, len(points)))
    z = np.einsum("dc,pc->dp", common, loadings) + alone * remainder
    drawn = np.empty((DRAWS, len(points), len(metrics)))
    for column, name in enumerate(metrics):
        meaning = metric_of(name)
        power = meaning.per_time if meaning is not None else 1
        for row, each in enumerate(points):
            belief = each.beliefs[name]
            slower, quicker = _spreads(belief, power)
            log = np.where(z[:, row] > 0.0, z[:, row] * slower, z[:, row] * quicker)
            drawn[:, row, column] = belief.estimate * np.exp(power * log if power else log)
    return drawn


def _spreads(belief: Quantity, power: int) -> tuple[float, float]:
    """Log standard deviations towards a slower and a quicker machine."""
    if belief.estimate <= 0.0:
        return 0.0, 0.0
    up = math.log(max(belief.p95, belief.estimate) / belief.estimate) / Z90
    low = max(min(belief.p05, belief.estimate), belief.estimate * 1e-6)
    down = math.log(belief.estimate / low) / Z90
    return (down, up) if power < 0 else (up, down)
