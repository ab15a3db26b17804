"""Constants of frameworks, ``catalog/physics/frameworks.json``; spreads: fit_uncertainty.py.

    python -m lab.fit_composition

The round trip of an answer that the host waits for: the shortest calls of NeuSight's kernel tables,
which ran on an idle device. No model-level time is read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lab import fitting
from silicast.kernels.physics import Physics
from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.suites.streaming import NEUSIGHT
from silicast.validation.scorecard.tables import read_records

DATE = "2026-11-22"


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
    about = fitting.card(
        "lab/fit_composition.py",
        ["neusight/kernels_nvidia.parquet: shortest calls"],
        "the train split of the kernel table; no model-level row is read",
        {},
        "round_trip_us: of an answer that the host waits for",
    )
    default = {"round_trip_us": round_trip_us(data)}
    return fitting.physics({**about, "date": DATE}, default)


def write(name: str, physics: Physics) -> None:
    """Puts a constants file into the catalog."""
    fitting.write_physics(fitting.PHYSICS / name, physics)
    print(name, physics.default, physics.architectures)


def main() -> None:
    data = data_folder()
    write("frameworks.json", frameworks(data))


if __name__ == "__main__":
    main()
