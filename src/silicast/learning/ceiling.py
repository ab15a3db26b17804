"""How fast kernels of a problem have been seen to be: what is within reach on a device.

The physical bound leaves out that no kernel fills every pipe all the time. The ceiling is what the
quicker kernels reached on such problems, whoever wrote them: a low quantile of measured times over
the analytic one, learned without marks of library and release. A kernel far above its ceiling has a
better implementation; one at its ceiling is as good as what is known, however far from the bound.
"""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import F64, exp_fixed
from silicast.hardware.device import Device
from silicast.kernels.implementation import Implementation
from silicast.learning.artefact import load_artefact
from silicast.learning.correction import inside
from silicast.learning.features import WHO, Kernels
from silicast.learning.oblivious import codes
from silicast.workload.op import OpBatch

QUANTILE = 0.1
"""Of measured times: one kernel in ten was quicker than the ceiling."""


def ceiling_times(model: Implementation, batch: OpBatch, device: Device) -> F64 | None:
    """Times of the ceiling, shape (n,), seconds; None where nothing was measured.

    Between the analytic estimate and the learned ceiling outside the measured range, as a
    correction is; never below the bound.
    """
    times = model.times(batch, device)
    artefact = load_artefact(model.family) if times.measured else None
    trained = artefact and artefact.find(device.architecture, batch.variant.dtype)
    trees = artefact.ceiling(trained) if artefact and trained else None
    if artefact is None or trained is None or trees is None:
        return None
    names = artefact.names(trained)
    found = codes(without_who(Kernels.of(model, times.analysis, batch, device).table(names), names))
    weight = inside(found, artefact.ranges(trained))
    return np.maximum(times.estimate_s * exp_fixed(weight * trees.of_codes(found)), times.bound_s)


def without_who(columns: F64, names: tuple[str, ...]) -> F64:
    """Features of shape (F, n) with the marks of who provides a kernel cleared."""
    cleared = columns.copy()
    cleared[[row for row, name in enumerate(names) if name.startswith(WHO)]] = 0.0
    return cleared
