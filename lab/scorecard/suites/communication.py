"""Collectives: NCCL and the engines' own all-reduce against nccl-tests and engine benchmarks.

Four metrics: unseen sizes, long messages, and devices and architectures as if they had not been
measured.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab.scorecard.collectives import TABLES, CollectiveRows, read_collectives
from lab.scorecard.held_out import (
    collectives_without,
    constants_of_short_messages,
    constants_without,
    corrections_of_short_messages,
)
from lab.scorecard.kernel_suite import ranges
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from silicast.communication.collective import collective_times
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import Physics
from silicast.learning.artefact import Artefact

US = 1e6


def _score(data: Path, limit: int | None) -> list[Scored]:
    rows = read_collectives(data)
    fitted, unseen = rows.take(rows.fitted), rows.take(~rows.fitted)
    long = rows.take(rows.is_long() & ~rows.fitted)
    unseen = unseen.take(subsample(len(unseen), limit))
    long = long.take(subsample(len(long), limit))
    line = _alpha_beta(fitted.seconds, predict(fitted)[-1])
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
    """Predictions of :func:`predict` beside what was measured, microseconds.

    Args:
        line: latency (s) and share of the link of the alpha-beta baseline.
    """
    estimate, p05, p95, bound = result
    others = {"alpha-beta": (line[0] + bound / line[1]) * US} if line else {}
    regimes = zip(rows.library, rows.launch, strict=True)
    message = ("to 32 KiB", "to 1 MiB", "to 32 MiB", "longer")
    return Scored(
        metric=metric,
        measured=rows.seconds * US,
        estimate=estimate * US,
        p05=p05 * US,
        p95=p95 * US,
        roofline=bound * US,
        baselines=others,
        groups={
            "device": rows.device,
            "regime": np.array([f"{library} {launch}" for library, launch in regimes]),
            "operation": rows.op,
            "group": np.array([f"{gpus} GPUs" for gpus in rows.gpus.tolist()]),
            "message": ranges(rows.size, (32 << 10, 1 << 20, 32 << 20), message),
        },
        noise=rows.noise,
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


def predict(
    rows: CollectiveRows, physics: Physics | None = None, artefact: Artefact | None = None
) -> F64:
    """Estimate, p05, p95 and bound of every row, seconds, shape (4, n)."""
    result = np.zeros((4, len(rows)))
    for call, index in rows.calls():
        times = collective_times(
            call.op, rows.size[index], call.topology.gpus, call.topology, call.library, call.launch,
            call.dtype, call.version,
            physics=physics, artefact=artefact, learned=EVIDENCE.get().learned,
        )  # fmt: skip
        result[:, index] = times.estimate_s, times.p05_s, times.p95_s, times.bound_s
    return result


def _alpha_beta(seconds: F64, bound: F64) -> tuple[float, float]:
    """The latency (s) and share of the link that fit all devices best in the logarithm."""
    candidates = [
        (float(np.mean(np.abs(np.log((alpha + bound / share) / seconds)))), alpha, share)
        for alpha in np.geomspace(2e-6, 60e-6, 30)
        for share in np.linspace(0.2, 1.0, 33)
    ]
    _, alpha, share = min(candidates)
    return float(alpha), float(share)


SUITES = (Suite("communication", TABLES, _score),)
