"""From rows of a device to what they change: see :mod:`silicast.learning.calibration`.

Two views of what differs from op to op are fitted to the same rows: an interpolation between
neighbours with a trend of physical quantities (:mod:`silicast.learning.interpolation`), and, from
:data:`MANY_ROWS` on, small trees over all features. How they are mixed, whether they are kept at
all and how wide the interval is say rows that were left out in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibration import Interpolation, Offset, Repeat, TreeCorrection
from silicast.core.hashing import content_hash
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.check import op_at
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.boosting import Settings, train
from silicast.learning.correction import learned_times
from silicast.learning.features import Kernels, all_names
from silicast.learning.forest import Trees, codes
from silicast.learning.interpolation import (
    InterpolationFit,
    as_data,
    coordinates,
    fit,
    placed,
    trend_names,
    trend_of,
)
from silicast.workload.graphs.op import Op, OpBatch, identity

PRIOR_ROWS = 3.0
"""Rows of no difference that the offset is drawn toward none by."""
SOME_ROWS = 8
"""From so many rows on there is an interpolation."""
MANY_ROWS = 60
"""From so many rows on there are trees."""
FOLDS = 5
MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
FEW = Settings(trees=80, depth=5, rate=0.15, rows=0.8, columns=0.3, prior=1.5)
MANY = Settings(trees=160, depth=6, rate=0.15, rows=0.7, columns=0.4, prior=2.0)
LARGE = 1000
"""From so many rows on trees are of the second kind."""
CLEARLY_WORSE = 1.1
"""From :data:`MANY_ROWS` on nothing but the offset is kept where more is so much worse; with fewer
rows the priors hold the interpolation back, and rows left out of so few say little."""
SD_FLOOR = 0.02
NOISE_FLOOR = 0.01
"""Campaigns of one kernel are never closer than that, in logs."""
FIRST_ROWS, FIRST_SD = 2, 0.1
"""With one or two rows nothing is known of what they leave: at least so much."""


@final
@dataclass(frozen=True)
class MeasuredKernels:
    """Rows of one device and variant.

    Attributes:
        batch: what ran; device: on what, a catalog name; seconds: shape (n,), of one call.
        held_out: rows to score on, never to learn from.
    """

    batch: OpBatch
    device: str
    seconds: F64
    held_out: NDArray[np.bool_]


@final
@dataclass(frozen=True)
class _FamilyRows:
    """Measured rows of one family and format, every array by row in its last axis.

    Attributes:
        columns: features; where, terms: coordinates, and terms of the trend; target: logs of
            measured over predicted time; fold: which rows are left out together.
    """

    columns: F64
    where: F64
    terms: F64
    target: F64
    fold: NDArray[np.int64]

    def take(self, index: NDArray[np.bool_]) -> _FamilyRows:
        return _FamilyRows(
            self.columns[:, index],
            self.where[:, index],
            self.terms[:, index],
            self.target[index],
            self.fold[index],
        )

    def __len__(self) -> int:
        return len(self.target)


@final
@dataclass(frozen=True)
class _Left:
    """Each row's error by fits that did not see it; arrays of shape (n,).

    Attributes:
        between, trees: of the interpolation, and of the trees (None = too few rows).
        near: how near the nearest other row is, 1 = there.
    """

    between: F64
    trees: F64 | None
    near: F64

    def mixed(self, share: float) -> F64:
        """With so much of the interpolation and the rest of the trees."""
        if self.trees is None:
            return self.between
        return share * self.between + (1.0 - share) * self.trees


def fit_offset(
    model: Implementation, parts: Sequence[MeasuredKernels], device: Device, *, learned: bool = True
) -> tuple[Offset, float]:
    """What rows of one family and format on a device change.

    Args:
        parts: its rows, one part a variant; all of one family and dtype.
        learned: what is changed are predictions with shipped corrections, else analytic ones.

    Returns:
        What changes, and the mean |log| error before it.
    """
    names = all_names(model, [(part.batch, device) for part in parts])
    near_by, terms = coordinates(names, model.ragged), trend_names(names)
    ops = [op_at(part.batch, row) for part in parts for row in range(len(part.batch))]
    found_by = learned_times if learned else type(model).times
    tables = [(part, found_by(model, part.batch, device)) for part in parts]
    rows = _read(model, tables, device, names, ops)
    count, target = len(rows), rows.target
    offset = float(np.median(target)) * count / (count + PRIOR_ROWS)
    rows = _FamilyRows(rows.columns, rows.where, rows.terms, target - offset, rows.fold)
    share, left = _chosen(rows)
    between, trees = None, None
    result, scatter = rows.target, rows.target
    if left is not None:
        scatter = left.mixed(share)
        fitted = fit(rows.where, rows.terms, rows.target)
        trained = _trees(rows) if share < 1.0 else None
        seen, _ = fitted.evaluate(rows.where, rows.terms)
        if trained is not None:
            seen = share * seen + (1.0 - share) * trained.evaluate(rows.columns)
        result = rows.target - seen
        between = _widened(as_data(fitted, near_by, terms), fitted, left, scatter)
        trees = None if trained is None else _as_data(trained)
    sd = max(SD_FLOOR, float(np.quantile(np.abs(scatter), 0.9)) / Z90)
    sd = math.hypot(sd, sd / math.sqrt(count)) if count > FIRST_ROWS else max(sd, FIRST_SD)
    return Offset(
        family=model.family, dtype=parts[0].batch.variant.dtype, log_offset=offset, log_sd=sd,
        rows=count, features=list(names), ranges=_ranges(rows.columns), correction=trees,
        repeats=_repeats(ops, result), interpolation=between,
        interpolated_share=share if between is not None else 0.0,
    ), float(np.abs(target).mean())  # fmt: skip


def op_hash(op: Op) -> str:
    """Names an op by what it computes: family, sizes, formats and flags, not who ran it."""
    family, dims, dtype, kv_dtype, flags, function, launch = identity(op)
    named = [function] if function else []  # the others keep the name that they had
    return content_hash(
        [family, [list(pair) for pair in dims], dtype, kv_dtype, [list(pair) for pair in flags],
         launch, *named]
    )  # fmt: skip


def _read(
    model: Implementation,
    measured: Sequence[tuple[MeasuredKernels, KernelTimes]],
    device: Device,
    names: tuple[str, ...],
    ops: Sequence[Op],
) -> _FamilyRows:
    tables: list[tuple[F64, F64, F64, F64]] = []
    for part, times in measured:
        kernels = Kernels.from_analysis(model, times.analysis, part.batch, device)
        tables.append(
            (
                kernels.table(names),
                placed(coordinates(names, model.ragged), kernels),
                trend_of(trend_names(names), kernels),
                np.log(part.seconds / times.estimate_s),
            )
        )
    columns, where, terms, target = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*tables, strict=True)
    )
    return _FamilyRows(columns, where, terms, target, _folds(ops))


def _folds(ops: Sequence[Op]) -> NDArray[np.int64]:
    """Repeats of an op are left out together."""
    index: dict[str, int] = {}
    number = np.array([index.setdefault(op_hash(op), len(index)) for op in ops], dtype=np.int64)
    shuffled: NDArray[np.int64] = np.random.default_rng(0).permutation(len(index)) % FOLDS
    return shuffled[number]


def _chosen(rows: _FamilyRows) -> tuple[float, _Left | None]:
    """The share of the interpolation that leaves least, None if the offset alone leaves less."""
    if len(np.unique(rows.fold)) < FOLDS or len(rows) < SOME_ROWS:
        return 0.0, None
    left = _left(rows)
    mixes = MIXES if left.trees is not None else (1.0,)
    # the larger share of equals: it is the smoother view
    least, share = min((float(np.abs(left.mixed(mix)).mean()), -mix) for mix in mixes)
    few = left.trees is None
    worth = few or least < CLEARLY_WORSE * float(np.abs(rows.target).mean())
    return (-share, left) if worth else (0.0, None)


def _left(rows: _FamilyRows) -> _Left:
    between, near = np.array(rows.target), np.zeros(len(rows))
    trees = np.array(rows.target) if len(rows) >= MANY_ROWS else None
    for number in range(FOLDS):
        inner, outer = rows.take(rows.fold != number), rows.fold == number
        fitted = fit(inner.where, inner.terms, inner.target)
        result, near[outer] = fitted.evaluate(rows.where[:, outer], rows.terms[:, outer])
        between[outer] -= result
        if trees is not None:
            trees[outer] -= _trees(inner).evaluate(rows.columns[:, outer])
    return _Left(between, trees, near)


def _trees(rows: _FamilyRows) -> Trees:
    return train(rows.columns, rows.target, settings=FEW if len(rows) < LARGE else MANY)


def _widened(
    data: Interpolation, fitted: InterpolationFit, left: _Left, scatter: F64
) -> Interpolation:
    """With spreads of field and noise such that nine rows in ten that were left out lie inside."""
    log_sd = np.sqrt(fitted.noise_log_sd**2 + fitted.field_log_sd**2 * (1.0 - left.near**2))
    factor = float(np.quantile(np.abs(scatter) / log_sd, 0.9)) / Z90
    return Interpolation(
        coordinates=data.coordinates,
        scales=data.scales,
        anchors=data.anchors,
        weights=data.weights,
        trend=data.trend,
        field_log_sd=min(5.0, factor * data.field_log_sd),
        noise_log_sd=min(5.0, max(NOISE_FLOOR, factor * data.noise_log_sd)),
    )


def _ranges(columns: F64) -> list[tuple[int, int]]:
    """First and last code of each feature."""
    feature_codes = codes(columns)
    return list(
        zip(feature_codes.min(axis=1).tolist(), feature_codes.max(axis=1).tolist(), strict=True)
    )


def _as_data(trees: Trees) -> TreeCorrection:
    return TreeCorrection(
        edges=[(np.flatnonzero(np.diff(row)) + 1).tolist() for row in trees.bins],
        questions=[
            list(zip(f, t, strict=True))
            for f, t in zip(trees.features.tolist(), trees.thresholds.tolist(), strict=True)
        ],
        leaves=trees.leaves.tolist(),
    )


def _repeats(ops: Sequence[Op], left: F64) -> list[Repeat]:
    """Per op the mean of what is left, and how far its rows lie apart."""
    rows: dict[str, list[float]] = {}
    for op, value in zip(ops, left.tolist(), strict=True):
        rows.setdefault(op_hash(op), []).append(value)
    means = {key: math.fsum(values) / len(values) for key, values in rows.items()}
    squares = {key: [(v - means[key]) ** 2 for v in values] for key, values in rows.items()}
    again = [value for group in squares.values() if len(group) > 1 for value in group]
    # an op that was timed once scatters as those that were timed again
    usual = math.sqrt(math.fsum(again) / len(again)) if again else 0.0
    return [
        Repeat(
            op=key,
            log_ratio=min(max(means[key], -5.0), 5.0),
            log_sd=min(5.0, max(usual, math.sqrt(math.fsum(squares[key]) / len(values)))),
            rows=len(values),
        )
        for key, values in sorted(rows.items())
    ]
