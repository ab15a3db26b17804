"""Plan and result of a sweep as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType

from silicast.measurement.sweeps.budget import shown
from silicast.measurement.sweeps.measure import SweepPlan, SweepResult
from silicast.measurement.sweeps.summary import Summary
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import listing

FIRST = 2
"""Kernels of each family that a plan lists."""


def result_parts(result: SweepResult, path: Path) -> Iterator[RenderableType]:
    """Result of a sweep, and the next command."""
    outcome, machine = result.outcome, result.machine
    named = f" ({machine.named})" if machine.named else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    yield (
        f"{machine.device_name or 'CPU'}{named}: {outcome.rows} rows{failed} in "
        f"{shown(outcome.seconds)}, now in {path}"
    )
    if outcome.ended:
        yield f"ended early: {outcome.ended}; the same command continues"
    elif outcome.exhausted:
        yield "no kernel is left to measure: the file holds all that was requested"
    yield ""
    yield from summary_parts(result.summary)
    if result.summary.faster:
        yield (
            f"{result.summary.faster} rows are faster than {machine.named} allows: a rate in it is "
            "too low"
        )
    yield ""
    yield f"next: silicast calibrate {path} -o {path.stem}.calibration.json --skip-bad"


def plan_parts(plan: SweepPlan) -> Iterator[RenderableType]:
    """What a sweep would measure."""
    device = plan.machine.device
    known = device.name if device else "no device of the catalog"
    yield f"{plan.machine.device_name or 'CPU'}: {known}, {plan.machine.cores} cores"
    yield from plan.machine.notes
    total = sum(map(len, plan.chosen.values()))
    yield f"about {total} kernels in {shown(plan.kernels_s)}, if they take as long as predicted"
    if plan.models_s:
        yield f"then whole models in {shown(plan.models_s)}"
    yield ""
    columns = {"family": "left", "candidates": "right", "measured": "right", "first": "left"}
    yield listing(columns, [
        (name, str(plan.candidates[name]), str(len(chosen)),
         "; ".join(_sizes(kernel) for kernel in chosen[:FIRST]))
        for name, chosen in plan.chosen.items()
    ])  # fmt: skip


def _sizes(kernel: Mapping[str, object]) -> str:
    left_out = ("op", "dtype", "library", "launch")
    return " ".join(f"{name}={value}" for name, value in kernel.items() if name not in left_out)


def summary_parts(summary: Summary) -> Iterator[RenderableType]:
    """The table of families, then a line for each other measurement."""
    if summary.families:
        yield _families(summary)
    if summary.noise is not None:
        yield (
            f"the reference kernel, measured {summary.reference_rows} times, varied by "
            f"{_percent(summary.noise)} (median)"
        )
    if summary.locked_mhz is not None:
        yield (
            f"the clock was constant at {rounded(summary.locked_mhz)} MHz, below its largest: it "
            "seems to be locked (nvidia-smi -rgc unlocks it); the measurements hold at that clock"
        )
    for row in summary.hosts:
        states = " ".join(f"{name}={value}" for name, value in row.states.items())
        words = " ".join(word for word in (row.quantity, row.engine, states) if word)
        yield f"host: {words}: {rounded(row.value_us)} us"
    if summary.collectives:
        yield f"{summary.collectives} collectives"
    for run in summary.runs:
        metrics = ", ".join(f"{name} {rounded(value)}" for name, value in run.metrics.items())
        yield f"model: {run.name}: {metrics}"
    if summary.reasons:
        yield f"failed: {_counts(summary.reasons)}"


def _families(summary: Summary) -> RenderableType:
    columns = {
        "family": "left",
        "rows": "right",
        "failed": "right",
        "noise": "right",
        "error": "right",
        "flags": "left",
    }
    rows = [
        (
            family.name,
            str(family.rows),
            str(family.failed or ""),
            _percent(family.noise),
            _percent(family.error),
            _counts(family.flags),
        )
        for family in summary.families
    ]
    return listing(columns, rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{rounded(100.0 * value)} %"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
