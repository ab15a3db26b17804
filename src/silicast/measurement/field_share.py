"""How much of what is open about a family's kernels in a scenario goes when some are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.learning.dispatch import implementation_of
from silicast.measurement.design.kernel_points import KernelPoints
from silicast.measurement.design.points import Law, Open
from silicast.measurement.scenario_kernels import UsedKernel
from silicast.workload.op import Op

FITTED_FROM = 10
"""Measured rows from which on they say how far kernels inform each other."""


@final
@dataclass(frozen=True)
class MeasuredOp:
    """A kernel that was measured before, in seconds."""

    op: Op
    seconds: float


@final
class FormatField:
    """Kernels of one family and format in a scenario, under the process that calibrations use.

    Args:
        used: kernels; weight: share of the family's time of each, shape (n,).
        left: what is open about them.

    Attributes:
        whole: variance of their sum before anything is chosen; taken: of it, by what was.
    """

    def __init__(self, used: Sequence[UsedKernel], weight: F64, left: Open) -> None:
        self.used, self.weight, self.open = used, weight, left
        self.whole = float(weight @ left.all(np.arange(len(used))) @ weight)
        self.taken = 0.0
        self._chosen: set[int] = set()

    @staticmethod
    def of(
        used: Sequence[UsedKernel],
        family_s: float,
        device: Device,
        measured: Sequence[MeasuredOp] = (),
    ) -> FormatField:
        """Of a device.

        Args:
            family_s: predicted seconds of the whole family; measured: kernels of the same family
                and format that were measured on it.
        """
        ops = [*(each.op for each in used), *(each.op for each in measured)]
        maker = KernelPoints(implementation_of(ops[0], device), ops, device, np.ones_like)
        points, seconds = maker.of(ops, np.ones(len(ops)))
        count = len(used)
        rows: I64 = np.arange(count, len(ops))
        law = Law.prior(points)
        if len(rows) >= FITTED_FROM:
            times = np.array([each.seconds for each in measured])
            law = Law.fitted(points, rows, np.log(times / seconds[count:]))
        weight = np.array([each.seconds for each in used]) / family_s
        return FormatField(used, weight, Open(points, law, np.arange(count), rows))

    def gains(self) -> F64:
        """Variance of the sum that measuring each takes off it, shape (n,); 0 for chosen ones."""
        shared = self.open.all(np.arange(len(self.used))) @ self.weight
        noise = self.open.law.noise**2
        found: F64 = shared * shared / (np.maximum(self.open.variance, 0.0) + noise)
        found[sorted(self._chosen)] = 0.0
        return found

    def measure(self, place: int) -> None:
        """Notes that one of them will be measured."""
        self.taken += float(self.gains()[place])
        self.open.measured(place)
        self._chosen.add(place)


@final
@dataclass(frozen=True)
class FamilyField:
    """All formats of a family.

    Attributes:
        family: its name.
    """

    family: str
    formats: tuple[FormatField, ...]

    @staticmethod
    def of(
        family: str,
        used: Sequence[UsedKernel],
        device: Device,
        measured: Sequence[MeasuredOp] = (),
    ) -> FamilyField:
        """Of a device: see :meth:`FormatField.of`."""
        whole = sum(each.seconds for each in used)
        kinds: dict[str, list[UsedKernel]] = {}
        for each in used:
            kinds.setdefault(each.op.variant.dtype, []).append(each)
        return FamilyField(
            family,
            tuple(
                FormatField.of(
                    own, whole, device,
                    [row for row in measured
                     if (row.op.family, row.op.variant.dtype) == (family, dtype)],
                )
                for dtype, own in kinds.items()
            ),
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Of the variance, what is gone."""
        whole = sum(each.whole for each in self.formats)
        return sum(each.taken for each in self.formats) / whole if whole > 0.0 else 0.0

    def best(self) -> tuple[FormatField, int, float] | None:
        """The kernel whose measurement takes most, and the share of the variance that it takes."""
        whole = sum(each.whole for each in self.formats)
        found = [(float(gains.max()), n, int(gains.argmax()))
                 for n, each in enumerate(self.formats) if len(gains := each.gains())]  # fmt: skip
        if not found or whole <= 0.0:
            return None
        gain, number, place = max(found, key=lambda each: (each[0], -each[1]))
        return self.formats[number], place, gain / whole
