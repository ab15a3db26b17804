"""Runs suites and commits their figures: a summary and a page each, the README's table and picture.

    python -m lab.scorecard --stale     run the quick suites that are stale
    python -m lab.scorecard gemm moe    run these, stale or not, quick or not
    python -m lab.scorecard --check     say what is stale; status 1 if any is quick
    python -m lab.scorecard --pages     write pages and tables anew, run nothing

    --within 60    quick are suites that take up to 60 CPU s
    --jobs 2       suites at a time

A suite is stale when a table, a file of numbers or a module that its last run read has changed.
Summaries go to ``docs/accuracy``; whole results, with every group and every row, to
``build/accuracy``. Nothing but a run writes what a summary was computed from.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from lab.scorecard.accuracy_tables import write_tables
from lab.scorecard.committed import compact, stale, write, write_page
from lab.scorecard.costs import QUICK_S, is_quick, record
from lab.scorecard.inputs import Inputs
from lab.scorecard.observed import INPUTS
from lab.scorecard.pictures import END_TO_END
from lab.scorecard.results import threshold_failures
from lab.scorecard.suite import data_folder, data_if_there, suite_facts
from lab.source_code import ROOT
from silicast.core.errors import SilicastError

BUILD = ROOT / "build" / "accuracy"
PICTURE = ROOT / "docs" / "_static" / END_TO_END


def run_suite(name: str) -> dict[str, Any]:
    """Runs a suite in a process of its own and commits its figures.

    Returns:
        The whole result.

    Raises:
        SilicastError: the run failed.
    """
    log = BUILD / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    module = f"{__package__}.observed"
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, name, str(BUILD)],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SilicastError(
            f"suite {name} ended with status {process.returncode}",
            file=str(log),
            hint="its output is in this file",
        )
    _commit(name, usage.ru_utime + usage.ru_stime)
    result: dict[str, Any] = msgspec.json.decode((BUILD / f"{name}.json").read_bytes())
    return result


def _commit(name: str, cpu_s: float) -> None:
    """Writes what is committed of the run whose files are in :data:`BUILD`."""
    result = msgspec.json.decode((BUILD / f"{name}.json").read_bytes())
    inputs = msgspec.json.decode((BUILD / f"{name}{INPUTS}").read_bytes(), type=Inputs)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    write(compact(result, inputs, today, cpu_s))
    record(name, sum(int(metric["silicast"]["rows"]) for metric in result["metrics"]), cpu_s)
    if name == "end-to-end":
        PICTURE.write_bytes((BUILD / END_TO_END).read_bytes())


def main() -> int:
    """The command line; status 1 if a quick suite is stale or a threshold is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*")
    for action in ("--stale", "--check", "--pages"):
        parser.add_argument(action, action="store_true")
    parser.add_argument("--within", type=float, default=QUICK_S)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if not (options.suites or options.stale or options.check or options.pages):
        parser.error("name suites, or --stale, --check or --pages")
    if options.pages:
        for name in suite_facts():
            write_page(name)
        write_tables()
        return 0
    data = data_if_there() if options.check else data_folder()
    names = options.suites or list(suite_facts())
    why = {name: stale(name, data) for name in names}
    wanted = [
        name for name in names if options.suites or (why[name] and is_quick(name, options.within))
    ]
    for name in names:
        if why[name]:
            speed = "" if is_quick(name, options.within) else " (slow)"
            print(f"{name}{speed}: {', '.join(why[name])}", flush=True)
    if options.check:
        return 1 if any(why[name] and is_quick(name, options.within) for name in names) else 0
    missed = _run(wanted, options.jobs)
    write_tables()
    return 1 if missed else 0


def _run(names: Sequence[str], jobs: int) -> list[str]:
    """Runs suites, so many at a time; the thresholds that they miss."""
    missed: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        for name, result in zip(names, pool.map(run_suite, names), strict=True):
            failures = threshold_failures(result)
            missed += failures
            print(
                f"{name}: run", *(f"\n  threshold missed: {line}" for line in failures), flush=True
            )
    return missed


if __name__ == "__main__":
    sys.exit(main())
