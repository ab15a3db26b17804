"""What rows measured on a device change about its predictions, and predictions so changed.

Three steps, each only as far as the rows carry it. All of a family and format share an offset,
drawn toward none by :data:`PRIOR_ROWS` rows of no difference. From :data:`MANY_ROWS` on, small
trees learn what differs from op to op. An op that was measured itself comes to what was measured,
the closer the less its repeats scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.calibration import Calibration, Correction, Offset, Repeat
from silicast.core.hashing import content_hash
from silicast.core.numerics import F64, exp_fixed
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.check import op_at, take
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.boosting import Settings, train
from silicast.learning.correction import inside, learned_times
from silicast.learning.features import Kernels, marks
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
    correction, names = None, _names(model, parts, device)
    if count >= MANY_ROWS:
        columns = np.concatenate(
            [
                Kernels.of(model, times.analysis, p.batch, device).table(names)
                for p, (_, times) in zip(parts, tables, strict=True)
            ],
            axis=1,
        )
        across = _across_folds(columns, left)
        if np.abs(across).mean() < np.abs(left).mean():
            trees = train(columns, left, settings=SETTINGS)
            correction = _as_data(trees, names, columns)
            left, scatter = left - trees.evaluate(columns), across
        else:
            scatter = left
    else:
        scatter = left
    sd = max(SD_FLOOR, float(np.quantile(np.abs(scatter), 0.9)) / Z90)
    sd = math.hypot(sd, sd / math.sqrt(count)) if count > 2 else max(sd, 0.1)
    ops = [op_at(part.batch, row) for part in parts for row in range(len(part.batch))]
    return Offset(
        family=model.family,
        dtype=dtype,
        log_offset=offset,
        log_sd=sd,
        rows=count,
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
        shift = np.full(len(batch), offset.log_offset)
        own = np.full(len(batch), offset.log_sd)
        if offset.correction is not None:
            trees, ranges = self._trees[key]
            kernels = Kernels.of(model, times.analysis, batch, device)
            table = kernels.table(offset.correction.features)
            weight = inside(table, ranges)
            shift = shift + weight * trees.evaluate(table)
            apart = np.maximum(own, times.independent_log_sd)
            own = np.sqrt(weight * own * own + (1.0 - weight) * apart * apart)
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
            tier="calibrated",
            learned=None,
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


def _names(
    model: Implementation, parts: Sequence[MeasuredKernels], device: Device
) -> tuple[str, ...]:
    first = take(parts[0].batch, np.arange(1))
    said = sorted(set().union(*(marks(model, part.batch.variant, device) for part in parts)))
    named = Kernels.of(model, model.times(first, device).analysis, first, device).names()
    return (*named, *said)


def _across_folds(columns: F64, target: F64) -> F64:
    """What is left of each row by trees that did not see it."""
    left = np.array(target)
    fold = np.random.default_rng(0).permutation(len(target)) % FOLDS
    for number in range(FOLDS):
        inner, outer = fold != number, fold == number
        trees = train(columns[:, inner], target[inner], settings=SETTINGS)
        left[outer] -= trees.evaluate(columns[:, outer])
    return left


def _as_data(trees: Trees, names: Sequence[str], columns: F64) -> Correction:
    found = codes(columns)
    return Correction(
        features=list(names),
        edges=[(np.flatnonzero(np.diff(row)) + 1).tolist() for row in trees.bins],
        ranges=list(zip(found.min(axis=1).tolist(), found.max(axis=1).tolist(), strict=True)),
        questions=[
            list(zip(f, t, strict=True))
            for f, t in zip(trees.features.tolist(), trees.thresholds.tolist(), strict=True)
        ],
        leaves=trees.leaves.tolist(),
    )


def _decoded(data: Correction) -> tuple[Trees, NDArray[np.int64]]:
    every = np.arange(CODES)
    bins = np.stack([np.searchsorted(edges, every, side="right") for edges in data.edges])
    questions = np.array(data.questions, dtype=np.int64)
    trees = Trees(
        bins=bins.astype(np.uint8),
        features=questions[:, :, 0].astype(np.int16),
        thresholds=questions[:, :, 1].astype(np.uint8),
        leaves=np.array(data.leaves, dtype=np.int16),
    )
    return trees, np.array(data.ranges, dtype=np.int64)


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
