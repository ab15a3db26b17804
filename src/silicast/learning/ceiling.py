"""How fast kernels of a problem have been seen to be: what is within reach on a device.

The physical bound leaves out that no kernel fills every pipe all the time. The ceiling is what the
quicker kernels reached on such problems, whoever wrote them: a low quantile of measured times over
the analytic one, learned without marks of library and release. A kernel far above its ceiling has a
better implementation; one at its ceiling is as good as what is known, however far from the bound.
"""

from __future__ import annotations

from silicast.core.numerics import F64
from silicast.learning.features import WHO

QUANTILE = 0.1
"""Of measured times: one kernel in ten was quicker than the ceiling."""


def without_who(columns: F64, names: tuple[str, ...]) -> F64:
    """Features, shape (F, n), with the marks of who provides a kernel cleared."""
    cleared = columns.copy()
    cleared[[row for row, name in enumerate(names) if name.startswith(WHO)]] = 0
    return cleared
