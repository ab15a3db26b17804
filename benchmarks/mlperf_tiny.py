"""MLPerf Tiny on microcontrollers: the four networks by their definitions, nothing fitted.

    python -m benchmarks.mlperf_tiny        writes benchmarks/results/mlperf_tiny.json

``edge/mlperf_tiny_v1.2_summary.csv`` has results of the closed division. Those on Cortex-M4 and
Cortex-M7 are predicted from the datasheet: STM32L4R5 as it is in the catalog, the others as it or
STM32H743 at the clock that the table states. Other processors (M0+, M33, M85, RH850, RISC-V,
neural accelerators, Qualcomm's sensing hub) have no device file, and are counted as not predicted.
The networks are those of mlcommons/tiny's reference models as recalled, in int8, batch 1. One board
and network has up to four results, of kernels tuned for speed or for memory, up to five times
apart: the quickest are also scored by themselves.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import silicast
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically
from silicast.scenario.answer import Belief

RESULT = Path(__file__).with_name("results") / "mlperf_tiny.json"
TABLE = "edge/mlperf_tiny_v1.2_summary.csv"
BOARDS: dict[str, tuple[str, float]] = {
    "NUCLEO-L4R5ZI": ("STM32L4R5", 120),
    "CY8CPROTO-062-4343W": ("STM32L4R5", 150),
    "NUCLEO-H7A3ZI": ("STM32H743", 280),
    "NUCLEO-H7A3ZI-Q": ("STM32H743", 280),
    "DISCO-F746NG": ("STM32H743", 216),
}
"""Board -> a device of the catalog with its core, and the clock that the table states, in MHz."""
Node = dict[str, Any]


class Network:
    """Layers in order; ``side`` is (height, width) of what the last one wrote."""

    def __init__(self, side: tuple[int, int], channels: int) -> None:
        self.side, self.channels = side, channels
        self.nodes: list[Node] = []

    def conv(self, out: int, taps: tuple[int, int] = (3, 3), stride: int = 1, **at: Any) -> Network:
        """A convolution with padding of the same size; ``side`` and ``channels`` of a shortcut's
        source; ``deep`` = one filter a channel.
        """
        side, channels = at.get("side", self.side), at.get("channels", self.channels)
        sizes = {"kernel_h": taps[0], "kernel_w": taps[1], "stride": stride}
        padding = {"padding_h": taps[0] // 2, "padding_w": taps[1] // 2}
        window = {"kernel": max(taps), "padding": max(taps) // 2}
        if taps[0] == taps[1]:
            sizes, padding = {"stride": stride}, {}
        groups = channels if at.get("deep") else 1
        dims = {"batch": 1, "in_channels": channels, "out_channels": out, "groups": groups}
        dims |= {"height": side[0], "width": side[1], **window, **sizes, **padding}
        self._add("conv2d", dims, out * channels // groups * taps[0] * taps[1])
        self.side = (-(-side[0] // stride), -(-side[1] // stride))
        self.channels = out
        return self

    def dense(self, out: int, inputs: int = 0) -> Network:
        """A product of one row, over the mean of the image where there is one."""
        self.channels = inputs or self.channels
        self._add("gemm", {"m": 1, "n": out, "k": self.channels}, out * self.channels)
        self.channels = out
        return self

    def add(self) -> Network:
        """A sum with a shortcut."""
        elements = self.side[0] * self.side[1] * self.channels
        self._add("elementwise", {"elements": elements, "inputs": 2}, 0)
        return self

    def _add(self, op: str, dims: dict[str, int], weights: int) -> None:
        before = [self.nodes[-1]["name"]] if self.nodes else []
        name = f"n{len(self.nodes)}"
        node = {"name": name, "op": op, "dims": dims, "dtype": "int8", "inputs": before}
        self.nodes.append({**node, "parameter_bytes": weights})


def networks() -> dict[str, list[Node]]:
    """The reference models of mlcommons/tiny."""
    image = Network((32, 32), 3).conv(16).conv(16).conv(16).add()
    for width in (32, 64):
        side, channels = image.side, image.channels
        image.conv(width, stride=2).conv(width)
        image.conv(width, (1, 1), 2, side=side, channels=channels).add()
    image.dense(10)
    person = Network((96, 96), 3).conv(8, stride=2)
    steps = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)]
    for width, stride in [*steps, *[(128, 1)] * 5, (256, 2), (256, 1)]:
        person.conv(person.channels, stride=stride, deep=True).conv(width, (1, 1))
    person.dense(2)
    word = Network((49, 10), 1).conv(64, (10, 4), 2)
    for _ in range(4):
        word.conv(64, deep=True).conv(64, (1, 1))
    word.dense(12)
    sound = Network((1, 1), 640)
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128, 640):
        sound.dense(width)
    return {"ic": image.nodes, "vww": person.nodes, "kws": word.nodes, "ad": sound.nodes}


def predicted(base: str, mhz: float, nodes: list[Node]) -> Belief:
    """What a pass takes, in ms."""
    device = {"base": base, "name": f"{base} at {mhz} MHz", "clocks": {"boost_mhz": mhz}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.json"
        path.write_text(json.dumps({"format": 1, "nodes": nodes}))
        workload = {"mode": "inference", "graph": str(path)}
        answer = silicast.predict(task="graph", device=device, workload=workload)
    return answer["forward_ms"]


def rows_of(folder: Path) -> Iterator[tuple[str, str, str, float]]:
    """Board, network, framework and measured ms of each result."""
    with (folder / TABLE).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            framework = row["InferenceFramework"] or "not stated"
            yield row["BoardName"], row["Model"], framework, 1e3 / float(row["Result"])


def main() -> None:
    nodes = networks()
    rows: list[dict[str, Any]] = []
    predictions: dict[tuple[str, float, str], Belief] = {}
    skipped = 0
    for board, model, framework, truth in rows_of(data_folder()):
        if board not in BOARDS:
            skipped += 1
            continue
        chip = (*BOARDS[board], model)
        if chip not in predictions:
            predictions[chip] = predicted(chip[0], chip[1], nodes[model])
        ms = predictions[chip].estimate
        row: dict[str, Any] = {"board": board, "model": model, "framework": framework[:40]}
        row |= {"measured_ms": round(truth, 3), "predicted_ms": round(ms, 3)}
        row |= {"error_pct": round(100.0 * (ms / truth - 1.0), 1)}
        row |= {"inside": bool(predictions[chip].p05 <= truth <= predictions[chip].p95)}
        rows.append(row)
        print(row, flush=True)
    errors = np.array([row["error_pct"] for row in rows])
    quickest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["board"].removesuffix("-Q"), row["model"])
        if key not in quickest or row["measured_ms"] < quickest[key]["measured_ms"]:
            quickest[key] = row
    of_quickest = np.array([row["error_pct"] for row in quickest.values()])
    summary = {
        "rows": len(rows),
        "not_predicted": skipped,
        "median_error_pct": round(float(np.median(np.abs(errors))), 1),
        "signed_median_pct": round(float(np.median(errors)), 1),
        "inside": sum(row["inside"] for row in rows),
        "quickest_of_a_board_and_network": {
            "rows": len(quickest),
            "median_error_pct": round(float(np.median(np.abs(of_quickest))), 1),
            "inside": sum(row["inside"] for row in quickest.values()),
        },
    }
    print(summary)
    write_atomically(RESULT, (json.dumps({**summary, "results": rows}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
