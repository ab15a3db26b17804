"""How fast kernels of a problem have been seen to be: what is within reach on a device.

The physical bound leaves out that no kernel fills every pipe all the time. The ceiling is what the
quicker kernels reached on such problems, whoever wrote them: a low quantile of measured times over
the analytic one, learned without marks of library and release. A kernel far above its ceiling has a
better implementation; one at its ceiling is as good as what is known, however far from the bound.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from silicast.core.numerics import F64, I64, exp_fixed
from silicast.kernels.implementation import KernelTimes
from silicast.learning.artefact import Artefact, Trained
from silicast.learning.features import WHO

_Columns = TypeVar("_Columns", F64, I64)

QUANTILE = 0.1
"""Of measured times: one kernel in ten was quicker than the ceiling."""


def ceiling_times(
    times: KernelTimes, found: I64, weight: F64, artefact: Artefact, trained: Trained
) -> F64 | None:
    """Times of the ceiling, shape (n,), seconds; None where the artefact has none.

    Between the analytic estimate and the learned ceiling outside the measured range, as a
    correction is; never below the bound.

    Args:
        times: the analytic ones.
        found: codes of the correction's features, shape (F, n); weight: as of the correction.
    """
    trees = artefact.ceiling(trained)
    if trees is None:
        return None
    anyone = without_who(found, artefact.names(trained))
    factor = exp_fixed(weight * trees.of_codes(anyone))
    return np.maximum(times.estimate_s * factor, times.bound_s)


def without_who(columns: _Columns, names: tuple[str, ...]) -> _Columns:
    """Features or their codes, shape (F, n), with the marks of who provides a kernel cleared."""
    cleared = columns.copy()
    cleared[[row for row, name in enumerate(names) if name.startswith(WHO)]] = 0
    return cleared
