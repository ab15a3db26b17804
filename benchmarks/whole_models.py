"""Whole models on the machine at hand: measured, and predicted before and after a calibration.

Models have random weights (``silicast.measurement.models``): a decoder's prefill and decode, ViT,
ResNet-50, a mixture-of-experts block; eager, compiled, and on a GPU as a CUDA graph.

    python benchmarks/whole_models.py [-o MEASUREMENTS.jsonl] [--calibration FILE.json]
        [--models NAME ...] [--modes MODE ...] [--budget SECONDS] [--result OUTPUT.json]

measures into a file that is continued if it is there (a temporary one where none is named), and
prints for each model and mode what was measured, how far its repeats lie apart, what is predicted
without and with the calibration, and the errors of both. With ``--only-predict`` nothing is
measured: the file's runs are predicted again.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from silicast.core.errors import SilicastError
from silicast.measurement.machine.identify import find_machine
from silicast.measurement.models.runner import Row, measure_models
from silicast.measurement.records.records import RunRow, read_measurements
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.measure import session_of, with_device
from silicast.scenario.decode import decode
from silicast.scenario.run import run

BUDGET_S = 200.0
METRIC = "e2e_ms"


@dataclass(frozen=True)
class Compared:
    """One run; errors and noise are percent, None = not predicted.

    Attributes:
        noise_pct: half of the way from the 5th to the 95th percentile, over the median.
        least_ms: 5th percentile of the repeats.
        inside: whether the interval holds what was measured.
    """

    name: str
    mode: str
    measured_ms: float
    least_ms: float
    noise_pct: float
    flags: tuple[str, ...]
    before_ms: float | None
    before_pct: float | None
    before_inside: bool | None
    after_ms: float | None = None
    after_pct: float | None = None
    after_inside: bool | None = None
    reason: str = ""


def compared(row: RunRow, device: str, folder: Path, calibration: Path | None) -> Compared:
    """A run beside its predictions."""
    measured, spread = row.metrics[METRIC], row.spread[METRIC]
    name, _, mode = row.name.rpartition(" ")
    tree: dict[str, Any] = {"device": device, **row.scenario}
    reason = ""
    entries: dict[str, Any] = {}
    for label, extra in (
        ("before", {}),
        ("after", {} if calibration is None else {"calibration": str(calibration.resolve())}),
    ):
        if label == "after" and calibration is None:
            continue
        try:
            belief = run(decode({**tree, **extra}, folder=folder)).metrics[METRIC]
        except SilicastError as error:
            reason = error.message
            entries |= {f"{label}_ms": None, f"{label}_pct": None, f"{label}_inside": None}
            continue
        entries |= {
            f"{label}_ms": belief.estimate,
            f"{label}_pct": 100.0 * (belief.estimate / measured - 1.0),
            f"{label}_inside": belief.p05 <= measured <= belief.p95,
        }
    noise = 50.0 * (spread.p95 - spread.p05) / measured
    return Compared(
        name, mode, measured, spread.p05, noise, tuple(row.flags), reason=reason, **entries
    )  # fmt: skip


def summary(rows: Sequence[Compared]) -> dict[str, Any]:
    """Mean and median of the absolute errors; a run that was not predicted is 100 % off."""
    summary: dict[str, Any] = {"runs": len(rows)}
    if not rows:
        return summary
    summary["noise_median_pct"] = median(row.noise_pct for row in rows)
    for label in ("before", "after"):
        errors = [getattr(row, f"{label}_pct") for row in rows]
        if label == "after" and all(row.after_ms is None and not row.reason for row in rows):
            continue
        ape = [100.0 if error is None else abs(error) for error in errors]
        log_errors = [math.log1p(error / 100.0) for error in errors if error is not None]
        summary[label] = {
            "mean_ape": fmean(ape),
            "median_ape": median(ape),
            "max_ape": max(ape),
            "bias_pct": 100.0 * math.expm1(fmean(log_errors)) if log_errors else None,
            "coverage_pct": 100.0 * fmean(bool(getattr(row, f"{label}_inside")) for row in rows),
        }
    return summary


def table(rows: Sequence[Compared]) -> None:
    print(f"{'model':28} {'mode':9} {'measured':>10} {'noise':>7} {'before':>10} {'':>8}", end="")
    print(f" {'after':>10} {'':>8}  flags")
    for row in rows:
        print(f"{row.name:28} {row.mode:9} {row.measured_ms:8.2f}ms {row.noise_pct:6.1f}%", end="")
        for ms, percent in ((row.before_ms, row.before_pct), (row.after_ms, row.after_pct)):
            text = "-" if ms is None or percent is None else f"{ms:8.2f}ms {percent:+7.1f}%"
            print(f" {text:>19}", end="")
        print(f"  {' '.join(row.flags)} {row.reason}".rstrip())


def figures(title: str, entries: dict[str, Any]) -> None:
    for label in ("before", "after"):
        if label in entries:
            each = entries[label]
            print(
                f"{title:12} {label:7} {entries['runs']:3} runs: mean {each['mean_ape']:.1f} %, "
                f"median {each['median_ape']:.1f} %, worst {each['max_ape']:.1f} %, "
                f"bias {each['bias_pct'] or 0.0:+.1f} %, {each['coverage_pct']:.0f} % inside; "
                f"noise {entries['noise_median_pct']:.1f} %"
            )


def told(row: Row) -> None:
    if isinstance(row, RunRow):
        print(f"  {row.name}: {row.metrics[METRIC]:.2f} ms", flush=True)
    else:
        print(f"  {row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--modes", nargs="*")
    parser.add_argument("--budget", type=float, default=BUDGET_S)
    parser.add_argument("--result", type=Path)
    parser.add_argument("--only-predict", action="store_true")
    requested = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path: Path = requested.output or Path(folder) / "whole-models.jsonl"
        if not requested.only_predict:
            machine = with_device(find_machine(requested.device), path, print)
            with MeasurementFile.open(path, session_of(machine)) as file:
                measure_models(
                    machine, file, names=requested.models, modes=requested.modes,
                    budget_s=requested.budget, tell=told,
                )  # fmt: skip
        held = read_measurements(path)
        rows = [
            compared(row, held.session(row.session).device, path.parent, requested.calibration)
            for row in held.runs
            if METRIC in row.metrics and METRIC in row.spread
        ]
        sessions = [
            {"device": each.device_reported, "stack": each.stack, "started": each.started}
            for each in held.sessions
        ]
    table(rows)
    by_mode = {
        mode: [row for row in rows if row.mode == mode] for mode in ("eager", "compiled", "graph")
    }
    result: dict[str, Any] = {
        "sessions": sessions,
        "all": summary(rows),
        **{mode: summary(each) for mode, each in by_mode.items() if each},
        "rows": [asdict(row) for row in rows],
    }
    for title in ("all", *by_mode):
        figures(title, result.get(title, {}))
    if requested.result:
        requested.result.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
