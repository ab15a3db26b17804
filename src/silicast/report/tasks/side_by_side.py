"""Answers of one question on several devices: a line each, the best first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import Shown
from silicast.report.drawing.tables import listing
from silicast.report.tasks.training import WholeRun, peak_lines, plan_lines

Reply = Mapping[str, Any]


class Shape(NamedTuple):
    """What a task's table shows.

    Attributes:
        best: metrics of which the first that an answer has ranks it; most: whether more is better.
        columns: heading -> metrics of which the first that an answer has is shown.
    """

    best: tuple[str, ...]
    most: bool
    columns: Mapping[str, tuple[str, ...]]


LOADS: Final = ("max_rate_per_s", "max_concurrency")
SHAPES: Final[Mapping[str, Shape]] = {
    "capacity": Shape(
        LOADS,
        most=True,
        columns={
            "carries": LOADS,
            "safe": ("safe_rate_per_s", "safe_concurrency"),
            "GPUs": ("gpus",),
            "TTFT p99": ("ttft_p99_ms",),
            "TPOT p99": ("tpot_p99_ms",),
            "tok/s/GPU": ("output_tokens_per_s_per_gpu",),
            "W": ("power_w",),
            "cost/M": ("cost_per_million_output_tokens",),
        },
    ),
    "training": Shape(
        ("step_time_s",),
        most=False,
        columns={
            "step": ("step_time_s",),
            "tok/s/GPU": ("tokens_per_s_per_gpu",),
            "MFU": ("mfu",),
            "GB": ("memory_gb",),
            "W": ("power_w",),
        },
    ),
}
PER_MILLION: Final = "cost_per_million_output_tokens"


def side_by_side(
    head: str, task: str, replies: Mapping[str, Reply], runs: Mapping[str, WholeRun] | None = None
) -> RenderableType:
    """A table of what was answered, and why what was not.

    Args:
        head: what was asked; task: "capacity", or "training" for a step or a search of plans.
        replies: device -> its answer or refusal.
        runs: device -> a whole run of training on it; the cheapest is the best.
    """
    shape, runs = SHAPES[task], runs or {}
    answers = {name: each for name, each in replies.items() if each["ok"]}

    def cost_and_rank(name: str) -> tuple[float, ...]:
        cost = runs[name].cost if name in runs else None
        return (math.inf if cost is None else cost, *rank(shape, answers[name]))

    order = sorted(answers, key=cost_and_rank)
    had = {
        h: names for h, names in shape.columns.items() if any(map(_has(names), answers.values()))
    }
    of_run = (
        () if not runs else ("days", "cost") if any(r.price for r in runs.values()) else ("days",)
    )
    rows = []
    for name in order:
        answer = answers[name]
        cells = [_cell(answer, names) for names in had.values()]
        plan = next(plan_lines(answer["why"]), "") or _degrees(answer["why"])
        cells += runs[name].cells()[: len(of_run)] if name in runs else ()
        rows.append([name, *cells, _interval(answer, shape.best), plan])
    parts: list[RenderableType] = [Text(head, "bold"), Text("")]
    if rows:
        headings = (*had, *of_run, "90 %")
        columns = {"": "tree", **dict.fromkeys(headings, "right"), "plan": "left"}
        if not any(plan for *_, plan in rows):  # each is one device
            columns, rows = dict(list(columns.items())[:-1]), [row[:-1] for row in rows]
        parts += [listing(columns, rows), Text("")]
    parts += [Text(f"{name}: {runs[name].words()}") for name in order if name in runs]
    for name, reply in replies.items():
        if not reply["ok"]:
            error = reply["error"]
            hint = f" ({error['hint']})" if error["hint"] else ""
            parts.append(Text(f"{name}: {error['message']}{hint}", "yellow"))
    peaks = {name: peak_lines(answers[name]["why"], _mfu(answers[name])) for name in order}
    parts += [Text(line) for line in _whose(peaks)]
    warnings = {name: answers[name]["warnings"] for name in order}
    parts += [Text(f"warning: {line}", "yellow") for line in _whose(warnings)]
    return Group(*parts)


def rank(shape: Shape, answer: Reply) -> tuple[float, float]:
    """The best has the smallest: the cost of a million tokens where it is known, then the load a
    device, or the time.
    """
    metrics = answer["metrics"]
    if "gpus" in metrics and not any(name in metrics for name in shape.best):
        cost = metrics.get("cost_per_hour", metrics["gpus"])["estimate"]
        return 0.0 if cost else 1.0, cost
    value = next((metrics[name]["estimate"] for name in shape.best if name in metrics), 0.0)
    if not shape.most:
        return 0.0, value
    if not value:
        return 1.0, 0.0
    each = value / max(metrics.get("gpus", {"estimate": 1.0})["estimate"], 1.0)
    return (0.0, metrics[PER_MILLION]["estimate"] if PER_MILLION in metrics else -each)


def _has(names: Sequence[str]) -> Any:
    return lambda answer: any(name in answer["metrics"] for name in names)


def _first(answer: Reply, names: Sequence[str]) -> Shown | None:
    metrics = answer["metrics"]
    return next((Shown(name, metrics[name]) for name in names if name in metrics), None)


def _cell(answer: Reply, names: Sequence[str]) -> str:
    shown = _first(answer, names)
    if shown is None:
        return "–"
    if shown.unit in {"s", "ms", "µs", "%"}:
        return shown.value
    if names[0] == "gpus":
        return f"{answer['metrics']['gpus']['estimate']:,.0f}"
    return shown.estimate


def _interval(answer: Reply, names: Sequence[str]) -> str:
    shown = _first(answer, names) or _first(answer, ("gpus",))
    if shown is None or not shown.cell:
        return ""
    unit = f" {shown.unit}" if shown.unit in {"s", "ms", "µs"} and not shown.exact else ""
    return f"{shown.cell}{unit}"  # rows may differ in it


def _degrees(why: Mapping[str, Any]) -> str:
    """Parallel degrees of a deployment."""
    devices = (why.get("deployment") or {}).get("devices", 1)
    return f"{devices} devices" if devices > 1 else ""


def _mfu(answer: Reply) -> float | None:
    return answer["metrics"]["mfu"]["estimate"] if "mfu" in answer["metrics"] else None


def _whose(lines: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Each line once, with the devices whose it is where it is not that of all.

    >>> list(_whose({"h100": ["slow", "hot"], "l4": ["slow"]}))
    ['slow', 'h100: hot']
    """
    table: dict[str, list[str]] = {}
    for name, each in lines.items():
        for line in each:
            table.setdefault(line, []).append(name)
    for line, names in table.items():
        yield line if len(names) == len(lines) > 1 else f"{', '.join(names)}: {line}"
