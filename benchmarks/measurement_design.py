"""Error of calibrations against the number of measured rows: a designed sweep against a random one.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.measurement_design [--cells N]

Measured tables stand in for a user's machine, whose architecture is predicted as an unmeasured one.
Rows that no constant is fitted on are scored, the others are candidates, and only the times of
chosen candidates are used. Writes benchmarks/results/measurement_design.json, and
docs/_static/measurement_design.svg where matplotlib is installed. Deterministic; 8 minutes of one
processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from lab import fitting
from lab.scorecard.held_out import unknown_architecture
from lab.scorecard.suite import data_folder
from lab.scorecard.user_tables import DEVICES, UserTable, user_tables
from silicast.core.calibration import FORMAT, Calibration, Scope
from silicast.core.numerics import F64
from silicast.kernels.check import op_at
from silicast.kernels.implementation import KernelTimes
from silicast.learning.calibration import Calibrator
from silicast.learning.calibration_fit import fit_offset, op_hash
from silicast.learning.tiers import Evidence
from silicast.measurement.design.points import KernelPoints, PointDesign, Points, Rule

TARGET = Path(__file__).parent / "results" / "measurement_design.json"
FIGURE = Path(__file__).resolve().parents[1] / "docs" / "_static" / "measurement_design.svg"
CELLS = (
    ("gemm", "bf16", "", "H100-SXM-80GB"),
    ("gemm", "fp8", "sglang", "L40S"),
    ("attention_prefill", "bf16", "vllm", "L40S"),
    ("attention_decode", "bf16", "vllm", "A100-SXM-80GB"),
    ("moe", "bf16", "sglang", "H100-SXM-80GB"),
    ("mla_decode", "bf16", "sglang", "B200-SXM-180GB"),
)
"""Family, format, library and device."""
SEEDS: Mapping[int, int] = {20: 5, 100: 3, 500: 3, 2000: 1}
"""Rows of random sweeps -> how many of them there are."""
DESIGNED = (10, 20, 50, 100, 250, 500, 1000, 2000)
SEEDED = 250
"""Up to so many rows the errors of two designed sweeps are averaged."""
RULES: tuple[tuple[str, Rule, bool], ...] = (
    ("least certain", "largest", True),
    ("furthest", "spread", True),
    ("variance, all alike", "variance", False),
)
"""What else was tried on the first cells: name, rule, whether candidates near errors count more."""
TRIED, TRIED_AT = 3, (100, 500)
CANDIDATES, SCORED = 4000, 800


@dataclass(frozen=True)
class Cell:
    """A user's machine: rows that may be measured, and others that are to be predicted."""

    name: str
    candidates: UserTable
    scored: UserTable
    plain: list[KernelTimes]
    points: Points
    log_ratio: F64

    @property
    def architecture(self) -> str:
        """Nothing is known of it."""
        return self.scored.hardware.architecture

    def error(self, rows: Sequence[int]) -> float:
        """Mean error of scored rows after a calibration from candidates ``rows``, percent."""
        plain = self.plain
        if len(rows):
            with unknown_architecture(self.architecture):
                measured = self.candidates.take(np.sort(np.array(rows, dtype=np.int64)))
                device = self.scored.hardware
                parts = [part.kernels for part in measured.parts]
                offset, _ = fit_offset(self.scored.model, parts, device, learned=False)
                calibrator = Calibrator(Calibration(FORMAT, Scope(device.name), [offset]))
                plain = [
                    calibrator.times(times, self.scored.model, part.batch, device)
                    for times, part in zip(self.plain, self.scored.parts, strict=True)
                ]
        estimate = np.concatenate([times.estimate_s for times in plain])
        return 100.0 * float(np.abs(estimate / self.scored.seconds - 1.0).mean())

    def designed(
        self, count: int, seed: int, rule: Rule = "variance", *, local: bool = True
    ) -> list[int]:
        """Rows in the order in which a design measures them."""
        design = PointDesign(self.points, seed, rule=rule, local=local)
        for _ in range(count):
            best = design.best()
            if best is None:
                break
            design.tell(best.place, float(self.log_ratio[best.place]))
        return list(design.rows)

    def random(self, seed: int) -> list[int]:
        """All rows in a random order."""
        return cast(
            "list[int]", np.random.default_rng(seed).permutation(len(self.candidates)).tolist()
        )


def cell_of(table: UserTable) -> Cell:
    """Candidates and scored rows of a table: different kernels."""
    model = table.model
    order, held = table.drawn(), table.held_out
    candidates = table.take(np.sort(order[~held[order]][:CANDIDATES]))
    scored = table.take(np.sort(order[held[order]][:SCORED]))
    hashes = set(_hashes(candidates))
    assert not hashes & set(_hashes(scored)), "a scored kernel is a candidate too"
    device = table.hardware
    with unknown_architecture(device.architecture):
        plain = [model.times(part.batch, device) for part in scored.parts]
        ops = [op_at(part.batch, i) for part in candidates.parts for i in range(len(part.batch))]
        maker = KernelPoints(model, ops, device, np.ones_like, Evidence(learned=False))
        points, seconds = maker.points(ops, np.ones(len(ops)))
    name = f"{table.family} {table.dtype} {table.library} {table.device}".replace("  ", " ")
    ratio = np.log(candidates.seconds / seconds)
    return Cell(name, candidates, scored, plain, points, ratio)


