"""ASTRA-sim's compatible mode against ASTRA-sim's own runs, and both against nccl-tests.

    .venv/bin/python -m benchmarks.astra_sim [OUT.json]

Rows: ``training/peer_astrasim_hgx_h100_vs_nccl.csv``, 8 H100 on NVSwitch, 64 KiB to 256 MiB.
Nothing is fitted. A published time counts as reproduced if it rounds to what was printed, in tenths
of a microsecond.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from silicast.communication.astra_sim import astra_time
from silicast.formats.astra_sim import read_network, read_system

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "astra_sim"
TABLE = Path("training") / "peer_astrasim_hgx_h100_vs_nccl.csv"


def compared(path: Path) -> dict[str, Any]:
    """Per operation: rows, how many are reproduced, and the mean error against nccl-tests."""
    network, system = read_network(FILES / "network.yml"), read_system(FILES / "system.json")
    exact: dict[str, int] = defaultdict(int)
    errors: dict[str, list[float]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            op = row["op"]
            ns = astra_time(op, int(row["astra_comm_size"]), network, system)
            exact[op] += abs(ns - 1e3 * float(row["astra_us"])) <= 50.0 + 1e-6
            errors[op].append(ns / (1e3 * float(row["nccl_us"])) - 1.0)
    return {
        op: {
            "rows": len(each), "reproduced": exact[op],
            "mean_error_percent": round(100.0 * sum(map(abs, each)) / len(each), 1),
            "largest_error_percent": round(100.0 * max(map(abs, each)), 1),
        }
        for op, each in errors.items()
    }  # fmt: skip


def main() -> None:
    data = Path(os.environ.get("SILICAST_DATA") or ROOT.parent / "shared" / "data")
    result = compared(data / TABLE)
    for op, row in result.items():
        print(op, row)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
