"""Measured times of the host into the constants that composition takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from silicast.composition.engine import engine_index
from silicast.composition.error_correlation import constants
from silicast.composition.machine import IN_LINE
from silicast.core.calibrated import HostConstant
from silicast.hardware.device import Device
from silicast.measurement.given import Numbered, noise_of
from silicast.measurement.records import HostRow
from silicast.measurement.refused import Refused

NAMES = {
    "dispatch": "dispatch_us", "launch": "launch_us", "graph_launch": "graph_launch_us",
    "round_trip": "round_trip_us", "sync": "sync_us", "step": "step_us", "request": "request_us",
    "between": "between_us",
}  # fmt: skip
"""Quantity of a row -> constant."""
OF_ANY_ENGINE = ("round_trip_us", "launch_us", "graph_launch_us", "sync_us")
"""Constants of the machine, whichever framework measured them."""
CALL = "call_us"
"""What an eager operation takes where it runs in the thread that calls it: part of its kernel."""
KEPT = {
    CALL: "a call on this device is part of its kernel",
    "launch_us": "measured kernels hold it",
    "sync_us": "no answer waits for a device that has nothing to do",
}
"""Constants that are kept and that nothing predicts by itself -> why."""
SLOWEST_US = 1e6
"""A host that takes a second for something is not waiting for itself alone."""


def checked_hosts(rows: Sequence[Numbered[HostRow]], refused: Refused) -> list[Numbered[HostRow]]:
    """Rows that can be right; the others are ``refused``."""
    kept = []
    for each in rows:
        if each.row.quantity not in NAMES:
            reason = f"are host times of no known quantity ({each.row.quantity[:40]})"
        elif each.row.value_us >= SLOWEST_US:
            reason = "are host times of a second or more: another unit?"
        else:
            kept.append(each)
            continue
        refused.add(reason, each.number, each.file)
    return kept


def fit_hosts(rows: Sequence[Numbered[HostRow]], device: Device) -> list[HostConstant]:
    """One constant a quantity and engine: the median of its rows.

    Its spread is that of rows and of their repeats, and at least what a measured host leaves open
    of a step.
    """
    groups: dict[tuple[str, str], list[HostRow]] = {}
    for each in rows:
        name = constant_of(each.row, device)
        engine = "" if name in OF_ANY_ENGINE else _canonical(each.row.engine)
        groups.setdefault((name, engine), []).append(each.row)
    return [_constant(*key, found) for key, found in sorted(groups.items())]


def constant_of(row: HostRow, device: Device) -> str:
    """The constant that a row measured."""
    if row.quantity == "dispatch" and device.execution_model in IN_LINE:
        return CALL
    return NAMES[row.quantity]


def _canonical(engine: str) -> str:
    """An engine's name in the catalog; one that is not there keeps its own."""
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
        states=_states(rows),
    )


def _states(rows: Sequence[HostRow]) -> dict[str, tuple[float, float]]:
    """Least and most of what they were taken at."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.states.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found.setdefault(name, []).append(float(value))
    return {name: (min(values), max(values)) for name, values in sorted(found.items())}
