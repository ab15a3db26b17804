"""Time and memory that a million requests take to be read from a trace, or to be drawn.

    .venv/bin/python -m benchmarks.speed_traces [OUT.json]

Each case is a process of its own: CPU seconds of the reading alone, and the peak of the process
with and without it. Rows of the Mooncake case have ``hash_ids`` of prompts of 2,000 tokens.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.workloads import ArrivalTable, ServingWorkload, SessionTable
from silicast.serving.traffic.trace_files import read_trace
from silicast.serving.traffic.traffic import Traffic

ROWS = 1_000_000


def _write(path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {
        "arrival_s": np.cumsum(random.exponential(0.1, ROWS)).round(6),
        "input_len": random.integers(1, 4000, ROWS),
        "output_len": random.integers(1, 500, ROWS),
    }
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
        return
    with path.open("w") as file:
        if path.suffix == ".csv":
            file.write(f"{','.join(columns)}\n")
        for at, input_tokens, output_tokens in zip(
            *(each.tolist() for each in columns.values()), strict=True
        ):
            if path.suffix == ".csv":
                file.write(f"{at},{input_tokens},{output_tokens}\n")
                continue
            row = {
                "timestamp": int(at * 1000),
                "input_length": input_tokens,
                "output_length": output_tokens,
            }
            blocks = list(range(input_tokens, input_tokens - (-input_tokens // 512)))
            file.write(f"{json.dumps({**row, 'hash_ids': blocks})}\n")


def _drawn(**fields: SessionTable) -> Callable[[Path], Traffic]:
    poisson = ArrivalTable("poisson", rate_per_s=100.0)
    workload = ServingWorkload(poisson, input_len=500, output_len=100, requests=ROWS, **fields)  # type: ignore[arg-type]
    return lambda _: traffic_of(workload)


CASES: dict[str, Callable[[Path], Traffic]] = {
    "trace.csv": read_trace,
    "trace.jsonl": read_trace,
    "trace.parquet": read_trace,
    "poisson": _drawn(),
    "sessions of 5 turns": _drawn(sessions=SessionTable(5)),
}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: str, folder: Path) -> dict[str, float]:
    """One case, in a process that did nothing else."""
    before, start = _peak_mb(), time.process_time()
    made = CASES[case](folder / case)
    took = time.process_time() - start
    if len(made.requests) != ROWS:
        raise RuntimeError(f"{case}: {len(made.requests)} requests")
    return {"cpu_s": round(took, 2), "peak_mb": round(_peak_mb()), "before_mb": round(before)}


def _child(*arguments: str) -> str:
    """What a process of this script prints; its peak counts from its parent's size on."""
    command = [sys.executable, "-m", "benchmarks.speed_traces", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(out: str = "") -> None:
    """All cases, one after the other."""
    table: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for case in CASES:
            if case.startswith("trace."):
                _child("--write", case, folder)
            table[case] = json.loads(_child("--one", case, folder))
            print(f"{case:24}{table[case]}")
    if out:
        Path(out).write_text(f"{json.dumps(table, indent=1)}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]))))
    elif sys.argv[1:2] == ["--write"]:
        _write(Path(sys.argv[3]) / sys.argv[2])
    else:
        main(*sys.argv[1:2])
