"""What the throughput of ML.ENERGY's runs is averaged over: one law, fitted on the train models.

    python benchmarks/mlenergy_runs.py OUT.json

In a closed loop of B sequences of which all decode, output tokens a second x TPOT = B. The table's
rows hold less, the less the larger B is (its column ``itl_check`` is B over it). Where a run sends
N requests, fills and empties in the time of c requests, and its throughput is over all of it,

    output tokens a second x TPOT / B = N / (N + c B)

One N / c for each task, from the models of the train split, is held against the test split.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lab.fitting import write
from lab.scorecard.suite import data_folder
from lab.scorecard.suites.mlenergy import runs

BANDS = (16, 64, 256, 1 << 20)


def share(run: dict[str, Any]) -> float:
    """Of a run's sequences, those that decode on average over all of it."""
    return float(run["output_tokens_per_s"] * run["avg_tpot_s"] / run["avg_batch"])


def requests_over_c(rows: list[dict[str, Any]]) -> float:
    """N / c by least squares of the share, on a grid of 1 %."""
    batch = np.array([row["avg_batch"] for row in rows])
    measured = np.array([share(row) for row in rows])
    tried = np.exp(np.arange(np.log(20.0), np.log(20_000.0), 0.01))
    errors = [np.square(n / (n + batch) - measured).sum() for n in tried]
    return float(tried[int(np.argmin(errors))])


def held(rows: list[dict[str, Any]], known: float) -> list[dict[str, float]]:
    """By sequences: the measured share, that of the law, and how far they are apart in the mean."""
    held, least = [], 0
    for most in BANDS:
        band = [row for row in rows if least < row["avg_batch"] <= most]
        least = most
        if not band:
            continue
        measured = np.array([share(row) for row in band])
        law = np.array([known / (known + row["avg_batch"]) for row in band])
        held.append({
            "most_sequences": most, "rows": len(band), "measured": round(float(measured.mean()), 3),
            "law": round(float(law.mean()), 3),
            "mean_absolute_error": round(float(np.abs(law - measured).mean()), 3),
        })  # fmt: skip
    return held


def main(out: str | None = None) -> None:
    """Prints the law and how it holds; writes JSON if a path is given."""
    data = data_folder()
    table: dict[str, Any] = {}
    for task in ("chat", "code"):
        train, test = (
            [row for row in runs(data, split) if row["task"].endswith(task)]
            for split in ("train", "test")
        )
        known = requests_over_c(train)
        table[task] = {
            "requests_over_c": round(known), "train": held(train, known), "test": held(test, known)
        }  # fmt: skip
    print(json.dumps(table, indent=1))
    if out is not None:
        write(Path(out), table)


if __name__ == "__main__":
    main(*sys.argv[1:])
