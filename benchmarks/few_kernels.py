"""A Raspberry Pi's kernels from ten of them: DeepBench's products and convolutions.

    python -m benchmarks.few_kernels           writes benchmarks/results/few_kernels.json

``kernels/deepbench.csv.gz``, Raspberry Pi 3: 13 products in 8 bits and 16 convolutions (fp32 by the
time that they take). Ten rows of a kind are drawn, the others scored, 20 draws; and no row given.
Phones of the table (iPhone 6 and 7) are no devices of the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.suite import data_folder
from lab.scorecard.suites.conv2d import DIMS, _key, _sizes
from lab.scorecard.suites.other_vendors import DEEPBENCH
from lab.scorecard.tables import csv_records
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.files import write_atomically
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning.calibration import Calibrator
from silicast.learning.calibration_fit import MeasuredKernels, fit_offset
from silicast.workload.graphs.op import Op, OpBatch, Variant

RESULT = Path(__file__).with_name("results") / "few_kernels.json"
BOARD, DEVICE = "Raspberry_Pi_3", "Raspberry Pi 3"
DRAWS, SAMPLES = 20, 10


def rows_of(data: Path) -> dict[str, list[tuple[Op, float]]]:
    """Ops and seconds by family."""
    table: dict[str, list[tuple[Op, float]]] = {"gemm": [], "conv2d": []}
    for row in csv_records(data / DEEPBENCH):
        if row["device"] != BOARD or "Sparse" in row["op"]:
            continue
        shape, seconds = json.loads(row["shape_json"]), float(row["time"]) * 1e-3
        if row["op"] == "Dense Matrix Multiplication":
            m, n, k = (int(shape[name]) for name in ("N", "M", "K"))
            op = Op.make("gemm", Variant("sq"), m=m, n=n, k=k, batch=1)
            table["gemm"].append((op, seconds))
        else:
            sizes = _sizes({_key(name): value for name, value in shape.items()})
            dims = dict(zip(DIMS, sizes, strict=True))
            table["conv2d"].append((Op.make("conv2d", Variant("fp32"), **dims), seconds))
    return table


def errors(rows: list[tuple[Op, float]], given: list[int]) -> F64:
    """Relative errors of the rows that are not given."""
    device = find_device(DEVICE)
    model = implementation_for(rows[0][0].family, device.execution_model)
    assert model is not None
    rest = [row for index, row in enumerate(rows) if index not in given]
    batch = OpBatch.from_ops([op for op, _ in rest])
    times = model.times(batch, device)
    if given:
        measured = OpBatch.from_ops([rows[index][0] for index in given])
        seconds = np.array([rows[index][1] for index in given])
        part = MeasuredKernels(measured, device.name, seconds, np.zeros(len(given), dtype=bool))
        offset, _ = fit_offset(model, [part], device, learned=False)
        calibrator = Calibrator(Calibration(FORMAT, Scope(device.name), [offset]))
        times = calibrator.times(times, model, batch, device)
    truth = np.array([seconds for _, seconds in rest])
    relative: F64 = np.abs(times.estimate_s / truth - 1.0)
    return relative


def main() -> None:
    result: dict[str, Mapping[str, float]] = {}
    every: list[F64] = []
    for family, rows in rows_of(data_folder()).items():
        drawn = []
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(rows))
            drawn.append(errors(rows, order[:SAMPLES].tolist()))
        every += drawn
        result[family] = {
            "rows": len(rows),
            "no_row_median_pct": round(100 * float(np.median(errors(rows, []))), 1),
            "ten_rows_median_pct": round(100 * float(np.median(np.concatenate(drawn))), 1),
        }
    result["all"] = {"ten_rows_median_pct": round(100 * float(np.median(np.concatenate(every))), 1)}
    text = json.dumps(result, indent=1)
    write_atomically(RESULT, f"{text}\n".encode())
    print(text)


if __name__ == "__main__":
    main()
