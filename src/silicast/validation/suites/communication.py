"""Collectives: NCCL and the engines' own all-reduce against nccl-tests and engine benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.validation.collective_rows import (
    HELD_OUT_DEVICES,
    OWN_NODES,
    SOURCE,
    CollectiveRows,
    read_collectives,
)
from silicast.validation.suite import Labels, Scored, Suite, register_suite, subsample


@final
@register_suite
class Communication(Suite):
    """One metric; groups by device, by library and launch, by operation and by what is unseen."""

    name: ClassVar[str] = "communication"
    title: ClassVar[str] = "Collectives within a node: NCCL and engines' own all-reduce"
    split: ClassVar[str] = (
        "Rows that neither constants nor the width of intervals were fitted on: all of H200, H20 "
        "and H800, GB200 but for half of its eager calls (they set the floor of its host, and are "
        "not scored), and half of the points of the other devices (hash of device, operation, "
        "participants and size). One in 12 of PipeWeave's dense sizes. The alpha-beta baseline is "
        "fitted on the same rows as our constants."
    )
    source: ClassVar[tuple[str, ...]] = (SOURCE, OWN_NODES)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 13.0, "median_ape": 6.0}
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """See :class:`~silicast.validation.suite.Suite`."""
        rows = read_collectives(data)
        fitted, unseen = rows.take(rows.fitted), rows.take(~rows.fitted)
        unseen = unseen.take(subsample(len(unseen), limit))
        ours, reference = _predict(unseen), _predict(fitted)
        alpha, share = _alpha_beta(fitted.seconds, reference["bound"])
        regimes = zip(unseen.library, unseen.launch, strict=True)
        return [
            Scored(
                metric="latency_us",
                measured=unseen.seconds * 1e6,
                estimate=ours["estimate"] * 1e6,
                p05=ours["p05"] * 1e6,
                p95=ours["p95"] * 1e6,
                roofline=ours["bound"] * 1e6,
                baselines={"alpha-beta": (alpha + ours["bound"] / share) * 1e6},
                groups={
                    "device": unseen.device,
                    "regime": np.array([f"{library} {launch}" for library, launch in regimes]),
                    "operation": unseen.op,
                    "unseen": _unseen(unseen),
                },
                noise=unseen.noise,
            )
        ]


def _unseen(rows: CollectiveRows) -> Labels:
    """What of each row no fit has seen: the device, the device but not its host, or the size."""
    held = np.isin(rows.device, HELD_OUT_DEVICES)
    host = (rows.device == "GB200") & (rows.launch == "eager")
    return np.where(host, "device, host seen", np.where(held, "device", "size"))


def _predict(rows: CollectiveRows) -> dict[str, F64]:
    """Seconds: estimate, p05, p95 and bound of every row."""
    out = {name: np.zeros(len(rows)) for name in ("estimate", "p05", "p95", "bound")}
    for key, index in rows.groups().items():
        name, op, gpus, per_node, library, version, launch, dtype = key
        topology = Topology.of(find_device(name), gpus, gpus_per_node=per_node)
        times = collective_times(
            op, rows.size[index], gpus, topology, library, launch, dtype, version
        )
        out["estimate"][index], out["bound"][index] = times.estimate_s, times.bound_s
        out["p05"][index], out["p95"][index] = times.p05_s, times.p95_s
    return out


def _alpha_beta(seconds: F64, bound: F64) -> tuple[float, float]:
    """The latency (s) and share of the link that fit all devices best in the logarithm."""
    candidates = [
        (float(np.mean(np.abs(np.log((alpha + bound / share) / seconds)))), alpha, share)
        for alpha in np.geomspace(2e-6, 60e-6, 30)
        for share in np.linspace(0.2, 1.0, 33)
    ]
    _, alpha, share = min(candidates)
    return float(alpha), float(share)
