"""NPUs of boards as loop nests, nothing fitted: ResNet-50 on every measured board.

    python -m benchmarks.npu_nests             writes benchmarks/results/npu_nests.json

The analytic tier of a board is the design of its NPU's generation (catalog/designs/hexagon-*.toml)
with the operations, the bandwidth and the tightly coupled memory of the board. ResNet-50 is the
network whose op graph is in the catalog and whose latencies are in ``edge/qualcomm_ai_hub.csv.gz``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import silicast
from lab.fit_edge_boards import rows_of
from lab.scorecard.suite import data_folder
from silicast.core.files import write_atomically
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


def main() -> None:
    rows = [row for row in rows_of(data_folder()) if row.network.model == NETWORK]
    results: dict[str, Any] = {}
    logs: list[float] = []
    for precision in sorted({row.precision for row in rows}):
        boards = {}
        for board in sorted({row.board for row in rows if row.precision == precision}):
            measured = [r.ms for r in rows if (r.board, r.precision) == (board, precision)]
            truth, belief = float(np.median(measured)), analytic_ms(board, precision)
            ms = belief.estimate
            logs.append(math.log(ms / truth))
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
    results["log_rms"] = round(float(np.sqrt(np.mean(np.square(logs)))), 3)
    write_atomically(RESULT, (json.dumps(results, indent=1) + "\n").encode())
    print({precision: results[precision]["median_error_pct"] for precision in ("float", "w8a8")})
    print(f"log rms {results['log_rms']}: time_log_sd of catalog/designs/hexagon-*.toml")


if __name__ == "__main__":
    main()
