"""Host rows of a calibration: which can be right, and the constants of composition from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from silicast.composition.engines.engine import engine_index
from silicast.composition.errors.error_correlation import constants
from silicast.composition.step.machine import IN_LINE
from silicast.core.calibrated import HostConstant
from silicast.hardware.device import Device
from silicast.measurement.records.cases import Case, host_case
from silicast.measurement.records.dataset import DatasetRow, noise_of
from silicast.measurement.records.records import HostRow
from silicast.measurement.records.rejected_rows import RejectedRows

NAMES = {
    "dispatch": "dispatch_us",
    "launch": "launch_us",
    "graph_launch": "graph_launch_us",
    "round_trip": "round_trip_us",
    "sync": "sync_us",
    "step": "step_us",
    "request": "request_us",
    "between": "between_us",
}
"""Quantity of a row -> constant."""
OF_ANY_ENGINE = ("round_trip_us", "launch_us", "graph_launch_us", "sync_us")
"""Constants of the machine, independent of the framework that measured them."""
CALL = "call_us"
"""Time of an eager operation that runs in the thread that calls it: part of its kernel."""
KEPT = {
    CALL: "a call on this device is part of its kernel",
    "launch_us": "measured kernels include it",
    "sync_us": "no prediction waits for an idle device",
}
"""Constants that are stored although no prediction uses them directly -> why."""
SLOWEST_US = 1e6
"""Host times of a second or more are errors."""


def checked_hosts(
    rows: Sequence[DatasetRow[HostRow]], named: str, rejected: RejectedRows
) -> list[Case]:
    """Cases of the credible rows; the others are added to ``rejected``.

    Args:
        named: the device as scenarios name it.
    """
    remaining = []
    for each in rows:
        if each.row.quantity not in NAMES:
            reason = f"are host times of no known quantity ({each.row.quantity[:40]})"
        elif each.row.value_us >= SLOWEST_US:
            reason = "are host times of a second or more: another unit?"
        else:
            remaining.append(host_case(each, named))
            continue
        rejected.add(reason, each.number, each.file)
    return remaining


def fit_hosts(cases: Sequence[Case], device: Device) -> list[HostConstant]:
    """One constant for each quantity and engine: the median of its rows.

    Its spread combines that between rows and that of their repeats, and is at least the spread that
    a measured host leaves in a step.
    """
    groups: dict[tuple[str, str], list[HostRow]] = {}
    for row in (case.host for case in cases if case.host is not None):
        name = constant_of(row, device)
        engine = "" if name in OF_ANY_ENGINE else _canonical(row.engine)
        groups.setdefault((name, engine), []).append(row)
    return [_constant(*key, item) for key, item in sorted(groups.items())]


def constant_of(row: HostRow, device: Device) -> str:
    """The constant that a row measured."""
    if row.quantity == "dispatch" and device.execution_model in IN_LINE:
        return CALL
    return NAMES[row.quantity]


def _canonical(engine: str) -> str:
    """An engine's name in the catalog; its own name if the catalog has none."""
    known = engine_index()
    return known.canonical(engine) if engine in known else engine


def _constant(name: str, engine: str, rows: Sequence[HostRow]) -> HostConstant:
    logs = np.log([row.value_us for row in rows])
    repeats = [noise for row in rows if (noise := noise_of(row.spread)) is not None]
    within = float(np.median(repeats)) if repeats else 0.0
    between = float(logs.std(ddof=1)) if len(rows) > 1 else 0.0
    versions = {row.version for row in rows if row.version}
    return HostConstant(
        constant=name,
        value_us=math.exp(float(np.median(logs))),
        log_sd=min(5.0, max(constants()["measured.host_log_sd"], math.hypot(within, between))),
        rows=len(rows),
        engine=engine,
        version=versions.pop() if len(versions) == 1 else "",
        states=_state_ranges(rows),
    )


def _state_ranges(rows: Sequence[HostRow]) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each numeric state of the rows."""
    table: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.states.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                table.setdefault(name, []).append(float(value))
    return {name: (min(values), max(values)) for name, values in sorted(table.items())}
