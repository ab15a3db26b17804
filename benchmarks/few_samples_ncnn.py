"""Ten image networks measured on a device that nobody measured before: ncnn's own benchmark.

    python -m benchmarks.few_samples_ncnn      writes benchmarks/results/few_samples_ncnn.json

``edge/ncnn.parquet``: a set-up is a device with its most threads, or its GPU. Each device is left
out with all its set-ups; ten of the networks are drawn, the others are scored, five draws. Known
devices are groups of their own, and no work of kernels is counted. Reported, nothing is fitted.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_samples import mean
from lab.scorecard.figures import rank_correlation
from lab.scorecard.suite import data_folder
from lab.scorecard.tables import read_records
from silicast.core.files import write_atomically
from silicast.core.numerics import F64
from silicast.learning.few_samples import even_weights, fit_blend

RESULT = Path(__file__).with_name("results") / "few_samples_ncnn.json"
TABLE = "edge/ncnn.parquet"
SAMPLES, DRAWS, COMMON = 10, 5, 0.8
SetUp = tuple[str, bool]


def latencies() -> tuple[list[SetUp], list[str], F64]:
    """Set-ups that have all networks that most have, these, and times (set-ups, networks) in ms."""
    rows = list(read_records(data_folder() / TABLE))
    threads: dict[SetUp, int] = {}
    for row in rows:
        key = (row["device"], row["uses_gpu"])
        threads[key] = max(threads.get(key, 0), row["num_threads"])
    table: dict[SetUp, dict[str, float]] = {}
    for row in rows:
        key = (row["device"], row["uses_gpu"])
        if row["num_threads"] == threads[key]:
            table.setdefault(key, {})[row["model"]] = row["avg_ms"]
    counts = Counter(name for times in table.values() for name in times)
    names = sorted(name for name, count in counts.items() if count >= COMMON * len(table))
    whole = sorted(key for key, times in table.items() if all(name in times for name in names))
    return whole, names, np.array([[table[key][name] for name in names] for key in whole])


def score(predicted: F64, truth: F64, log_sd: float) -> dict[str, float]:
    """Figures of one draw."""
    errors = np.abs(predicted / truth - 1.0)
    inside = np.abs(np.log(truth / predicted)) < 1.645 * log_sd
    return {
        "spearman": rank_correlation(predicted, truth),
        "median_error_pct": 100 * float(np.median(errors)),
        "within_10_pct": 100 * float(np.mean(errors < 0.1)),
        "in_interval_pct": 100 * float(np.mean(inside)),
    }


def main() -> None:
    keys, names, times = latencies()
    relative = times / np.median(times, axis=1, keepdims=True)
    devices: dict[str, Any] = {}
    for index, (device, on_gpu) in enumerate(keys):
        others = [i for i, (name, _) in enumerate(keys) if name != device]
        others_times, groups = relative[others].T, [keys[i][0] for i in others]
        none = np.zeros((len(names), 0))
        draws = []
        for seed in range(DRAWS):
            at = np.random.default_rng(seed).choice(len(names), SAMPLES, replace=False)
            rest = np.setdiff1d(np.arange(len(names)), at)
            blend = fit_blend(others_times[at], none[at], even_weights(groups), times[index, at])
            predicted = blend.predict(others_times[rest], none[rest])
            draws.append(score(predicted, times[index, rest], blend.log_sd))
        usual = rank_correlation(others_times @ even_weights(groups), times[index])
        label = f"{device}{', GPU' if on_gpu else ''}"
        devices[label] = {**mean(draws), "no_sample_spearman": round(usual, 4)}
    results = {
        "set_ups": len(keys),
        "networks": len(names),
        "mean": mean(list(devices.values())),
        "devices": devices,
    }
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    print(results["set_ups"], results["networks"], results["mean"])


if __name__ == "__main__":
    main()
