"""What two minutes of measuring bring, on the machines of `measurements/`.

    python benchmarks/own_measurements.py [NAME ...]

calibrates each machine by its sweep `measurements/NAME.jsonl` and scores kernels of a second sweep,
`NAME-heldout.jsonl` (another seed; kernels that both measured are not scored), and whole models,
`NAME-models.jsonl`, before and after. Beside the errors stands how far two measurements of one and
the same kernel lie apart: nothing can be nearer than that says. Writes
benchmarks/results/own_measurements.json. Measures nothing; half a minute on one core.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
import numpy as np

from silicast.core.calibration import save_calibration
from silicast.core.hashing import content_hash
from silicast.measurement.calibrating.calibrate import calibrate
from silicast.measurement.records.cases import KERNELS
from silicast.measurement.records.dataset import EXCLUDED_FLAGS
from silicast.measurement.records.records import read_measurements
from silicast.validation.measured import MeasuredScore, score_measured

MEASUREMENTS = Path(__file__).parents[1] / "measurements"
RESULT = Path(__file__).parent / "results" / "own_measurements.json"
SWEEP, HELD_OUT, MODELS = "", "-heldout", "-models"


def machines(folder: Path = MEASUREMENTS) -> list[str]:
    """Names of the machines that have a sweep and one to score it on."""
    return sorted(
        path.name.removesuffix(f"{HELD_OUT}.jsonl") for path in folder.glob(f"*{HELD_OUT}.jsonl")
    )


def apart(paths: Iterable[Path]) -> dict[str, float]:
    """How far measurements of one kernel at different times lie apart; percent.

    The expected error of a perfect prediction on rows measured once is about 0.7 of it.
    """
    times: dict[str, list[float]] = {}
    for path in paths:
        for row in read_measurements(path).kernels:
            if row.name != "reference" and not set(row.flags) & set(EXCLUDED_FLAGS):
                times.setdefault(content_hash(row.kernel), []).append(row.latency_us)
    pairs = [abs(math.log(b / a)) for each in times.values() for a, b in pairwise(each)]
    if not pairs:
        return {"pairs": 0}
    return {
        "pairs": len(pairs),
        "median_pct": 100.0 * math.expm1(median(pairs)),
        "mean_pct": 100.0 * math.expm1(fmean(pairs)),
    }


def _scores(measured_score: MeasuredScore) -> dict[str, Any]:
    return {
        group.name: {
            "rows": group.rows,
            "unanswered": group.unanswered,
            "repeats_pct": group.noise,
            "before": msgspec.structs.asdict(group.before) if group.before else None,
            "after": msgspec.structs.asdict(group.after),
        }
        for group in measured_score.groups
    }


def _all(measured_score: MeasuredScore) -> dict[str, Any]:
    """Means over rows of all kernels, and the median group."""
    groups = [group for group in measured_score.groups if group.kind == KERNELS]
    rows = sum(group.rows for group in groups)
    result: dict[str, Any] = {"rows": rows}
    for label in ("before", "after"):
        figures = [getattr(group, label) for group in groups]
        weights = np.array([group.rows for group in groups], dtype=float)
        result[label] = {
            name: float(np.average([getattr(each, name) for each in figures], weights=weights))
            for name in ("mean", "median", "coverage")
        } | {"median_of_groups": median(each.median for each in figures)}
    return result


def scores_of(name: str, folder: Path = MEASUREMENTS) -> dict[str, Any]:
    """Before and after, of one machine."""
    sweep, held_out, models = (folder / f"{name}{part}.jsonl" for part in (SWEEP, HELD_OUT, MODELS))
    made = calibrate(sweep, skip_bad=True)
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / "calibration.json"
        save_calibration(made.calibration, path)
        kernels = score_measured([held_out], [path])
        whole = score_measured([models], [path]) if models.is_file() else None
    session = read_measurements(sweep).sessions[0]
    scores: dict[str, Any] = {
        "device": session.device_reported,
        "stack": session.stack,
        "fitted_rows": sum(offset.rows for offset in made.calibration.offsets),
        "refused_rows": made.rejected.count,
        "same_kernel_apart": apart([sweep, held_out]),
        "kernels": _all(kernels),
        "families": _scores(kernels),
    }
    if whole is not None:
        scores["models"] = _scores(whole)
    return scores


def main() -> None:
    names = sys.argv[1:] or machines()
    table = {name: scores_of(name) for name in names}
    for name, each in table.items():
        print(f"{name}: {each['device']}, {each['fitted_rows']} rows fitted")
        print(f"  one kernel measured twice: {each['same_kernel_apart']}")
        for group, rows in {"all kernels": each["kernels"], **each["families"]}.items():
            before, after = rows["before"], rows["after"]
            print(
                f"  {group:24} {rows['rows']:4} rows: mean {before['mean']:5.1f} -> "
                f"{after['mean']:5.1f} %, "
                f"median {before['median']:5.1f} -> {after['median']:5.1f} %"
            )
        for group, rows in each.get("models", {}).items():
            before, after = rows["before"], rows["after"]
            print(
                f"  {group:24} {rows['rows']:4} runs: mean {before['mean']:5.1f} -> "
                f"{after['mean']:5.1f} %, bias {before['bias']:+.1f} -> {after['bias']:+.1f} %"
            )
    if not sys.argv[1:]:
        RESULT.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
