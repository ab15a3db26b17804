"""What rows measured on a device change about its predictions, and predictions so changed.

Three steps, each only as far as the rows carry it. All of a family and format share an offset,
drawn toward none while rows are few. What differs from op to op is interpolated and learned
(:mod:`silicast.learning.calibration_fit`); outside the measured sizes it fades. An op that was
measured itself comes to what was measured, the closer the less its repeats scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast import __version__
from silicast.core.calibration import AGAIN, Calibration, Offset, Repeat, TreeCorrection
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, exp_fixed
from silicast.hardware.device import Device
from silicast.kernels.check import op_at
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.calibration_fit import FIRST_ROWS, FIRST_SD, NOISE_FLOOR, op_hash
from silicast.learning.correction import inside
from silicast.learning.features import Kernels
from silicast.learning.forest import CODES, Trees, codes
from silicast.learning.interpolation import InterpolationFit, from_data, placed, trend_of
from silicast.workload.graphs.op import OpBatch

SIZES = ("size", "max", "sequences")
KINDS = ("style", "kv", "stream")
PROVIDER, STYLE = "library:", "style:"


@final
@dataclass(frozen=True)
class Change:
    """What a calibration says of a batch; arrays of shape (n,).

    Attributes:
        log_ratio: measured over predicted time, faded outside the measured sizes.
        log_sd: of what it leaves; weight: 1 among the measured sizes, 0 far from them.
    """

    log_ratio: F64
    log_sd: F64
    weight: F64


@final
@dataclass(frozen=True)
class _Ready:
    """An offset with its parts decoded."""

    offset: Offset
    trees: Trees | None
    between: InterpolationFit | None
    repeats: Mapping[str, Repeat]

    @staticmethod
    def from_offset(offset: Offset) -> _Ready:
        data = offset.interpolation
        return _Ready(
            offset,
            None if offset.correction is None else _decoded(offset.correction),
            None if data is None else from_data(data),
            {repeat.op: repeat for repeat in offset.repeats},
        )

    def weight(self, kernels: Kernels) -> F64:
        """1 among the measured sizes and kinds of kernels, falling to 0 an octave beyond."""
        feature_names = self.offset.features
        rows = [i for i, name in enumerate(feature_names) if _tells_ground(name)]
        if not self.offset.ranges or not rows:
            return np.ones(len(kernels.batch))
        # where the style of kernel is known it does not matter whose library brings it
        told = any(name.startswith(PROVIDER) for name in feature_names) and not any(
            name.startswith(STYLE) for name in kernels.own
        )
        if any(_is_other(name, feature_names, told) for name in kernels.own):
            return np.zeros(len(kernels.batch))
        values = codes(kernels.table(tuple(feature_names[i] for i in rows)))
        ranges = np.array([self.offset.ranges[i] for i in rows], dtype=np.int64)
        return inside(values, ranges)

    def steady(self, kernels: Kernels) -> tuple[F64, F64]:
        """Log ratio and its sd before fading and repeats."""
        offset, data = self.offset, self.offset.interpolation
        log_sd = np.full(len(kernels.batch), offset.log_sd)
        ratio = np.full(len(kernels.batch), offset.log_offset)
        share = offset.interpolated_share
        if self.trees is not None:
            trees = self.trees.evaluate(kernels.table(tuple(offset.features)))
            ratio = ratio + (1.0 - share) * trees
        if self.between is not None and data is not None:
            result, near = self.between.evaluate(
                placed(data.coordinates, kernels), trend_of(tuple(data.trend), kernels)
            )
            ratio = ratio + share * result
            apart = data.field_log_sd * data.field_log_sd * (1.0 - near * near)
            log_sd = np.sqrt(data.noise_log_sd * data.noise_log_sd + apart)
            log_sd = log_sd * math.sqrt(1.0 + 1.0 / offset.rows)
        return ratio, log_sd


@final
class Calibrator:
    """A calibration made ready: trees decoded, repeats by op.

    Args:
        calibration: of the device that is to be predicted.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration
        self._ready = {
            (offset.family, offset.dtype): _Ready.from_offset(offset)
            for offset in calibration.offsets
        }

    @property
    def warning(self) -> str:
        """What a reader must know of it, or ""."""
        made = self.calibration.version
        if self.calibration.upstream or made in ("", __version__):
            return ""
        return (
            f"calibration made with version {made}, whose predictions it corrects; this is "
            f"{__version__}: {AGAIN}"
        )

    def applies_to(self, family: str, dtype: str) -> bool:
        """Whether it changes anything about a family in a format."""
        return self.calibration.offset_for(family, dtype) is not None

    def change(
        self, times: KernelTimes, model: Implementation, batch: OpBatch, device: Device
    ) -> Change:
        """What it says of a batch of a family and format that it applies to.

        Raises:
            SilicastError: it was fitted with features that this version does not have.
        """
        offset = self.calibration.offset_for(model.family, batch.variant.dtype)
        assert offset is not None
        ready = self._ready[offset.family, offset.dtype]
        kernels = Kernels.from_analysis(model, times.analysis, batch, device)
        try:
            weight = ready.weight(kernels)
            ratio, near = ready.steady(kernels)
        except KeyError as error:
            raise SilicastError(
                f"was fitted with a feature {str(error)[:80]} that this version does not have",
                field="calibration",
                hint=AGAIN,
            ) from None
        ratio = weight * ratio
        shared = math.fsum(value * value for value in times.shared_log_sd.values())
        before = times.independent_log_sd * times.independent_log_sd + shared
        if offset.rows <= FIRST_ROWS and offset.log_sd <= FIRST_SD:
            near = np.minimum(near, np.sqrt(before))  # so few rows do not make others less known
        log_sd = np.sqrt(weight * near * near + (1.0 - weight) * np.maximum(near * near, before))
        for row, repeat in _repeated(batch.arrays(), ready.repeats):
            noise = max(repeat.log_sd, NOISE_FLOOR)
            trust = log_sd[row] ** 2 / (log_sd[row] ** 2 + noise**2 / repeat.rows)
            ratio[row] += trust * repeat.log_ratio
            log_sd[row] = max(NOISE_FLOOR, log_sd[row] * math.sqrt(1.0 - trust))
        return Change(ratio, log_sd, weight)

    def times(
        self, times: KernelTimes, model: Implementation, batch: OpBatch, device: Device
    ) -> KernelTimes:
        """``times`` as the calibration changes them."""
        if not self.applies_to(model.family, batch.variant.dtype):
            return times
        change = self.change(times, model, batch, device)
        estimate = times.estimate_s * exp_fixed(change.log_ratio)
        return times.corrected(estimate, change.log_sd, calibrated=change.weight)


