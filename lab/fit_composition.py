"""Constants of frameworks, ``catalog/physics/frameworks.json``; spreads: fit_uncertainty.py.

    python -m lab.fit_composition

The clock that a board holds where its campaign
found it at less than half of the speed that its boost clock gives (``neusight/kernels_nvidia``,
linear layers of 10 ms and more of the train split against the kernel model at the boost clock): it
may be throttled like that again, or not at all, so the middle of the two, and half the distance as
a spread. The test split, another session, only checks. The round trip of an answer that the host
waits for: the shortest calls of the same tables, which ran on an idle device. No model-level time
is read for either.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab import fitting
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import implementation_for
from silicast.kernels.physics import Physics
from silicast.learning.tiers import ALL_SHIPPED, kernel_times
from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.suites.streaming import NEUSIGHT
from silicast.validation.scorecard.tables import read_records
from silicast.workload.op import OpBatch, Variant

DATE = "2026-11-22"

LONG_MS = 10.0
"""Calls of a campaign that are as hot as a pass of seconds."""
THROTTLED = 0.5
"""Below this share of the kernel model's speed a campaign's board was in another power state; the
lowest of the others is at 0.81, which the kernel model's own error explains."""


def session_speeds(data: Path) -> dict[str, dict[str, float]]:
    """Board -> split -> median speed of its long linear layers over the kernel model's."""
    table = read_records(data / NEUSIGHT, op="linear")
    rows = [row for row in table if row["latency_ms"] >= LONG_MS]
    found: dict[str, dict[str, float]] = {}
    gemm = implementation_for("gemm", "simt")
    assert gemm is not None
    for name in sorted({row["gpu"] for row in rows}):
        own = [row for row in rows if row["gpu"] == name]
        dims = {
            ours: np.array([row[theirs] for row in own], dtype=np.int64)
            for ours, theirs in (("m", "M"), ("n", "K"), ("k", "N"))
        }
        dims["batch"] = np.ones(len(own), dtype=np.int64)
        batch = OpBatch("gemm", Variant(dtype="fp32"), dims)
        device = replace(find_device(name), power_cap_w=None)
        predicted = kernel_times(gemm, batch, device, ALL_SHIPPED).estimate_s * 1e3
        speed = predicted / np.array([row["latency_ms"] for row in own])
        split = np.array([row["split"] for row in own])
        found[device.name] = {s: float(np.median(speed[split == s])) for s in ("train", "test")}
    return found


def round_trip_us(data: Path) -> float:
    """Median over boards of the time in which one short call in a hundred is done: dispatch,
    launch and an almost empty kernel, on an idle device.
    """
    table = read_records(data / NEUSIGHT, split="train")
    rows = [row for row in table if row["op"] in ("add", "mul", "addu", "mulu", "relu")]
    floors = [
        float(np.quantile([row["latency_ms"] for row in rows if row["gpu"] == name], 0.01))
        for name in sorted({row["gpu"] for row in rows})
    ]
    return round(float(np.median(floors)) * 1e3, 1)


def frameworks(data: Path) -> Physics:
    """Constants of passes in plain frameworks."""
    speeds = session_speeds(data)
    for name, split in speeds.items():
        print(f"{name}: train {split['train']:.3f}, test {split['test']:.3f} of the kernel model")
    throttled = {name: s["train"] for name, s in speeds.items() if s["train"] < THROTTLED}
    about = fitting.card(
        "lab/fit_composition.py",
        ["neusight/kernels_nvidia.parquet: linear of 10 ms and more; shortest calls"],
        "the train split of the kernel table; its test split only checks, and no "
        "model-level row is read",
        {"speed over the kernel model": speeds},
        "architectures holds boards by name: clock_share of the boost clock is the "
        "geometric mean of full speed and what a throttled campaign found; "
        "round_trip_us: of an answer that the host waits for",
    )
    boards = {
        name: {"clock_share": round(math.sqrt(share), 3)} for name, share in throttled.items()
    }
    default = {"round_trip_us": round_trip_us(data)}
    return fitting.physics({**about, "date": DATE}, default, boards)


def write(name: str, physics: Physics) -> None:
    """Puts a constants file into the catalog."""
    fitting.write_physics(fitting.PHYSICS / name, physics)
    print(name, physics.default, physics.architectures)


def main() -> None:
    data = data_folder()
    write("frameworks.json", frameworks(data))


if __name__ == "__main__":
    main()
