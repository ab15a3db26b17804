"""Scenario N7 against measured runs: DeepSeek with wide expert parallel on GB200, pools apart.

    python -m benchmarks.wide_expert_parallel [MOST_CLIENTS]

The complete rows of DeepSeek on GB200 of ``silicon_sample``, as suite ``serving-disaggregated``
reads them: pools and concurrency are stated and no flag marks them. Tokens a second and GPU follow
from TTFT and TPOT, measured and predicted alike. Rows of more than MOST_CLIENTS clients (1,024
unless stated; each takes half a minute and more) are counted, not answered. Nothing is fitted on
them. Writes benchmarks/results/wide_expert_parallel.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.scorecard.suite import data_folder
from lab.scorecard.suites import serving, serving_disaggregated

OUT = Path(__file__).parent / "results" / "wide_expert_parallel.json"
RATE = serving.METRICS[2]


def main(arguments: list[str]) -> None:
    """Prints and writes each row and the errors by engine and format."""
    most = int(arguments[0]) if arguments else serving_disaggregated.MOST_CLIENTS
    serving_disaggregated.MOST_CLIENTS = 1 << 30
    cases = [
        case
        for case in serving_disaggregated.cases(data_folder())
        if case.labels["device"] == "GB200" and case.labels["model"].startswith("DeepSeek")
    ]
    rows: list[dict[str, Any]] = []
    for case in cases:
        work = case.scenario["workload"]
        clients = work["arrival"]["concurrency"]
        if clients > most:
            continue
        pools = case.scenario["pools"].values()
        gpus = sum(p["count"] * p["parallel"]["tp"] * p["parallel"]["attention_dp"] for p in pools)
        table = serving.answer(case)
        low, high = sorted(table[RATE][1:3]) if table else (0.0, 0.0)
        row = {
            "engine": case.labels["engine"],
            "model": case.labels["model"],
            "traffic": case.labels["traffic"],
            "clients": clients,
            "gpus": gpus,
            "decode": case.labels["decode"],
            "measured": round(case.measured[RATE] / gpus, 2),
            "predicted": round(table[RATE][0] / gpus, 2) if table else None,
            "inside": bool(table) and low <= case.measured[RATE] <= high,
        }
        rows.append(row)
        print(row, flush=True)
    summary = {"complete": len(cases), "answered": len(rows), "all": errors(rows)}
    for engine in sorted({row["engine"] for row in rows}):
        summary[engine] = errors([row for row in rows if row["engine"] == engine])
    print(summary)
    fitting.write(OUT, {"summary": summary, "rows": rows})


def errors(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of tokens a second and GPU, in percent; a row without an answer is 100 % off."""
    off = np.array([(row["predicted"] or 0.0) / row["measured"] - 1.0 for row in rows])
    return {
        "rows": len(rows),
        "median_ape_pct": round(float(100.0 * np.median(np.abs(off))), 2),
        "mean_ape_pct": round(float(100.0 * np.abs(off).mean()), 2),
        "bias_pct": round(float(100.0 * off.mean()), 2),
        "coverage_pct": round(100.0 * float(np.mean([row["inside"] for row in rows])), 1),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
