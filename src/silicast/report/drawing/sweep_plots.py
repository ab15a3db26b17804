"""Drawings of stored answers and of sensitivities: fronts with intervals, heat maps, tornados."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.metrics import words_and_unit
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.plot_file import figure_class, save_plot
from silicast.runner.results import StoredRows

OTHER, FRONT, LESS, MORE = "#b8c4cf", "#c2410c", "#3b6fb6", "#d98a2b"
LABELLED: Final = 12
"""Points of a front that are labelled."""
MOST_CELLS: Final = 40
"""Rows or columns of a heat map."""
DECADE: Final = 10.0
NEAR: Final = 0.4
"""Logarithms of metrics within which two points have one label, that of the more probable."""


def draw_stored_front(
    rows: StoredRows, front: StoredRows, probability: Mapping[str, float], path: Path, names: str
) -> None:
    """All rows, and those that may be on the front: their intervals, the fainter the less probable.

    Args:
        rows: all; front: those of ``probability``.
        names: two metrics, with a comma between them.

    Raises:
        SilicastError: not two metrics, or the file cannot be written.
    """
    metrics = [name.strip() for name in names.split(",") if name.strip()]
    if len(metrics) != 2:
        raise SilicastError(
            f"a front is drawn of two metrics, not of {len(metrics)}", field="--plot"
        )
    figure = figure_class()(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.add_subplot()
    every = [row for row in rows.fitting.rows if all(row.get(n) is not None for n in metrics)]
    axes.scatter(
        *([row[name] for row in every] for name in metrics), s=9, color=OTHER, linewidths=0
    )
    labelled: list[tuple[float, float]] = []
    for row in front.rows:
        (x, across), (y, along) = (_interval(row, name) for name in metrics)
        weight = probability[row["key"]]
        axes.errorbar(
            x,
            y,
            along,
            across,
            fmt="o",
            ms=4,
            color=FRONT,
            elinewidth=0.9,
            alpha=0.25 + 0.75 * weight,
        )
        at = (math.log(x) if x > 0.0 else x, math.log(y) if y > 0.0 else y)
        if len(labelled) < LABELLED and not any(math.dist(at, each) < NEAR for each in labelled):
            labelled.append(at)
            axes.annotate(
                f"{_label(row, front)} ({weight:.0%})",
                (x, y),
                xytext=(4, 4),
                fontsize=6.5,
                textcoords="offset points",
                color="0.3",
            )
    for name, metric in (("x", metrics[0]), ("y", metrics[1])):
        values = np.array([row[metric] for row in every])
        if values.min() > 0.0 and values.max() / values.min() > DECADE:
            (axes.set_xscale if name == "x" else axes.set_yscale)("log")
            axis = axes.xaxis if name == "x" else axes.yaxis
            axis.set_major_formatter(_tick)
            axis.set_minor_formatter(_tick)
        (axes.set_xlabel if name == "x" else axes.set_ylabel)(_words(metric))
    axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{len(every):,} points, {len(front.rows):,} that may be on the front (with 90 % intervals "
        "and the probability)",
        fontsize=9,
    )
    save_plot(figure, path)


def draw_heat_map(rows: StoredRows, fields: str, metric: str, path: Path) -> None:
    """The best value of a metric for every pair of values of two fields.

    Args:
        fields: two that vary, with a comma between them: across, and along.

    Raises:
        SilicastError: not two fields, one without values, too many of them, no row has the metric,
            or the file cannot be written.
    """
    names = [rows.column(name.strip()) for name in fields.split(",") if name.strip()]
    if len(names) != 2:
        raise SilicastError(f"expected two fields, found {fields!r:.60}", field="--heat")
    having = [row for row in rows.fitting.rows if row.get(metric) is not None]
    if not having:
        raise SilicastError(f"no row that fits has {metric}", field="--heat")
    levels = [_levels(having, name) for name in names]
    for name, values in zip(names, levels, strict=True):
        if len(values) > MOST_CELLS:
            raise SilicastError(
                f"{name} has {len(values)} values, more than {MOST_CELLS}",
                field="--heat",
                hint="choose some with --where",
            )
    table = np.full((len(levels[1]), len(levels[0])), np.nan)
    best = np.fmin if _less_is_better(metric) else np.fmax
    for row in having:
        at = tuple(levels[i].index(row.get(names[i])) for i in (1, 0))
        table[at] = best(table[at], row[metric])
    figure = figure_class()(
        figsize=(2.2 + 0.62 * len(levels[0]), 1.6 + 0.4 * len(levels[1])), layout="constrained"
    )
    axes = figure.add_subplot()
    shown = np.log(table) if np.nanmin(table) > 0.0 else table
    image = axes.imshow(shown, cmap="viridis", aspect="auto", origin="lower")
    middle = (np.nanmin(shown) + np.nanmax(shown)) / 2.0
    for (y, x), value in np.ndenumerate(table):
        text = "" if np.isnan(value) else rounded(float(value))
        color = "white" if shown[y, x] < middle else "black"
        axes.text(x, y, text, ha="center", va="center", fontsize=7, color=color)
    del image
    axes.set_xticks(range(len(levels[0])), [str(each) for each in levels[0]], fontsize=8)
    axes.set_yticks(range(len(levels[1])), [str(each) for each in levels[1]], fontsize=8)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    which = "least" if _less_is_better(metric) else "most"
    axes.set_title(f"{_words(metric)}: the {which} of all rows with these values", fontsize=8)
    save_plot(figure, path)


def draw_tornado(rows: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Effects of changes as bars from zero, the largest on top; both ways of a number on one line.

    Args:
        rows: as of :func:`~silicast.report.tasks.sensitivity.sensitivity_data`.

    Raises:
        SilicastError: no change has an effect that is known, or the file cannot be written.
    """
    effects: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if "change" in row:
            effects.setdefault(row["field"], []).append(row)
    if not effects:
        raise SilicastError("no change was answered", field="--plot")
    figure = figure_class()(figsize=(7.0, 1.2 + 0.42 * len(effects)), layout="constrained")
    axes = figure.add_subplot()
    for line, changes in enumerate(reversed(effects.values())):
        for row in changes:
            percent = 100.0 * row["change"]
            color = MORE if row["after"] > row["before"] else LESS
            axes.barh(line, percent, height=0.62, color=color, linewidth=0)
            axes.annotate(
                rounded(row["after"]),
                (percent, line),
                fontsize=7,
                va="center",
                color="0.3",
                xytext=(3 if percent >= 0.0 else -3, 0),
                textcoords="offset points",
                ha="left" if percent >= 0.0 else "right",
            )
    axes.set_yticks(range(len(effects)), list(reversed(effects)), fontsize=8)
    axes.axvline(0.0, color="0.3", linewidth=0.8)
    axes.margins(x=0.15)
    axes.set_xlabel("effect, per cent (blue: a smaller number, orange: a larger one)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(title, fontsize=9)
    save_plot(figure, path)


def _interval(row: Mapping[str, Any], name: str) -> tuple[float, list[list[float]]]:
    value = row[name]
    low, high = (row.get(f"{name}{end}", value) for end in ("_p05", "_p95"))
    return value, [[max(value - low, 0.0)], [max(high - value, 0.0)]]


def _label(row: Mapping[str, Any], rows: StoredRows) -> str:
    names = rows.varying or rows.fields
    return " ".join(
        f"{name.rpartition('.')[2]} {row[name]}" if not isinstance(row[name], str) else row[name]
        for name in names
        if row.get(name) is not None
    )


def _levels(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Values of a field in order: numbers by size, others as they come."""
    values = list(dict.fromkeys(row.get(name) for row in rows))
    if all(isinstance(each, int | float) for each in values):
        return sorted(values)
    return values


def _words(metric: str) -> str:
    """A metric as an axis says it.

    >>> _words("decode_step_ms"), _words("output_tokens_per_s_per_gpu")
    ('decode step, ms', 'output tokens/s/GPU')
    """
    words, unit = words_and_unit(metric)
    between = "" if not unit or unit.startswith("/") else ", "
    return f"{words}{between}{unit}"


def _tick(value: float, _position: int | None = None) -> str:
    """A number at an axis that goes over decades.

    >>> _tick(2000.0), _tick(0.05), _tick(70.0)
    ('2,000', '0.05', '')
    """
    first = value / 10.0 ** math.floor(math.log10(value) + 1e-9)
    return f"{value:,g}" if any(math.isclose(first, digit) for digit in (1, 2, 3, 5)) else ""


def _less_is_better(metric: str) -> bool:
    from silicast.exploration.belonging import sign_of

    return sign_of(metric) > 0
