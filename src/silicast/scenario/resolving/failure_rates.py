"""How often a device of a scenario's cluster fails."""

from __future__ import annotations

from silicast.core.errors import errors_located
from silicast.distributed.step.reliability import HOUR_S, published
from silicast.scenario.schema import FailureTable


def gpu_mtbf_s(failing: FailureTable) -> float:
    """Mean time of one device between failures, seconds: stated, or of a published run.

    Raises:
        SilicastError: no published run has that name.

    >>> gpu_mtbf_s(FailureTable(mtbf_hours_per_gpu=50.0))
    180000.0
    """
    stated = failing.mtbf_hours_per_gpu
    if isinstance(stated, str):
        with errors_located("cluster.failures.mtbf_hours_per_gpu"):
            return published(stated).mtbf_gpu_s
    return stated * HOUR_S