def _tells_ground(name: str) -> bool:
    """Whether a feature says how far an op is from those measured: its sizes and its kind.

    Who provides it does not: a query may leave that out. Shares follow from the sizes, and what
    flags ask for the analysis says; kernels that differ in them are no near neighbours.
    """
    return name.partition(":")[0] in (*SIZES, *KINDS)


def _is_other(name: str, known: Sequence[str], told: bool) -> bool:
    """Whether a mark is of a kind of kernel, or of a library where they are told, that no measured
    row had.
    """
    is_condition = told if name.startswith(PROVIDER) else name.partition(":")[0] in KINDS
    return is_condition and name not in known


def _decoded(data: TreeCorrection) -> Trees:
    every = np.arange(CODES)
    bins = np.stack([np.searchsorted(edges, every, side="right") for edges in data.edges])
    questions = np.array(data.questions, dtype=np.int64)
    return Trees(
        bins=bins.astype(np.uint8),
        features=questions[:, :, 0].astype(np.int16),
        thresholds=questions[:, :, 1].astype(np.uint8),
        leaves=np.array(data.leaves, dtype=np.int16),
    )


def _repeated(batch: OpBatch, repeats: Mapping[str, Repeat]) -> Iterator[tuple[int, Repeat]]:
    """Rows that were measured themselves."""
    for row in range(len(batch)) if repeats else ():
        repeat = repeats.get(op_hash(op_at(batch, row)))
        if repeat is not None:
            yield row, repeat
