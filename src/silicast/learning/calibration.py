"""What rows measured on a device change about its predictions, and predictions so changed.

Three steps, each only as far as the rows carry it. All of a family and format share an offset,
drawn toward none by :data:`PRIOR_ROWS` rows of no difference; it fades outside the measured sizes.
From :data:`MANY_ROWS` on, small trees learn what differs from op to op. An op that was measured
itself comes to what was measured, the closer the less its repeats scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from silicast.core.calibration import Calibration, Correction, Offset, Repeat
from silicast.core.hashing import content_hash
from silicast.core.numerics import F64, exp_fixed
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.check import op_at
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.boosting import Settings, train
from silicast.learning.correction import inside, learned_times
from silicast.learning.features import Kernels, all_names
from silicast.learning.oblivious import CODES, Trees, codes
from silicast.learning.training import MeasuredKernels
from silicast.workload.op import Op, OpBatch

PRIOR_ROWS = 3.0
MANY_ROWS = 60
FOLDS = 5
SETTINGS = Settings(trees=60, depth=4, rate=0.15, rows=0.8, columns=0.6, prior=4.0)
NOISE_FLOOR = 0.01
"""Repeats of a kernel are never taken for closer than that, in logs."""
SD_FLOOR = 0.02


def fit_offset(
    model: Implementation, parts: Sequence[MeasuredKernels], device: Device
) -> tuple[Offset, float]:
    """The offset, correction and repeats of one family and format from rows of a device.

    Args:
        parts: its rows, one part a variant; all of one family and dtype.

    Returns:
        What changes, and the mean |log| error before it.
    """
    dtype = parts[0].batch.variant.dtype
    tables = [_residuals(model, part, device) for part in parts]
    target = np.concatenate([target for target, _ in tables])
    count = len(target)
    offset = float(np.median(target)) * count / (count + PRIOR_ROWS)
    left = target - offset
    names = all_names(model, [(part.batch, device) for part in parts])
    columns = np.concatenate(
        [
            Kernels.of(model, times.analysis, p.batch, device).table(names)
            for p, (_, times) in zip(parts, tables, strict=True)
        ],
        axis=1,
    )
    correction, scatter = None, left
    if count >= MANY_ROWS:
        across = _across_folds(columns, left)
        if np.abs(across).mean() < np.abs(left).mean():
            trees = train(columns, left, settings=SETTINGS)
            correction, scatter = _as_data(trees), across
            left = left - trees.evaluate(columns)
    sd = max(SD_FLOOR, float(np.quantile(np.abs(scatter), 0.9)) / Z90)
    sd = math.hypot(sd, sd / math.sqrt(count)) if count > 2 else max(sd, 0.1)
    ops = [op_at(part.batch, row) for part in parts for row in range(len(part.batch))]
    return Offset(
        family=model.family,
        dtype=dtype,
        log_offset=offset,
        log_sd=sd,
        rows=count,
        features=list(names),
        ranges=_ranges(columns),
        correction=correction,
        repeats=_repeats(ops, left),
    ), float(np.abs(target).mean())


@final
class Calibrator:
    """A calibration made ready: trees decoded, repeats by op.

    Args:
        calibration: of the device that is to be predicted.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._trees = {
            (offset.family, offset.dtype): _decoded(offset.correction)
            for offset in calibration.offsets
            if offset.correction is not None
        }
        self._repeats = {
            (offset.family, offset.dtype): {repeat.op: repeat for repeat in offset.repeats}
            for offset in calibration.offsets
        }

    def speaks_for(self, family: str, dtype: str) -> bool:
        """Whether it changes anything about a family in a format."""
        return self.calibration.offset_for(family, dtype) is not None

    def times(
        self, times: KernelTimes, model: Implementation, batch: OpBatch, device: Device
    ) -> KernelTimes:
        """``times`` as the calibration changes them."""
        offset = self.calibration.offset_for(model.family, batch.variant.dtype)
        if offset is None:
            return times
        key = (offset.family, offset.dtype)
        kernels = Kernels.of(model, times.analysis, batch, device)
        found = codes(kernels.table(tuple(offset.features)))
        shift = np.full(len(batch), offset.log_offset)
        if offset.correction is not None:
            shift = shift + self._trees[key].of_codes(found)
        weight = np.ones(len(batch))
        if offset.ranges:
            weight = inside(found, np.array(offset.ranges, dtype=np.int64))
        shift = weight * shift
        shared = math.fsum(value * value for value in times.shared_log_sd.values())
        before = times.independent_log_sd * times.independent_log_sd + shared
        near = np.full(len(batch), offset.log_sd)
        own = np.sqrt(weight * near * near + (1.0 - weight) * np.maximum(near * near, before))
        for row, repeat in _repeated(batch, self._repeats[key]):
            noise = max(repeat.log_sd, NOISE_FLOOR)
            trust = own[row] ** 2 / (own[row] ** 2 + noise**2 / repeat.rows)
            shift[row] += trust * repeat.log_ratio
            own[row] = max(NOISE_FLOOR, own[row] * math.sqrt(1.0 - trust))
        estimate = np.maximum(times.estimate_s * exp_fixed(shift), times.bound_s)
        spread = exp_fixed(Z90 * own)
        return replace(
            times,
            estimate_s=estimate,
            p05_s=np.maximum(estimate / spread, times.bound_s),
            p95_s=estimate * spread,
            shared_log_sd={},
            independent_log_sd=own,
            calibrated=weight,
        )


