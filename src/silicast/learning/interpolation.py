"""Throughput between kernels that were measured: a trend of physical quantities, and a field.

What a device's kernels take over what is predicted of them is, in logs,

    trend(x) + field(x),   trend(x) = b0 + sum over resources of share x b + b1 / waves

The trend says how much slower each resource is than its constant (launches, memory, matrix units,
the latency of a wave), each drawn toward none by what known devices differ. The field interpolates
what is left among neighbours in sizes, shares and kinds of kernels: a Gaussian process with a
Matern-3/2 covariance and a length for each coordinate (Rasmussen and Williams 2006, chapters 2 and
5), the lengths being the most probable ones. With few rows the trend speaks, with many the field,
and no row count decides between them. As the prediction holds the analytic work, interpolating the
ratio is interpolating throughput (PM2Lat), with the physics of the shape taken out first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibration import Interpolation
from silicast.core.numerics import F64, I64
from silicast.kernels.physics.constants import load_physics
from silicast.learning.features import MARKS, Kernels
from silicast.learning.forest import codes
from silicast.learning.gaussian_process import ONCE, Prior, fitted_scales, squared_distances

PHYSICS = "calibration"
TIME = "time"
"""The coordinate that is no feature: the analytic time itself."""
CONSTANT, WAVE = "constant", "wave"
"""Terms of the trend beside the resources."""
ANCHORS = 256
"""Rows that the field is made of, at most; the others shape it too."""
TUNED_ON = 200
"""Rows that its lengths are fitted on, at most."""
JITTER = 1e-6
LEAST_LEFT = 0.01
"""Of a row, how much the others say about it, at least."""

_OCTAVES, _SHARE, _FILL = 1.0 / 48.0, 3.0, 2.0
"""What one of a code, a share and a fill comes to in units of a usual length."""
_LARGEST_SHARE = 1.5
_RESOLUTION = float(1 << 40)
_CHUNK = 2048


def coordinates(names: Sequence[str], ragged: frozenset[str]) -> tuple[str, ...]:
    """Those of a family's features that kernels are neighbours by, and its time."""
    coordinate_names = [TIME]
    for name in names:
        kind, _, suffix = name.partition(":")
        is_share = kind == "x" and (suffix.endswith("share") or suffix == "padding")
        size = (kind == "size" and suffix not in ragged) or kind == "max"
        if is_share or size or kind in ("share", "waves", "fill", "sequences") or kind in MARKS:
            coordinate_names.append(name)
    return tuple(coordinate_names)


def placed(names: Sequence[str], kernels: Kernels) -> F64:
    """Coordinates of kernels, shape (F, n)."""
    table = kernels.table(tuple(name for name in names if name != TIME))
    placed = np.empty((len(names), len(kernels.batch)))
    row = 0
    for index, name in enumerate(names):
        if name == TIME:
            placed[index] = codes(kernels.analysis.time_s * 1e6) * _OCTAVES
            continue
        placed[index] = _in_lengths(name, table[row])
        row += 1
    return placed


def _in_lengths(name: str, values: F64) -> F64:
    kind = name.partition(":")[0]
    if kind in ("size", "max", "waves", "sequences"):
        return codes(values).astype(np.float64) * _OCTAVES
    factor = {"share": _SHARE, "x": _SHARE, "fill": _FILL}.get(kind, 1.0)
    return np.minimum(values, _LARGEST_SHARE) * factor  # marks are 0 or 1


def trend_names(names: Sequence[str]) -> tuple[str, ...]:
    """Terms of the trend for a family's features."""
    return (CONSTANT, *(name for name in names if name.startswith("share:")), WAVE)


def trend_of(names: Sequence[str], kernels: Kernels) -> F64:
    """Terms of the trend, shape (T, n)."""
    shares = tuple(name for name in names if name not in (CONSTANT, WAVE))
    table = kernels.table(shares)
    trend = np.empty((len(names), len(kernels.batch)))
    row = 0
    for index, name in enumerate(names):
        if name == CONSTANT:
            trend[index] = 1.0
        elif name == WAVE:
            trend[index] = 1.0 / np.maximum(np.ceil(kernels.analysis.demand.waves), 1.0)
        else:
            trend[index] = np.minimum(table[row], _LARGEST_SHARE)
            row += 1
    return trend


