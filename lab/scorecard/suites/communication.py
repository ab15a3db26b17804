"""Collectives: NCCL and the engines' own all-reduce against nccl-tests and engine benchmarks.

Four metrics: unseen sizes, long messages, and devices and architectures as if they had not been
measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.scorecard.collective_points import nearest_line, predict, scored_points
from lab.scorecard.collectives import TABLES, CollectiveRows, read_collectives
from lab.scorecard.held_out import (
    collectives_without,
    constants_of_short_messages,
    constants_without,
    corrections_of_short_messages,
)
from lab.scorecard.kernel_suite import ranges
from lab.scorecard.rows import subsample
from lab.scorecard.suite import Scored, Suite
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device

ALPHAS_S = np.geomspace(2e-6, 60e-6, 30).tolist()
SHARES = np.linspace(0.2, 1.0, 33).tolist()
"""Latencies, and shares of a link, of which the alpha-beta baseline has the best."""


def _score(data: Path, limit: int | None) -> list[Scored]:
    rows = read_collectives(data)
    fitted, unseen = rows.take(rows.fitted), rows.take(~rows.fitted)
    long = rows.take(rows.is_long() & ~rows.fitted)
    unseen = unseen.take(subsample(len(unseen), limit))
    long = long.take(subsample(len(long), limit))
    line = nearest_line(fitted.seconds, predict(fitted)[-1], ALPHAS_S, SHARES)
    short = constants_of_short_messages(), corrections_of_short_messages()
    return [
        scored("latency_us", unseen, predict(unseen), line),
        scored("long_us", long, predict(long, *short), line),
        scored("unseen_device_us", unseen, _unseen_devices(unseen), line),
        scored("unmeasured_us", unseen, _unmeasured(unseen), line),
    ]


def scored(
    metric: str, rows: CollectiveRows, result: F64, line: tuple[float, float] | None = None
) -> Scored:
    """Predictions of points beside what was measured.

    Args:
        line: latency (s) and share of the link of the alpha-beta baseline.
    """
    regimes = zip(rows.library, rows.launch, strict=True)
    message = ("to 32 KiB", "to 1 MiB", "to 32 MiB", "longer")
    return scored_points(
        metric,
        rows,
        result,
        {"alpha-beta": line[0] + result[3] / line[1]} if line else {},
        {
            "regime": np.array([f"{library} {launch}" for library, launch in regimes]),
            "group": np.array([f"{gpus} GPUs" for gpus in rows.gpus.tolist()]),
            "message": ranges(rows.size, (32 << 10, 1 << 20, 32 << 20), message),
        },
    )


def _unseen_devices(rows: CollectiveRows) -> F64:
    """Each device under constants without it: of its architecture's others where any has its link,
    else of other architectures.
    """
    unseen_devices, without = _unmeasured(rows), collectives_without()
    for name in sorted(set(rows.device.tolist()) & set(without)):
        mine = np.flatnonzero(rows.device == name)
        unseen_devices[:, mine] = predict(rows.take(mine), without[name])
    return unseen_devices


def _unmeasured(rows: CollectiveRows) -> F64:
    """Each architecture under the constants without it."""
    unmeasured = np.zeros((4, len(rows)))
    architecture = np.array([find_device(name).architecture for name in rows.device])
    for each in np.unique(architecture).tolist():
        mine = np.flatnonzero(architecture == each)
        unmeasured[:, mine] = predict(rows.take(mine), constants_without("communication", each))
    return unmeasured


SUITES = (Suite("communication", TABLES, _score),)
