"""Times of kernels in the best tier that there is for them and that is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.learning.calibration import Calibrator
from silicast.learning.correction import learned_times
from silicast.workload.op import OpBatch


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """What a prediction may rest on beside the analytic model.

    Attributes:
        learned: corrections that were learned from measured kernels of the architecture.
        calibrators: what was measured on the very device; the first that speaks for a family and
            format counts.
    """

    learned: bool = True
    calibrators: tuple[Calibrator, ...] = ()


ALL_SHIPPED = Evidence()


def kernel_times(
    model: Implementation, batch: OpBatch, device: Device, evidence: Evidence = ALL_SHIPPED
) -> KernelTimes:
    """Times of a batch: analytic, corrected by what was learned, changed by what a user measured.

    Raises:
        SilicastError: the device cannot run it, or an artefact is broken.
    """
    found = learned_times if evidence.learned else Implementation.times
    times = found(model, batch, device)
    for calibrator in evidence.calibrators:
        if calibrator.speaks_for(model.family, batch.variant.dtype):
            return calibrator.times(times, model, batch, device)
    return times