@final
@dataclass(frozen=True)
class InterpolationFit:
    """A fit, as numbers: see :class:`~silicast.core.calibration.Interpolation`.

    Attributes:
        scales: one over the length of each coordinate, shape (F,).
        anchors: scaled coordinates, shape (M, F); weights: shape (M,).
        trend: shape (T,).
        field_log_sd, noise_log_sd: of the field, and of what it leaves.
    """

    scales: F64
    anchors: F64
    weights: F64
    trend: F64
    field_log_sd: float
    noise_log_sd: float

    def evaluate(self, where: F64, terms: F64) -> tuple[F64, F64]:
        """The interpolated logs and how near the nearest anchor is (1 = there, 0 = far).

        Args:
            where: coordinates, shape (F, n); terms: of the trend, shape (T, n).

        Sums are of integers, so that a row has the same bits in any batch.
        """
        count = where.shape[1]
        total, near = np.zeros(count, dtype=np.int64), np.zeros(count)
        for term, value in zip(terms, self.trend.tolist(), strict=True):
            total += _whole(term * value)
        for start in range(0, count, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            alike = self._alike(where[:, chunk])
            total[chunk] += _whole(alike * self.weights.reshape(-1, 1)).sum(axis=0)
            near[chunk] = alike.max(axis=0)
        return total.astype(np.float64) * (1.0 / _RESOLUTION), near

    def _alike(self, where: F64) -> F64:
        """Correlation of each anchor with each row, shape (M, n)."""
        squares = np.zeros((len(self.anchors), where.shape[1]))
        for index, (row, scale) in enumerate(zip(where, self.scales.tolist(), strict=True)):
            apart = self.anchors[:, index].reshape(-1, 1) - row * scale
            squares += apart * apart
        return ONCE.correlation(squares)


def fit(where: F64, terms: F64, target: F64) -> InterpolationFit:
    """The most probable trend and field.

    Args:
        where: coordinates, shape (F, n); terms: of the trend, shape (T, n); target: logs, (n,).
    """
    c = load_physics(PHYSICS).default
    prior = Prior.from_constants(c, len(where))
    spread = np.full(len(terms), c["trend_log_sd"] ** 2)
    spread[0] = c["offset_log_sd"] ** 2
    subset = _some(len(target), TUNED_ON)
    shared = (terms[:, subset].T * spread) @ terms[:, subset]
    # rows far from the usual, and then those far from all their neighbours, are held at three
    # spreads: one outlier moves no one else
    tame = _held(target, np.full(len(target), np.median(target)))
    scales, field, noise = fitted_scales(where[:, subset], shared, tame[subset], prior)
    scaled = where * scales.reshape(-1, 1)
    _, others = _solved(scales, scaled, terms, tame, spread, field, noise)
    fitted, _ = _solved(scales, scaled, terms, _held(target, others), spread, field, noise)
    return fitted


def _held(target: F64, usual: F64) -> F64:
    """``target`` at most three spreads from what is usual there."""
    limit = 3.0 * float(np.quantile(np.abs(target - usual), 0.683))
    return np.minimum(np.maximum(target, usual - limit), usual + limit)


def _solved(
    scales: F64, scaled: F64, terms: F64, target: F64, spread: F64, field: float, noise: float
) -> tuple[InterpolationFit, F64]:
    """Trend and weights of the anchors, by a projection on the anchors (subset of regressors).

    Also what all other rows say of each row, shape (n,).
    """
    chosen = _some(len(target), ANCHORS)
    anchors = np.ascontiguousarray(scaled[:, chosen])
    basis = np.concatenate([terms, ONCE.correlation(squared_distances(anchors, scaled))])
    count = len(terms)
    strict = np.zeros((len(basis), len(basis)))
    strict[:count, :count] = np.diag(1.0 / spread)
    correlation = ONCE.correlation(squared_distances(anchors, anchors))
    correlation[np.diag_indices(len(correlation))] += JITTER
    strict[count:, count:] = correlation / (field * field)
    inverse = np.linalg.inv(basis @ basis.T / noise**2 + strict)
    value = inverse @ (basis @ target) / noise**2
    correlation = ((inverse @ basis) * basis).sum(axis=0) / noise**2
    left = (target - value @ basis) / np.maximum(1.0 - correlation, LEAST_LEFT)
    return InterpolationFit(
        scales, anchors.T, value[count:], value[:count], field, noise
    ), target - left


def as_data(fitted: InterpolationFit, names: Sequence[str], terms: Sequence[str]) -> Interpolation:
    """As a calibration holds it, rounded far below any noise."""
    return Interpolation(
        coordinates=list(names),
        scales=_rounded(fitted.scales),
        anchors=[_rounded(row) for row in fitted.anchors],
        weights=[round(float(value), 9) for value in fitted.weights],
        trend=dict(zip(terms, _rounded(fitted.trend), strict=True)),
        field_log_sd=round(fitted.field_log_sd, 6),
        noise_log_sd=round(fitted.noise_log_sd, 6),
    )


def from_data(data: Interpolation) -> InterpolationFit:
    """The fit that stored numbers describe."""
    return InterpolationFit(
        np.array(data.scales),
        np.array(data.anchors).reshape(-1, len(data.scales)),
        np.array(data.weights),
        np.array(list(data.trend.values())),
        data.field_log_sd,
        data.noise_log_sd,
    )


def resources(trend: Mapping[str, float]) -> dict[str, float]:
    """Resource -> how much slower than predicted, in logs, of a trend's terms."""
    return {k.partition(":")[2]: v for k, v in trend.items() if k.startswith("share:")}


def _some(count: int, most: int) -> NDArray[np.int64]:
    """So many of ``range(count)`` at most, the same ones each time."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _whole(values: F64) -> I64:
    return np.rint(values * _RESOLUTION).astype(np.int64)


def _rounded(values: F64) -> list[float]:
    return [round(float(value), 6) for value in values]
