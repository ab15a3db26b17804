"""NPUs of boards as loop nests, nothing fitted: ResNet-50 on every measured board.

    python -m benchmarks.npu_nests             writes benchmarks/results/npu_nests.json

The analytic tier of a board is the design of its NPU's generation (catalog/designs/hexagon-*.toml)
with the operations, the bandwidth and the tightly coupled memory of the board. ResNet-50 is the
network whose op graph is in the catalog and whose latencies are in ``edge/qualcomm_ai_hub.csv.gz``.

``time_log_sd`` of a design, the width of its intervals, is the root mean square of the logarithms
of prediction over measurement on the boards of all *other* generations. So no board is scored with
a width that it had a part in. The exit status is 1 where a design states another.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

import silicast
from lab.fit_edge_boards import rows_of
from lab.scorecard.suite import data_folder
from silicast.accelerator.design.architecture_file import find_design
from silicast.core.files import write_atomically
from silicast.learning.board_networks import board_named
from silicast.scenario.answer import Belief

RESULT = Path(__file__).with_name("results") / "npu_nests.json"
NETWORK = "resnet50"


def analytic_ms(board: str, precision: str) -> Belief:
    """The analytic tier's latency."""
    answer = silicast.predict(
        task="graph",
        device=board,
        model=NETWORK,
        precision={"recipe": precision},
        workload={"mode": "inference"},
        tier="analytic",
    )
    return answer["e2e_ms"]


def widths(logs: list[tuple[str, float]]) -> dict[str, float]:
    """Design -> its ``time_log_sd``, of (design, logarithm of an error) of all boards."""
    names = sorted({name for name, _ in logs} | {"hexagon-v66"})  # of v66 no board is measured
    others = {name: [error for each, error in logs if each != name] for name in names}
    return {name: round(float(np.sqrt(np.mean(np.square(of)))), 2) for name, of in others.items()}


def main() -> int:
    rows = [row for row in rows_of(data_folder()) if row.network.model == NETWORK]
    results: dict[str, Any] = {}
    logs: list[tuple[str, float]] = []
    for precision in sorted({row.precision for row in rows}):
        boards = {}
        for board in sorted({row.board for row in rows if row.precision == precision}):
            measured = [r.ms for r in rows if (r.board, r.precision) == (board, precision)]
            truth, belief = float(np.median(measured)), analytic_ms(board, precision)
            ms = belief.estimate
            design = board_named(board).npu.lower().replace(" ", "-")
            logs.append((design, math.log(ms / truth)))
            boards[board] = {
                "measured_ms": round(truth, 3),
                "analytic_ms": round(ms, 3),
                "error_pct": round(100 * (ms / truth - 1.0), 1),
                "inside": belief.p05 <= truth <= belief.p95,
            }
            print(precision, board, boards[board], flush=True)
        errors = [row["error_pct"] for row in boards.values()]
        median = round(float(np.median(np.abs(errors))), 1)
        inside = sum(row["inside"] for row in boards.values())
        results[precision] = {"median_error_pct": median, "inside": inside, "boards": boards}
    results["log_rms"] = round(float(np.sqrt(np.mean([error**2 for _, error in logs]))), 3)
    results["time_log_sd"] = widths(logs)
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    print({precision: results[precision]["median_error_pct"] for precision in ("float", "w8a8")})
    stated = {name: find_design(name).content.system.time_log_sd for name in results["time_log_sd"]}
    for name, width in results["time_log_sd"].items():
        print(f"{name}: {width} of the other generations' boards; its file states {stated[name]}")
    return int(stated != results["time_log_sd"])


if __name__ == "__main__":
    sys.exit(main())
