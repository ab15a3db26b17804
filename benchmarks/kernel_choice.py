"""How often the analytic model's fastest tile is the one that cuBLAS ran, by names of kernels.

    OPENBLAS_NUM_THREADS=1 python benchmarks/kernel_choice.py

NeuSight's test rows of fp32 products name each kernel, and so its tile. Writes
benchmarks/results/kernel_choice.json. Nothing is fitted. Deterministic; under a minute.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitting import F
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.streaming import NEUSIGHT
from lab.scorecard.tables import read_records
from silicast.hardware.catalog import find_device
from silicast.kernels.products.gemm import GemmSetting
from silicast.kernels.products.gemm_model import evaluate
from silicast.workload.graphs.op import Variant

TARGET = Path(__file__).parent / "results" / "kernel_choice.json"
MOST = 1000
"""Rows of a device and operation."""
EAGER = Variant(dtype="fp32", launch="stream")

Row = dict[str, Any]


def kind_of(row: Row) -> tuple[int, int, bool]:
    """Rows and columns of the tile, and whether warps share its k."""
    return int(row["tile_y"]), int(row["tile_x"]), "sliced" in row["kernel_name"]


def candidate_kinds(labels: tuple[str, ...]) -> list[tuple[int, int, bool] | None]:
    """The same of our candidates; None for those that cuBLAS calls no sgemm."""
    candidate_kinds: list[tuple[int, int, bool] | None] = []
    for label in labels:
        sides = re.search(r"(\d+)x(\d+)", label)
        plain = sides is not None and "streaming" not in label
        candidate_kinds.append(
            (int(sides[1]), int(sides[2]), "sliced" in label) if plain and sides else None
        )
    return candidate_kinds


def score(rows: list[Row], train: list[Row]) -> dict[str, float]:
    setting = GemmSetting.from_variant(EAGER, find_device(rows[0]["gpu"]))
    m, k, n = (np.array([[float(row[side]) for row in rows]]) for side in "MNK")
    batch = np.array([[float(row["B"] or 1) for row in rows]])
    tiles = setting.tiles
    time = evaluate(m, n, k, batch, tiles, setting.steps, setting.rates, setting.constants).time
    kinds = candidate_kinds(tiles.labels)
    truth = [kind_of(row) for row in rows]
    order = np.argsort(time, axis=0, kind="stable")
    common = Counter(kind_of(row) for row in train).most_common(1)[0][0]

    def share(hits: list[bool]) -> float:
        return round(sum(hits) / len(rows), 3)

    numbers = range(len(rows))
    judged = [i for i in numbers if truth[i] in kinds]
    ratio: F = np.array([time[kinds.index(truth[i]), i] / time[order[0, i], i] for i in judged])
    return {
        "rows": len(rows),
        "candidate": share([truth[i] in kinds for i in numbers]),
        "top1": share([kinds[order[0, i]] == truth[i] for i in numbers]),
        "top3": share([truth[i] in [kinds[x] for x in order[:3, i]] for i in numbers]),
        "commonest": share([truth[i] == common for i in numbers]),
        "time_of_winner_over_pick": round(float(ratio.mean()), 3) if len(ratio) else 0.0,
        "winner_within_5_percent": round(float((ratio < 1.05).mean()), 3) if len(ratio) else 0.0,
    }


def main() -> None:
    table = [row for row in read_records(data_folder() / NEUSIGHT) if row["tile_x"] is not None]
    random = np.random.default_rng(0)
    entries: dict[str, dict[str, float]] = {}
    for gpu in sorted({row["gpu"] for row in table}):
        for op in ("linear", "bmm"):
            rows = [row for row in table if row["gpu"] == gpu and row["op"] == op]
            test = [row for row in rows if row["split"] == "test"]
            test = [test[i] for i in np.sort(random.permutation(len(test))[:MOST])]
            train = [row for row in rows if row["split"] == "train"]
            entries[f"{gpu} {op}"] = score(test, train)
            print(gpu, op, entries[f"{gpu} {op}"], flush=True)
    fitting.write(TARGET, entries)


if __name__ == "__main__":
    main()
