"""Times the suites of the scorecard; `silicast validate` foretells from it what a run will take.

    python -m benchmarks.speed_scorecard [SUITE ...] [--patience SECONDS] [--sample ROWS]

Each suite in processes of its own: a sample of 200 rows (or as many as are stated), then all; where
all take longer than the patience (300 CPU s unless stated), a sample of five times as many instead
and a straight line from there. CPU seconds, brought to one speed of the machine by the reference
work that is timed before and after.
Suites that are not named keep their record.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from typing import Any

import msgspec

from lab.scorecard.committed import summary_of
from lab.scorecard.costs import COSTS, reference_s
from lab.scorecard.suite import suite_facts
from silicast.core.files import write_atomically

SAMPLE, LARGER = 200, 5
"""Rows of the smaller sample, and how many times as many the larger has."""
PATIENCE_S = 300


def timed(suite: str, limit: int | None, patience: int) -> tuple[float, int] | None:
    """CPU seconds and rows of one run in units of the reference work; None if stopped before."""
    before = reference_s()
    command = [sys.executable, "-m", "silicast", "validate", suite, "--json"]
    command += ["--limit", str(limit)] if limit else []

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (patience, patience))

    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, preexec_fn=limited)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode < 0 or b"BrokenProcessPool" in done.stderr:  # it, or a worker of its
        return None
    if not done.stdout:
        raise SystemExit(f"{suite}: {done.stderr.decode()}")
    results = json.loads(done.stdout)
    if isinstance(results, dict):
        raise SystemExit(f"{suite}: {results['error']['message']}")
    rows = sum(int(metric["silicast"]["rows"]) for metric in results[0]["metrics"])
    seconds = sum(getattr(end, name) - getattr(start, name) for name in ("ru_utime", "ru_stime"))
    return seconds / ((before + reference_s()) / 2), rows


def cost(suite: str, rows: int, patience: int, size: int) -> dict[str, Any]:
    """A suite's entry, in units of the reference work."""
    sample = timed(suite, size, 10 * patience)
    assert sample is not None, f"{suite}: even a sample takes too long"
    entry = {"sample_rows": size, "sample_s": sample[0]}
    every = timed(suite, None, patience) if rows > size else sample
    if every is not None:
        return {**entry, "rows": every[1], "all_s": max(every[0], sample[0])}
    larger = timed(suite, LARGER * size, 10 * patience)
    assert larger is not None, f"{suite}: even a sample takes too long"
    each = max(larger[0] - sample[0], 0.0) / max(larger[1] - sample[1], 1)
    every_s = max(larger[0] + each * max(rows - larger[1], 0), sample[0])
    return {**entry, "rows": rows, "all_s": every_s, "extrapolated": True}


def committed_rows(suite: str) -> int:
    """Rows of all metrics in the committed score."""
    return sum(int(metric["silicast"]["rows"]) for metric in summary_of(suite)["metrics"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=list(suite_facts()))
    parser.add_argument("--patience", type=int, default=PATIENCE_S)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    known = json.loads(COSTS.read_text()) if COSTS.exists() else {"suites": {}}
    unit = known.setdefault("reference_s", reference_s())
    for suite in given.suites:
        entry = cost(suite, committed_rows(suite), given.patience, given.sample)
        for name in ("sample_s", "all_s"):
            entry[name] = float(f"{entry[name] * unit:.3g}")
        known["suites"][suite] = entry
        known["suites"] = dict(sorted(known["suites"].items()))
        write_atomically(COSTS, msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
        sys.stderr.write(f"{suite}: {entry}\n")


if __name__ == "__main__":
    main()
