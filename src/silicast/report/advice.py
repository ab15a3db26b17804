"""What to measure for a scenario, as a table and as text to paste."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType

from silicast.measurement.advice import Advice, Step, narrowed
from silicast.report.numbers import percent
from silicast.report.tables import listing
from silicast.report.uncertainty import half_width, words_of

STATED = ("library", "library_version", "variant", "launch", "cache", "dtype")
"""Columns of a kernel that are no sizes."""
MOST = 3
"""Causes that are named of those that stay."""
WORTH_SAYING = 0.02
"""Share of the variance from which on a cause is named, and of the time, kernels that no table
says."""


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
    stays = sorted(advice.stays.items(), key=lambda each: -each[1])
    named = [f"{words_of(name)} ({percent(share)})" for name, share in stays[:MOST]
             if share >= WORTH_SAYING]  # fmt: skip
    if named:
        yield f"stays, of the variance now: {', '.join(named)}"
    if advice.unsaid >= WORTH_SAYING:
        yield f"kernels that cannot be measured one by one: {percent(advice.unsaid)} of the time"


def pasted(advice: Advice) -> list[str]:
    """A line a step, to be pasted into a scenario: never broken, for a table in TOML may not be."""
    return [step_text(step) for step in advice.steps]


def _words(step: Step) -> str:
    """A step in few words: its sizes, and its format."""
    if step.kind == "host":
        return step_text(step)
    named = {name: value for name, value in step.what.items() if name not in ("op", *STATED)}
    sizes = " ".join(f"{name}={_toml(value)}" for name, value in named.items()
                     if isinstance(value, (int, list)) and not isinstance(value, bool))  # fmt: skip
    words = [str(step.what["op"]), sizes, str(step.what.get("dtype", ""))]
    return " ".join(word for word in words if word)


def step_text(step: Step) -> str:
    """A step as a scenario or a file of measurements names it.

    >>> step_text(Step("kernel", {"op": "gemm", "m": 8}, 0.1, 0.5, 0.02))
    'kernel = {op = "gemm", m = 8}'
    >>> step_text(Step("host", {"quantity": ["dispatch", "between"], "engine": ""}, 5.0, 0.0, 0.02))
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
    low, high = narrowed(estimate, log_sd)
    digits = max(0, 2 - math.floor(math.log10(max(estimate, 1e-12))))
    return f"{estimate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}, {half_width(log_sd)})"
