"""Constants of frameworks, ``catalog/physics/frameworks.json``; spreads: fit_uncertainty.py.

    python -m lab.fit_frameworks

The round trip of an answer that the host waits for: the shortest calls of NeuSight's kernel tables,
which ran on an idle device. No model-level time is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.suites.streaming import NEUSIGHT
from lab.scorecard.tables import read_records

Rows = list[dict[str, Any]]
SHORT = ("add", "mul", "addu", "mulu", "relu")


class Frameworks(Fitter[Rows]):
    """Passes in plain frameworks."""

    group = "frameworks"
    data = ("neusight/kernels_nvidia.parquet: shortest calls",)
    split = "the train split of the kernel table; no model-level row is read"
    notes = "round_trip_us: of an answer that the host waits for"

    def rows(self, data: Path) -> Rows:
        table = read_records(data / NEUSIGHT, split="train")
        return [row for row in table if row["op"] in SHORT]

    def fit(self, rows: Rows) -> Body:
        """Median over boards of the time in which one short call in a hundred is done: dispatch,
        launch and an almost empty kernel, on an idle device.
        """
        floors = [
            float(np.quantile([row["latency_ms"] for row in rows if row["gpu"] == name], 0.01))
            for name in sorted({row["gpu"] for row in rows})
        ]
        return fitting.body({"round_trip_us": round(float(np.median(floors)) * 1e3, 1)}, {})

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        print(body["default"])
        return {}


if __name__ == "__main__":
    Frameworks().run()
