"""Recurrent layers of DeepBench, each device left out of the fit, and each with its sisters.

    python -m benchmarks.recurrent_layers      writes benchmarks/results/recurrent_layers.json

``kernels/deepbench.csv.gz``: forward passes and gradients of LSTMs, GRUs and plain RNNs, 32 and 16
bits, one device's rows never fitted. V100 is the only one of its architecture: left out, it takes
the constants of all. Sums of columns ("Total Time"), T4 (zeros) and P100's pseudo-16-bit sheet are
not scored. Two minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.fit_recurrent import Case, cases, fitted, residuals_by_device
from lab.fitting import F
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically

RESULT = Path(__file__).with_name("results") / "recurrent_layers.json"


def figures(logs: F) -> dict[str, float]:
    """Errors of predictions."""
    errors = np.abs(np.exp(logs) - 1.0)
    return {
        "rows": len(logs),
        "median_error_pct": round(100 * float(np.median(errors)), 1),
        "signed_median_pct": round(100 * float(np.median(np.exp(logs) - 1.0)), 1),
        "within_20_pct": round(100 * float(np.mean(errors < 0.2)), 1),
    }


def left_out(rows: Sequence[Case], label: Callable[[Case], str]) -> dict[str, Any]:
    """Figures of each group of rows, constants fitted without it."""
    devices: dict[str, F] = {}
    for name in sorted({label(case) for case in rows}):
        masks = [np.full(len(case.rows), label(case) != name) for case in rows]
        body = fitted(rows, masks)
        devices |= residuals_by_device(rows, [~mask for mask in masks], body)
    every = np.concatenate(list(devices.values()))
    return {"all": figures(every), "devices": {n: figures(x) for n, x in devices.items()}}


def main() -> None:
    rows = cases(data_folder())
    result = {
        "device_left_out": left_out(rows, lambda case: case.hardware.name),
        "architecture_left_out": left_out(rows, lambda case: case.hardware.architecture),
    }
    text = json.dumps(result, indent=1)
    write_atomically(RESULT, f"{text}\n".encode())
    print(text)


if __name__ == "__main__":
    main()
