"""Collectives: NCCL and the engines' own all-reduce against nccl-tests and engine benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, final

import msgspec
import numpy as np

from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.physics import Physics, PhysicsCard
from silicast.learning.artefact import Artefact, read_artefact
from silicast.validation.collective_rows import (
    OWN_NODES,
    SOURCE,
    CollectiveRows,
    is_long,
    read_collectives,
)
from silicast.validation.suite import EVIDENCE, Labels, Scored, Suite, register_suite, subsample

FOLDER = Path(__file__).parents[1]
HELD_OUT = FOLDER / "held_out" / "communication.json"
SHORT = FOLDER / "held_out_sizes" / "communication.json"


@final
@register_suite
class Communication(Suite):
    """Unseen sizes, long messages, and architectures that nobody measured; one metric each."""

    name: ClassVar[str] = "communication"
    title: ClassVar[str] = "Collectives within a node: NCCL and engines' own all-reduce"
    split: ClassVar[str] = (
        "latency_us: the half of each device's points (hash of device, operation, participants and "
        "size) that neither constants, nor corrections, nor the width of intervals saw. long_us: "
        "those of more than an eighth of the largest measured, under constants and corrections of "
        "shorter ones. unmeasured_us: the points of latency_us, under constants of other "
        "architectures, sister devices left out too. One in 12 of PipeWeave's dense sizes. The "
        "alpha-beta baseline is fitted on the same rows as our constants."
    )
    source: ClassVar[tuple[str, ...]] = (SOURCE, OWN_NODES)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 5.0, "median_ape": 3.0},
        "long_us": {"mean_ape": 10.0, "median_ape": 5.0},
        "unmeasured_us": {"mean_ape": 30.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """See :class:`~silicast.validation.suite.Suite`."""
        rows = read_collectives(data)
        fitted, unseen = rows.take(rows.fitted), rows.take(~rows.fitted)
        long = rows.take(is_long(rows) & ~rows.fitted)
        unseen = unseen.take(subsample(len(unseen), limit))
        long = long.take(subsample(len(long), limit))
        alpha, share = _alpha_beta(fitted.seconds, _predict(fitted)["bound"])
        scored = []
        for metric, mine, predicted in (
            ("latency_us", unseen, _predict(unseen)),
            ("long_us", long, _predict(long, *without_long())),
            ("unmeasured_us", unseen, _unmeasured(unseen)),
        ):
            regimes = zip(mine.library, mine.launch, strict=True)
            scored.append(
                Scored(
                    metric=metric,
                    measured=mine.seconds * 1e6,
                    estimate=predicted["estimate"] * 1e6,
                    p05=predicted["p05"] * 1e6,
                    p95=predicted["p95"] * 1e6,
                    roofline=predicted["bound"] * 1e6,
                    baselines={"alpha-beta": (alpha + predicted["bound"] / share) * 1e6},
                    groups={
                        "device": mine.device,
                        "regime": np.array([f"{library} {launch}" for library, launch in regimes]),
                        "operation": mine.op,
                        "group": np.array([f"{gpus} GPUs" for gpus in mine.gpus.tolist()]),
                        "message": _message(mine),
                    },
                    noise=mine.noise,
                )
            )
        return scored


def _message(rows: CollectiveRows) -> Labels:
    borders = np.array([32 << 10, 1 << 20, 32 << 20])
    names = np.array(["to 32 KiB", "to 1 MiB", "to 32 MiB", "longer"])
    return names[np.searchsorted(borders, rows.size)]


def without(architecture: str) -> Physics:
    """The constants as they were fitted without an architecture's rows."""
    return _physics(_held_out()[architecture])


def without_long() -> tuple[Physics, Artefact]:
    """Constants and corrections that have seen no long message."""
    return _physics(msgspec.json.decode(SHORT.read_bytes())), _short_artefact()


@cache
def _held_out() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(HELD_OUT.read_bytes())
    return found


@cache
def _short_artefact() -> Artefact:
    return read_artefact(SHORT.with_name("collective.json"))


def _physics(body: Mapping[str, Any]) -> Physics:
    card = PhysicsCard(data=[], split="", command="", date="")
    return Physics(
        1, card, dict(body["default"]), dict(body["architectures"]), dict(body["fallback"])
    )


def _unmeasured(rows: CollectiveRows) -> dict[str, F64]:
    """Each architecture under the constants without it."""
    out = {name: np.zeros(len(rows)) for name in ("estimate", "p05", "p95", "bound")}
    architecture = np.array([find_device(name).architecture for name in rows.device])
    for each in np.unique(architecture).tolist():
        mine = np.flatnonzero(architecture == each)
        found = _predict(rows.take(mine), without(each))
        for name, values in found.items():
            out[name][mine] = values
    return out


def _predict(
    rows: CollectiveRows, physics: Physics | None = None, artefact: Artefact | None = None
) -> dict[str, F64]:
    """Seconds: estimate, p05, p95 and bound of every row."""
    out = {name: np.zeros(len(rows)) for name in ("estimate", "p05", "p95", "bound")}
    for key, index in rows.groups().items():
        name, op, gpus, per_node, library, version, launch, dtype = key
        topology = Topology.of(find_device(name), gpus, gpus_per_node=per_node)
        times = collective_times(
            op,
            rows.size[index],
            gpus,
            topology,
            library,
            launch,
            dtype,
            version,
            physics=physics,
            artefact=artefact,
            learned=EVIDENCE.get().learned,
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
