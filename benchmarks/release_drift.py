"""Whether `silicast drift` notices what releases of engines changed, and nothing else.

    python benchmarks/release_drift.py

Of the measured tables of matrix products and of decode attention (`aiconfigurator/gemm.parquet`,
`generation_attention.parquet`): each device and engine with two releases is a cell. 200 kernels of
the older one are calibrated by, as a user would; kernels of the newer one that both measured, but
not those 200, are then tested row by row, 150 at most, against predictions of the older release:
the catalog tells some releases apart, and a change that is predicted is no drift. Whether a cell
moved is told by all kernels that both measured: the median of newer over older time. False alarms:
each cell's older rows that were not fitted, 100 times in another order and another half.

Also counts the configurations of `training/megatron_bridge_release_drift.csv` whose published
throughput moved by more than a tenth between two releases. Writes
benchmarks/results/release_drift.json. About two minutes on one core.
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.rows import version_order
from lab.scorecard.suite import data_folder
from lab.scorecard.tables import read_arrow
from silicast.core.calibration import save_calibration
from silicast.measurement.calibrating.calibrate import calibrate
from silicast.measurement.calibrating.scoring import Scored, scored
from silicast.measurement.records.dataset import read_dataset
from silicast.validation.drift import ALPHA, TOLERANCE, tested_cell
from silicast.validation.measured import cases_of

RESULT = Path(__file__).parent / "results" / "release_drift.json"
SYSTEMS = {"b200_sxm": "B200", "gb200": "GB200", "h100_sxm": "H100", "h200_sxm": "H200"}
FITTED, TESTED, ORDERS = 200, 150, 100
MOVED, STILL = 0.10, 0.02
OPS = ("gemm", "attention_decode")

Row = dict[str, Any]


def cells(data: Path) -> Iterator[tuple[tuple[str, str, str], dict[str, list[Row]]]]:
    """(op, system, backend) -> release -> rows in a drawn order."""
    for op, file, wanted in (
        ("gemm", "gemm.parquet", {"gemm_dtype": "bfloat16"}),
        (
            "attention_decode",
            "generation_attention.parquet",
            {"kv_cache_dtype": "bfloat16", "window_size": 0, "beam_width": 1},
        ),
    ):
        for system in SYSTEMS:
            filters = [("system", "=", system), *((k, "=", v) for k, v in wanted.items())]
            table = read_arrow(data / "aiconfigurator" / file, filters=filters).to_pylist()
            by_release: dict[tuple[str, str], dict[tuple[int, ...], list[float]]] = {}
            for row in table:
                sizes = _sizes(op, row)
                release = by_release.setdefault((row["backend"], row["version"]), {})
                release.setdefault(sizes, []).append(row["latency_us"])
            for backend in sorted({name for name, _ in by_release}):
                releases = {
                    version: [
                        {"sizes": sizes, "latency_us": min(times)} for sizes, times in _drawn(rows)
                    ]
                    for (name, version), rows in by_release.items()
                    if name == backend
                }
                if len(releases) > 1:
                    yield (op, system, backend), releases


def _sizes(op: str, row: Mapping[str, Any]) -> tuple[int, ...]:
    if op == "gemm":
        return row["m"], row["n"], row["k"]
    kv = row["isl"] + row["step"] - 1
    return row["batch_size"], kv, row["num_heads"], row["num_key_value_heads"], row["head_dim"]


def _drawn(
    rows: Mapping[tuple[int, ...], list[float]],
) -> list[tuple[tuple[int, ...], list[float]]]:
    pairs = sorted(rows.items())
    order = np.random.default_rng(1).permutation(len(pairs))
    return [pairs[at] for at in order]


def write_table(path: Path, op: str, backend: str, version: str, rows: list[Row]) -> None:
    """Rows as a user's table of kernels."""
    names = {
        "gemm": ("m", "n", "k"),
        "attention_decode": ("batch", "kv_len", "num_heads", "num_kv_heads", "head_dim"),
    }[op]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["op", *names, "dtype", "library", "library_version", "latency_us"])
        for row in rows:
            writer.writerow([op, *row["sizes"], "bf16", backend, version, row["latency_us"]])


def ratios_of(device: str, table: Path, calibration: Path) -> list[Scored]:
    """Predictions of a table's rows."""
    cases, unread = cases_of(read_dataset([table]), device)
    assert not unread, unread[0].reason
    return scored(cases, [calibration])


def score_cell(key: tuple[str, str, str], releases: dict[str, list[Row]]) -> Row:
    op, system, backend = key
    device = SYSTEMS[system]
    old, new = sorted(releases, key=version_order)[-2:]
    fitted, left = releases[old][:FITTED], releases[old][FITTED:]
    former_us = {row["sizes"]: row["latency_us"] for row in left}
    both = [
        (row["latency_us"], former_us[row["sizes"]])
        for row in releases[new]
        if row["sizes"] in former_us
    ]
    shift = math.exp(float(np.median([math.log(a / b) for a, b in both]))) - 1.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calibration = folder / "calibration.json"
        write_table(folder / "old.csv", op, backend, old, fitted)
        save_calibration(
            calibrate([folder / "old.csv"], device, skip_bad=True).calibration, calibration
        )
        again = [row for row in releases[new] if row["sizes"] in former_us][:TESTED]
        write_table(folder / "new.csv", op, backend, old, again)
        cell = tested_cell(
            (op, device, backend, new),
            ratios_of(device, folder / "new.csv", calibration),
            tolerance=TOLERANCE,
            alpha=ALPHA,
        )
        write_table(folder / "left.csv", op, backend, old, left[: 2 * TESTED])
        rest = ratios_of(device, folder / "left.csv", calibration)
    draw, alarms = np.random.default_rng(2), 0
    for _ in range(ORDERS):
        half = [rest[at] for at in draw.permutation(len(rest))[: len(rest) // 2]]
        alarms += tested_cell(
            (op, device, backend, old), half, tolerance=TOLERANCE, alpha=ALPHA
        ).has_moved
    return {
        "op": op,
        "device": device,
        "engine": backend,
        "older": old,
        "newer": new,
        "pairs": len(both),
        "moved_pct": 100.0 * shift,
        "rows": cell.rows,
        "fired_after": cell.fired_after,
        "shift_pct": 100.0 * cell.shift,
        "halves": ORDERS,
        "false_alarms": alarms,
    }


def bridge(path: Path) -> Row:
    with path.open() as stream:
        drifts = [float(row["drift"]) for row in csv.DictReader(stream)]
    return {"configurations": len(drifts), "over_10_pct": sum(d > 10.0 for d in drifts)}


def main() -> None:
    data = data_folder()
    rows = list[Row]()
    for key, releases in cells(data):
        rows.append(score_cell(key, releases))
        print(
            {k: round(v, 2) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True
        )
    moved = [row for row in rows if abs(row["moved_pct"]) > 100 * MOVED]
    still = [row for row in rows if abs(row["moved_pct"]) < 100 * STILL]
    halves = sum(row["halves"] for row in rows)
    result = {
        "cells": rows,
        "moved": len(moved),
        "moved_fired_within_50": sum(
            row["fired_after"] is not None and row["fired_after"] <= 50 for row in moved
        ),
        "still": len(still),
        "still_silent": sum(row["fired_after"] is None for row in still),
        "halves": halves,
        "false_alarms": sum(row["false_alarms"] for row in rows),
        "megatron_bridge": bridge(data / "training" / "megatron_bridge_release_drift.csv"),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k != "cells"})


if __name__ == "__main__":
    main()
