"""The curve of a sweep: a table, a drawing in text, and one in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from silicast.core.errors import SilicastError
from silicast.report.drawing.numbers import Shown, duration, percent, rounded
from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot, time_tick
from silicast.report.drawing.tables import listing
from silicast.report.drawing.text_plot import TextPlot, empty_grid, framed
from silicast.report.tasks.sequences import counts_sequences

if TYPE_CHECKING:
    from silicast.scenario.answers.serving.load_sweep import LoadCurve

LOADS: Final = {"rate": "requests/s come", "concurrency": "clients"}
SHORT: Final = {"rate": "come", "concurrency": "clients"}
COLUMNS: Final = {
    "TTFT": "ttft_mean_ms",
    "p99": "ttft_p99_ms",
    "TPOT": "tpot_mean_ms",
    "E2E": "e2e_mean_ms",
    " p99": "e2e_p99_ms",
    "req/s": "requests_per_s",
    "tok/s/GPU": "output_tokens_per_s_per_gpu",
    "seq/s/GPU": "sequences_per_s_per_gpu",
    "goodput": "goodput_per_s",
}
"""Heading -> metric; means, but for the p99 of the latency before it."""
NARROW: Final = 96
"""Columns of a terminal below which two of the table are left out."""


def curve_report(head: str, curve: LoadCurve) -> RenderableType:
    """Table, drawing and what they tell."""
    parts: list[RenderableType] = [Text(head, "bold"), Text(""), CurveTable(curve), Text("")]
    if len(curve.answered) > 1:
        parts += [TextPlot(lambda width: drawing(curve, width)), Text("")]
    parts += [Text(line) for line in curve_lines(curve)]
    warnings = dict.fromkeys(line for _, answer in curve.answered for line in answer.warnings)
    return Group(*parts, *(Text(f"warning: {line}", "yellow") for line in warnings))


@final
class CurveTable:
    """A line for each load; a narrow terminal shows fewer columns."""

    def __init__(self, curve: LoadCurve) -> None:
        self._curve = curve

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws it at the width that there is."""
        narrow = (" p99", "tok/s/GPU") if options.max_width < NARROW else ()
        headings, rows = curve_rows(self._curve, narrow)
        yield listing(dict.fromkeys(headings[:-1], "right") | {"": "left"}, rows)


