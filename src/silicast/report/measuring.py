"""What a session of measuring came to, as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from silicast.measurement.budget import shown
from silicast.measurement.measure import Plan, Result
from silicast.measurement.summary import Summary
from silicast.report.numbers import rounded
from silicast.report.tables import listing

FIRST = 2
"""Kernels of each family that a plan names."""


def result_parts(result: Result, path: Path) -> Iterator[RenderableType]:
    """A session that has ended, and what to do next."""
    outcome, machine = result.outcome, result.machine
    named = f" ({machine.named})" if machine.named else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    yield (
        f"{machine.device_name or 'CPU'}{named}: {outcome.rows} rows{failed} in "
        f"{shown(outcome.seconds)}, now in {path}"
    )
    if outcome.ended:
        yield f"ended early: {outcome.ended}; the same command goes on"
    elif outcome.exhausted:
        yield "no kernel is left to measure: the file has all that was asked for"
    yield ""
    yield from summary_parts(result.summary)
    if result.summary.faster:
        yield (
            f"{result.summary.faster} rows took less than {machine.named} says is possible: a rate "
            "in it is too low"
        )
    yield ""
    yield f"next: silicast calibrate {path} -o {path.stem}.calibration.json --skip-bad"


def plan_parts(plan: Plan) -> Iterator[RenderableType]:
    """What a sweep would measure."""
    device = plan.machine.device
    known = device.name if device else "no device of the catalog"
    yield f"{plan.machine.device_name or 'CPU'}: {known}, {plan.machine.cores} cores"
    yield from plan.machine.notes
    total = sum(len(family.chosen) for family in plan.families)
    yield f"about {total} kernels in {shown(plan.kernels_s)}, if they take as long as predicted"
    if plan.models_s:
        yield f"then whole models in {shown(plan.models_s)}"
    yield ""
    columns = {"family": "left", "candidates": "right", "measured": "right", "first": "left"}
    yield listing(columns, [
        (family.name, str(family.candidates), str(len(family.chosen)),
         "; ".join(_sizes(kernel) for kernel in family.chosen[:FIRST]))
        for family in plan.families
    ])  # fmt: skip


def _sizes(kernel: Mapping[str, object]) -> str:
    left_out = ("op", "dtype", "library", "launch")
    return " ".join(f"{name}={value}" for name, value in kernel.items() if name not in left_out)


def summary_parts(summary: Summary) -> Iterator[RenderableType]:
    """The table of families, then a line for everything else that was measured."""
    if summary.families:
        yield _families(summary)
    if summary.noise is not None:
        yield (
            f"the reference kernel, measured {summary.reference_rows} times, came back within "
            f"{_percent(summary.noise)} (median)"
        )
    if summary.held_mhz is not None:
        yield (
            f"the clock stood at {rounded(summary.held_mhz)} MHz throughout, below its largest: it "
            "seems to be locked (nvidia-smi -rgc lets it go); what was measured holds at that clock"
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


def _families(summary: Summary) -> Table:
    columns = {
        "family": "left", "rows": "right", "failed": "right", "noise": "right",
        "off before": "right", "doubtful": "left",
    }  # fmt: skip
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