def op_hash(op: Op) -> str:
    """Names an op by what it computes: family, sizes, formats and flags, not who ran it."""
    variant = op.variant
    return content_hash(
        [op.family, [[name, value] for name, value in op.dims], variant.dtype, variant.kv_dtype,
         [[name, value] for name, value in variant.flags], variant.launch]
    )  # fmt: skip


def _residuals(
    model: Implementation, part: MeasuredKernels, device: Device
) -> tuple[F64, KernelTimes]:
    times = learned_times(model, part.batch, device)
    return np.log(part.seconds / times.estimate_s), times


def _across_folds(columns: F64, target: F64) -> F64:
    """What is left of each row by trees that did not see it."""
    left = np.array(target)
    fold = np.random.default_rng(0).permutation(len(target)) % FOLDS
    for number in range(FOLDS):
        inner, outer = fold != number, fold == number
        trees = train(columns[:, inner], target[inner], settings=SETTINGS)
        left[outer] -= trees.evaluate(columns[:, outer])
    return left


def _ranges(columns: F64) -> list[tuple[int, int]]:
    """First and last code of each feature."""
    found = codes(columns)
    return list(zip(found.min(axis=1).tolist(), found.max(axis=1).tolist(), strict=True))


def _as_data(trees: Trees) -> Correction:
    return Correction(
        edges=[(np.flatnonzero(np.diff(row)) + 1).tolist() for row in trees.bins],
        questions=[
            list(zip(f, t, strict=True))
            for f, t in zip(trees.features.tolist(), trees.thresholds.tolist(), strict=True)
        ],
        leaves=trees.leaves.tolist(),
    )


def _decoded(data: Correction) -> Trees:
    every = np.arange(CODES)
    bins = np.stack([np.searchsorted(edges, every, side="right") for edges in data.edges])
    questions = np.array(data.questions, dtype=np.int64)
    return Trees(
        bins=bins.astype(np.uint8),
        features=questions[:, :, 0].astype(np.int16),
        thresholds=questions[:, :, 1].astype(np.uint8),
        leaves=np.array(data.leaves, dtype=np.int16),
    )


def _repeats(ops: Sequence[Op], left: F64) -> list[Repeat]:
    """Per op the mean of what is left, and how far its rows lie apart."""
    rows: dict[str, list[float]] = {}
    for op, value in zip(ops, left.tolist(), strict=True):
        rows.setdefault(op_hash(op), []).append(value)
    found = []
    for key, values in sorted(rows.items()):
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
        if abs(mean) < 5.0:
            found.append(Repeat(op=key, log_ratio=mean, log_sd=min(spread, 5.0), rows=len(values)))
    return found


def _repeated(batch: OpBatch, known: Mapping[str, Repeat]) -> Iterator[tuple[int, Repeat]]:
    """Rows that were measured themselves."""
    for row in range(len(batch)) if known else ():
        repeat = known.get(op_hash(op_at(batch, row)))
        if repeat is not None:
            yield row, repeat