def curve_rows(curve: LoadCurve, narrow: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Headings and cells, the last of them what is marked.

    Args:
        narrow: headings that are left out.
    """
    answered, left_out = curve.answered, set(narrow)
    if counted := _counts_sequences(curve):
        left_out = {"TTFT", "p99", "tok/s/GPU"}
    shown = {
        heading: name
        for heading, name in COLUMNS.items()
        if heading not in left_out and any(name in a.metrics for _, a in answered)
    }
    headings = ["latency" if counted and each == "E2E" else each for each in shown]
    headings += [] if counted else ["KV"]
    rows = []
    for index, (load, answer) in enumerate(answered):
        cells = [_metric(answer.metrics, name) for name in shown.values()]
        if not counted:
            cells.append(percent(answer.metrics["kv_utilisation_max"].estimate))
        rows.append([f"{load:g}", *cells, _mark(curve, index)])
    return [SHORT[curve.what], *headings, ""], rows


def _mark(curve: LoadCurve, index: int) -> str:
    if curve.saturated is not None and index >= curve.saturated:
        return "full"
    return "knee" if index == curve.knee else ""


def _counts_sequences(curve: LoadCurve) -> bool:
    """Whether the model generates no tokens."""
    return any(counts_sequences(answer.metrics) for _, answer in curve.answered)


def _metric(metrics: Mapping[str, Any], name: str) -> str:
    if name not in metrics:
        return ""
    shown = Shown(name, metrics[name])
    return shown.value if shown.unit in {"s", "ms", "µs"} else shown.estimate


def curve_lines(curve: LoadCurve) -> Iterator[str]:
    """Where it bends, where it ends, and what could not be answered."""
    answered, unit = curve.answered, LOADS[curve.what]
    there = curve.expected_knee
    where = (
        ""
        if there is None
        else (
            f"near {rounded(there['rate_per_s'])} requests/s, {there['concurrency']:,.0f} in flight"
        )
    )
    if curve.knee is not None:
        load, answer = answered[curve.knee]
        wait = duration(answer.metrics["e2e_mean_ms"].estimate * 1e-3)
        rate = rounded(answer.metrics["requests_per_s"].estimate)
        yield (
            f"knee{f' {where}' if where else ''}: at {load:g} {unit}, {rate} requests/s answered "
            f"in {wait} on average; beyond it latency grows faster than throughput"
        )
    elif len(answered) > 2:
        yield f"no knee among these loads{f': it is {where}' if where else ''}"
    if curve.saturated is not None:
        first = answered[curve.saturated][0]
        yield f"full: from {first:g} {unit} on the queue keeps growing"
    for load, item in curve.points:
        if isinstance(item, SilicastError):
            yield f"{load:g} {unit}: {item}"


def drawing(curve: LoadCurve, width: int) -> list[str]:
    """Lines of a drawing: end-to-end latency on a logarithmic axis over answered requests/s."""
    answered = curve.answered
    rates = [answer.metrics["requests_per_s"].estimate for _, answer in answered]
    series = {
        "o": [answer.metrics["e2e_mean_ms"].estimate for _, answer in answered],
        "+": [answer.metrics["e2e_p99_ms"].estimate for _, answer in answered],
    }
    every = [value for values in series.values() for value in values]
    low, high = math.log(min(every)), math.log(max(every))
    high = max(high, low + math.log(2.0))
    most, grid = max(rates), empty_grid(width)
    across, top = len(grid[0]) - 1, len(grid) - 1
    for mark in ("+", "o"):
        for index, (rate, value) in enumerate(zip(rates, series[mark], strict=True)):
            x = min(round(rate / most * across), across)
            y = top - round((math.log(value) - low) / (high - low) * top)
            if mark == "o" and index == curve.knee:
                for above in range(y + 1, len(grid)):
                    grid[above][x] = "┊"
            grid[y][x] = "◆" if mark == "o" and index == curve.knee else mark
    knee = ", ◆ knee" if curve.knee is not None else ""
    return framed(
        f"end to end over requests/s answered: o mean, + p99{knee}",
        grid,
        lambda height: duration(math.exp(low + (high - low) * height) * 1e-3),
        [(round(part / 4.0 * across), rounded(most * part / 4.0)) for part in range(4, -1, -1)],
    )


def write_plot(path: Path, curve: LoadCurve, head: str) -> None:
    """Draws the curve to a file: latencies with their 90 % interval over throughput.

    Raises:
        SilicastError: as :func:`~silicast.report.drawing.plot_file.check_plot`, or it cannot be
        written.
    """
    check_plot(path)
    figure = figure_class()(figsize=(7.0, 4.2), layout="constrained")
    answers = [answer for _, answer in curve.answered]
    rates = [answer.metrics["requests_per_s"].estimate for answer in answers]
    whole = "latency" if _counts_sequences(curve) else "E2E"
    panels = [{"e2e_mean_ms": f"{whole} mean", "e2e_p99_ms": f"{whole} p99"}]
    if not _counts_sequences(curve):
        panels.append({"ttft_p99_ms": "TTFT p99", "tpot_mean_ms": "TPOT mean"})
    for axes, names in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, rates, answers, names)
        if curve.knee is not None:
            axes.axvline(rates[curve.knee], color="0.5", linestyle=":", linewidth=1.0)
            axes.annotate(
                "knee",
                (rates[curve.knee], 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10),
                textcoords="offset points",
                color="0.35",
                fontsize=8,
            )
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks(time_tick)
        axes.set_xlim(left=0.0)
        axes.set_xlabel("requests/s answered")
        axes.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(head, fontsize=9)
    save_plot(figure, path)


def _draw(
    axes: Any, rates: Sequence[float], answers: Sequence[Any], names: Mapping[str, str]
) -> None:
    for number, (name, label) in enumerate(names.items()):
        if any(name not in answer.metrics for answer in answers):
            continue  # of single tokens there is no time between two
        beliefs = [answer.metrics[name] for answer in answers]
        color = ("C0", "C1")[number]
        axes.plot(
            rates,
            [b.estimate * 1e-3 for b in beliefs],
            marker="o",
            markersize=3.5,
            color=color,
            label=label,
        )
        low, high = ([getattr(b, end) * 1e-3 for b in beliefs] for end in ("p05", "p95"))
        axes.fill_between(rates, low, high, color=color, alpha=0.15, linewidth=0.0)