def _hashes(table: UserTable) -> list[str]:
    return [op_hash(op_at(part.batch, i)) for part in table.parts for i in range(len(part.batch))]


def curves(cell: Cell) -> dict[str, Any]:
    """Errors of random and designed sweeps, and how many rows each needs for the same."""
    none, most = cell.error(()), len(cell.candidates)
    random: dict[int, list[float]] = {}
    for count, seeds in SEEDS.items():
        if count <= most:
            random[count] = [cell.error(cell.random(seed)[:count]) for seed in range(seeds)]
    counts = [count for count in DESIGNED if count <= most]
    start = time.process_time()
    orders = [cell.designed(counts[-1], seed) for seed in range(2)]
    seconds = (time.process_time() - start) / (2 * counts[-1])
    designed = {
        count: [cell.error(order[:count]) for order in orders[: 2 if count <= SEEDED else 1]]
        for count in counts
    }
    means = {count: float(np.mean(errors)) for count, errors in designed.items()}
    return {
        "candidates": most,
        "scored": len(cell.scored),
        "no rows": round(none, 2),
        "random": {
            str(count): {"mean": round(float(np.mean(e)), 2), "sd": round(float(np.std(e)), 2),
                         "sweeps": len(e)}
            for count, e in random.items()
        },
        "designed": {str(count): round(error, 2) for count, error in means.items()},
        "rows_for_same_error": {
            str(count): needed(means, float(np.mean(errors)), none)
            for count, errors in random.items()
        },
        "ms_a_point": round(1e3 * seconds, 1),
    }  # fmt: skip


def needed(means: Mapping[int, float], error: float, none: float) -> float | None:
    """Rows of a designed sweep for an error, between its points by the log of rows; None = more
    than were tried.
    """
    counts = np.array([1, *means], dtype=np.float64)
    # a sweep may stop at its best: errors are the least so far
    errors = np.minimum.accumulate(np.array([none, *means.values()]))
    below = np.flatnonzero(errors <= error)
    if not len(below):
        return None
    last = int(below[0])
    if last == 0:
        return 1.0
    share = (errors[last - 1] - error) / max(errors[last - 1] - errors[last], 1e-12)
    log = np.log(counts[last - 1]) + share * np.log(counts[last] / counts[last - 1])
    return round(float(np.exp(log)), 1)


def summary(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a designed sweep over those of a random one at the same error: median over cells;
    a cell that needs more than were tried counts as one and a half times as many.
    """
    summary = {}
    for count in SEEDS:
        every = [cell["rows_for_same_error"].get(str(count), 0) for cell in cells.values()]
        ratios = [1.5 if rows is None else rows / count for rows in every if rows != 0]
        summary[str(count)] = {"cells": len(ratios), "median": round(float(np.median(ratios)), 2)}
    return summary


def tried(cell: Cell) -> dict[str, Any]:
    """Errors of other rules."""
    tried: dict[str, Any] = {}
    for name, rule, local in RULES:
        order = cell.designed(max(TRIED_AT), 0, rule, local=local)
        tried[name] = {str(count): round(cell.error(order[:count]), 2) for count in TRIED_AT}
    return tried


def drawn(results: Mapping[str, Any]) -> None:
    """The curves as a figure."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no matplotlib: no figure")
        return
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "silicast"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6), squeeze=False)
    for (name, result), axis in zip(results.items(), axes.flat, strict=False):
        points = {int(count): each for count, each in result["random"].items()}
        axis.errorbar(list(points), [each["mean"] for each in points.values()],
                      yerr=[each["sd"] for each in points.values()], marker="o", label="random",
                      color="#888888", capsize=3)  # fmt: skip
        axis.plot([int(n) for n in result["designed"]], list(result["designed"].values()),
                  marker="s", label="designed", color="#1f5fa8")  # fmt: skip
        axis.axhline(result["no rows"], color="black", linewidth=0.5, linestyle=":")
        axis.set(xscale="log", ylim=(0, None), xlabel="measured rows", ylabel="mean error, %")
        axis.set_title(name, size=9)
    axes.flat[0].legend()
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first ones")
    requested = parser.parse_args().cells
    every = {
        (table.family, table.dtype, table.library, table.device): table
        for table in user_tables(data_folder(), DEVICES)
    }
    results: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for number, key in enumerate(CELLS[:requested]):
        cell = cell_of(every[key])
        results[cell.name] = curves(cell)
        print(cell.name, msgspec.json.encode(results[cell.name]).decode(), flush=True)
        if number < TRIED:
            others[cell.name] = tried(cell)
            print("  tried", others[cell.name], flush=True)
    if requested < len(CELLS):
        return
    entries = {"row_ratio": summary(results), "cells": results, "tried": others}
    print(entries["row_ratio"])
    fitting.write(TARGET, entries)
    drawn(results)


if __name__ == "__main__":
    main()
