"""Variance of the kernels of a family in one scenario, and how much measuring some removes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.learning.dispatch import implementation_of
from silicast.measurement.design.points import KernelPoints, PointCovariance, ProcessParameters
from silicast.measurement.sweeps.scenario_kernels import UsedKernel
from silicast.workload.graphs.op import Op

FITTED_FROM = 10
"""Measured rows from which on the length scales are fitted."""

MeasuredOp = tuple[Op, float]
"""A kernel that was measured before, and its seconds."""


@final
class FormatVariance:
    """Variance of the summed time of a scenario's kernels of one family and format.

    Args:
        used: the kernels; family_s: predicted seconds of the whole family.
        measured: kernels of the same family and format that were measured on the device.

    Attributes:
        whole: variance of the sum, relative to ``family_s``; removed: part removed so far.
    """

    def __init__(
        self,
        used: Sequence[UsedKernel],
        family_s: float,
        device: Device,
        measured: Sequence[MeasuredOp] = (),
    ) -> None:
        ops = [*(each.op for each in used), *(op for op, _ in measured)]
        maker = KernelPoints(implementation_of(ops[0], device), ops, device, np.ones_like)
        points, seconds = maker.points(ops, np.ones(len(ops)))
        count = len(used)
        rows: I64 = np.arange(count, len(ops))
        process = ProcessParameters.prior(points)
        if len(rows) >= FITTED_FROM:
            times = np.array([each_s for _, each_s in measured])
            process = ProcessParameters.fitted(points, rows, np.log(times / seconds[count:]))
        self.used = used
        self._posterior = PointCovariance(points, process, np.arange(count), rows)
        self._weight: F64 = np.array([each.seconds for each in used]) / family_s
        self.whole = float(self._weight @ self._posterior.all(np.arange(count)) @ self._weight)
        self.removed = 0.0
        self._chosen: set[int] = set()

    def gains(self) -> F64:
        """Variance that measuring each kernel removes, shape (n,); 0 for chosen ones."""
        shared = self._posterior.all(np.arange(len(self.used))) @ self._weight
        noise = self._posterior.process.noise**2
        gains: F64 = shared * shared / (np.maximum(self._posterior.variance, 0.0) + noise)
        gains[sorted(self._chosen)] = 0.0
        return gains

    def measure(self, index: int) -> None:
        """Records that a kernel will be measured."""
        self.removed += float(self.gains()[index])
        self._posterior.measured(index)
        self._chosen.add(index)


@final
@dataclass(frozen=True)
class FamilyVariance:
    """All formats of a family."""

    formats: tuple[FormatVariance, ...]

    @staticmethod
    def from_kernels(
        used: Sequence[UsedKernel], device: Device, measured: Sequence[MeasuredOp] = ()
    ) -> FamilyVariance:
        """Of a scenario's kernels of one family, given what was measured on the device."""
        family_s = sum(each.seconds for each in used)
        formats: dict[tuple[str, str], list[UsedKernel]] = {}
        for each in used:
            formats.setdefault(_format(each.op), []).append(each)
        return FamilyVariance(
            tuple(
                FormatVariance(
                    item, family_s, device, [r for r in measured if _format(r[0]) == key]
                )
                for key, item in formats.items()
            )
        )

    def best(self) -> tuple[FormatVariance, int, float] | None:
        """The kernel whose measurement removes most, and the share of the variance it removes."""
        whole = sum(each.whole for each in self.formats)
        ranked = [
            (float(gains.max()), n, int(gains.argmax()))
            for n, each in enumerate(self.formats)
            if len(gains := each.gains())
        ]
        if not ranked or whole <= 0.0:
            return None
        gain, number, position = max(ranked, key=lambda each: (each[0], -each[1]))
        return self.formats[number], position, gain / whole


def _format(op: Op) -> tuple[str, str]:
    return op.family, op.variant.dtype
