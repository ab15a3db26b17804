"""Measurements to take for a scenario, as a table and as text to paste."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType

from silicast.measurement.sweeps.advice import Advice, PlannedMeasurement, interval
from silicast.report.drawing.numbers import percent
from silicast.report.drawing.tables import listing
from silicast.report.reasons.causes import half_width, words_of

STATED = ("library", "library_version", "variant", "launch", "cache", "dtype")
"""Columns of a kernel other than sizes."""
MOST = 3
"""Remaining causes that are listed."""
LEAST_SHARE = 0.02
"""Least share of the variance of a listed cause, and of the time of unmeasurable kernels."""


def advice_parts(advice: Advice) -> Iterator[RenderableType]:
    """Lines and a table, in order."""
    now = _interval(advice.estimate, advice.log_sd)
    yield f"{advice.metric} on {advice.device}: {now}"
    if not advice.steps:
        yield "no measurement of its kernels, host or links would narrow it"
    else:
        columns = {"": "right", "measure": "left", "s": "right", "interval after": "right"}
        rows = [
            [str(number), _words(step), f"{step.seconds:.1f}", half_width(step.log_sd)]
            for number, step in enumerate(advice.steps, 1)
        ]
        yield listing(columns, rows)
        after = _interval(advice.estimate, advice.after)
        yield f"all {len(rows)}, about {advice.seconds:.1f} s of measuring: {after} expected"
    remaining = sorted(advice.remaining.items(), key=lambda each: -each[1])
    named = [
        f"{words_of(name)} ({percent(share)})"
        for name, share in remaining[:MOST]
        if share >= LEAST_SHARE
    ]
    if named:
        yield f"remaining, of the variance now: {', '.join(named)}"
    if advice.unmeasurable >= LEAST_SHARE:
        yield f"kernels that cannot be measured alone: {percent(advice.unmeasurable)} of the time"


def pasted(advice: Advice) -> list[str]:
    """A line for each step, to be pasted into a scenario; unbroken, as TOML requires of a table."""
    return [step_text(step) for step in advice.steps]


def _words(step: PlannedMeasurement) -> str:
    """Short description of a step: its sizes and format."""
    if step.kind == "host":
        return step_text(step)
    named = {name: value for name, value in step.what.items() if name not in ("op", *STATED)}
    sizes = " ".join(
        f"{name}={_toml(value)}"
        for name, value in named.items()
        if isinstance(value, (int, list)) and not isinstance(value, bool)
    )
    words = [str(step.what["op"]), sizes, str(step.what.get("dtype", ""))]
    return " ".join(word for word in words if word)


def step_text(step: PlannedMeasurement) -> str:
    """A step as a scenario or a file of measurements states it.

    >>> step_text(PlannedMeasurement("kernel", {"op": "gemm", "m": 8}, 0.1, 0.5, 0.02))
    'kernel = {op = "gemm", m = 8}'
    >>> step_text(PlannedMeasurement("host", {"quantity": ["dispatch", "between"], "engine": ""},
    ...     5.0, 0.0, 0.02))
    'host: dispatch, between'
    """
    if step.kind == "host":
        engine = f" of {step.what['engine']}" if step.what["engine"] else ""
        return f"host: {', '.join(step.what['quantity'])}{engine}"
    cells = ", ".join(f"{name} = {_toml(value)}" for name, value in step.what.items())
    return f"{step.kind} = {{{cells}}}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return str(value)


def _interval(estimate: float, log_sd: float) -> str:
    low, high = interval(estimate, log_sd)
    digits = max(0, 2 - math.floor(math.log10(max(estimate, 1e-12))))
    return f"{estimate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}, {half_width(log_sd)})"
