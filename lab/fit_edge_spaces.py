"""Latencies of known devices as linear functions of an architecture's choices.

    python -m lab.fit_edge_spaces

``edge/help_*_latency_ms``: every device of the table is one vector of weights, fitted by relative
errors with Huber's weights, so that single impossible values do not count. Writes
``catalog/edge/<space>.json``. Devices that a scorecard treats as new are left out there with their
relatives (`KnownLatencies.without`).
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitting import F
from lab.scorecard.suite import data_folder
from silicast.learning.known_latencies import FOLDER
from silicast.workload.spaces import ArchitectureSpace, spaces

TABLES = {
    "nasbench201": "edge/help_nasbench201_latency_ms.csv.gz",
    "fbnet": "edge/help_fbnet_latency_ms.csv.gz",
}
GROUPS = {
    "1080ti": "nvidia gpu",
    "2080ti": "nvidia gpu",
    "titan": "nvidia gpu",
    "gold": "xeon",
    "silver": "xeon",
    "pixel": "snapdragon",
    "essential": "snapdragon",
    "samsung_a50": "exynos 9610",
    "samsung_s7": "exynos 8890",
}
"""Start of a device's name -> its group; the Essential phone and the Pixels have Snapdragons."""
PULL = 1.0
"""Of each weight toward zero, in rows of the table."""
IMPOSSIBLE = 0.1
"""Rows below this share of a device's median are timer errors (the table's README)."""
ROUNDS = 5


def read_table(data: Path, space: ArchitectureSpace) -> tuple[Any, list[str], F]:
    """Choices (n, positions), names of devices, and latencies in ms (n, devices)."""
    with gzip.open(data / TABLES[space.name], "rt", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    choices = np.array([space.choices(row[1]) for row in rows], dtype=np.int64)
    return choices, head[2:], np.array([[float(cell) for cell in row[2:]] for row in rows])


def group_of(device: str) -> str:
    """The group of a device: its chip's family, or itself."""
    return next((group for start, group in GROUPS.items() if device.startswith(start)), device)


def weights_of(features: F, latencies: F) -> F:
    """Weights of features for latencies over their median, (columns,)."""
    wanted = latencies / np.median(latencies)
    credible = wanted > IMPOSSIBLE
    trust = credible / np.maximum(wanted, IMPOSSIBLE) ** 2
    weights = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        weighted = features * trust[:, None]
        products = features.T @ weighted + PULL * np.eye(features.shape[1])
        weights = np.linalg.solve(products, weighted.T @ (wanted - 1.0))
        fitted = np.maximum(1.0 + features @ weights, 0.05)
        errors = wanted / fitted - 1.0
        usual = 1.4826 * float(np.median(np.abs(errors[credible])))
        trust = credible / fitted**2 * np.minimum(1.0, 1.5 * usual / np.maximum(abs(errors), 1e-9))
    weights[0] += 1.0
    return weights


def fitted(space: ArchitectureSpace, data: Path) -> dict[str, Any]:
    """The file of one space."""
    choices, names, latencies = read_table(data, space)
    features = space.features(choices)
    devices, errors = [], {}
    for name, column in zip(names, latencies.T, strict=True):
        weights = np.round(weights_of(features, column), 5)
        median = float(np.median(column))
        off = features @ weights * median / column - 1.0
        errors[name] = round(100 * float(np.median(np.abs(off))), 1)
        devices.append(
            {
                "name": name,
                "group": group_of(name),
                "median_ms": float(f"{median:.5g}"),
                "weights": weights.tolist(),
            }
        )
    card = fitting.card(
        "python -m lab.fit_edge_spaces",
        [TABLES[space.name]],
        "all rows; a scorecard leaves out the scored device and its relatives",
        scores={"median_error_pct of rows fitted": errors},
        notes="devices are named as the table names them",
    )
    medians = [float(f"{value:.6g}") for value in np.median(space.kernel_work(choices), axis=0)]
    return {"format": 1, "card": card, "kernel_medians": medians, "devices": devices}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, space in spaces().items():
        fitting.write(FOLDER / f"{name}.json", fitted(space, data_folder()))


if __name__ == "__main__":
    main()
