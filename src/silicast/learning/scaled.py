"""Measured on a device one has, wanted on one that one has not.

Habitat (Geoffrey et al. 2021) scales a measured time by the ratio of the two devices' models:

    t(wanted) = measured(had) x model(wanted) / model(had) = model(wanted) x ratio(had)

That takes all of what the model misses on the one device to be missed on the other as well. Pairs
of measured devices say how much of it really is: most between chips of one architecture, next to
nothing between architectures. So the ratio counts with a power: the share that carries over between
such a pair, times how alike the kernel is on both (the same share of time for every resource).
"""

from __future__ import annotations

from typing import final

import numpy as np

from silicast.core.numerics import F64, exp_fixed
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation, KernelTimes
from silicast.kernels.physics.constants import load_physics
from silicast.learning.calibration import Calibrator
from silicast.learning.correction import learned_times
from silicast.learning.interpolation import PHYSICS
from silicast.workload.graphs.op import OpBatch


@final
class ScaledCalibrator:
    """A calibration of one device, used for another of its vendor.

    Args:
        calibrator: of the device that was measured.
        have: that device.
        learned: it was fitted to predictions with shipped corrections, else to analytic ones.
    """

    def __init__(self, calibrator: Calibrator, have: Device, *, learned: bool = True) -> None:
        self.calibrator = calibrator
        self.have = have
        self.learned = learned

    def applies_to(self, family: str, dtype: str) -> bool:
        """Whether anything of a family in a format was measured."""
        return self.calibrator.applies_to(family, dtype)

    def warning(self, device: Device) -> str:
        """The warning that names the other device and its ratio."""
        share = 100.0 * self._carried(device)[0]
        return (
            f"calibration measured on {self.have.name}, used for {device.name}: at most "
            f"{share:.0f} % of what was measured there is taken to hold here"
        )

    def times(
        self, times: KernelTimes, model: Implementation, batch: OpBatch, device: Device
    ) -> KernelTimes:
        """``times`` on ``device`` with what carries over from the device that was measured.

        Raises:
            SilicastError: the device that was measured does not run such kernels.
        """
        usual, usual_sd = self._carried(device)
        if usual <= 0.0:
            return times
        result = learned_times if self.learned else type(model).times
        there = result(model, batch, self.have)
        change = self.calibrator.change(there, model, batch, self.have)
        share = usual * change.weight * alike(there.analysis, times.analysis)
        estimate = times.estimate_s * exp_fixed(share * change.log_ratio)
        before = np.sqrt(
            times.independent_log_sd * times.independent_log_sd
            + sum(value * value for value in times.shared_log_sd.values())
        )
        after = np.sqrt(change.log_sd * change.log_sd + usual_sd * usual_sd)
        log_sd = np.minimum(before, np.sqrt(_mixed(share, after, before)))
        return times.corrected(estimate, log_sd, scaled=change.weight)

    def _carried(self, device: Device) -> tuple[float, float]:
        """The share that carries over to kernels that are wholly alike, and the sd it leaves."""
        c = load_physics(PHYSICS).default
        kind = "same" if device.architecture == self.have.architecture else "other"
        return c[f"carried_{kind}"], c[f"carried_{kind}_log_sd"]


def alike(one: Analysis, other: Analysis) -> F64:
    """How alike kernels are on two devices, 0..1, shape (n,).

    What every resource alone would need of the kernel's time, its smaller share over its larger,
    summed over the resources.
    """
    least, most = np.zeros_like(one.time_s), np.zeros_like(one.time_s)
    for name, seconds in one.resource_s.items():
        there = seconds / one.time_s
        resource = other.resource_s.get(name)
        here = np.zeros_like(there) if resource is None else resource / other.time_s
        least = least + np.minimum(here, there)
        most = most + np.maximum(here, there)
    return least / np.maximum(most, np.finfo(np.float64).tiny)


def _mixed(share: F64, after: F64, before: F64) -> F64:
    """The variance between what is known with the share and without it."""
    return share * after * after + (1.0 - share) * before * before
