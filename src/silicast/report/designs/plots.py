"""A search of designs, drawn: every design tried, and the front."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from silicast.accelerator.counting.layer_table import MappedLayers
from silicast.core.errors import SilicastError
from silicast.exploration.state import SearchState
from silicast.report.designs.design_layers import busiest
from silicast.report.designs.mapping_plot import COLOURS, OTHER
from silicast.report.drawing.plot_file import figure_class, save_plot

TRIED, FRONT = "#b8c4cf", "#c2410c"


def draw_front(state: SearchState, path: Path) -> None:
    """Every pair of objectives; what the front encloses is shaded where there are two.

    Raises:
        SilicastError: fewer than two objectives, no feasible design, or the file cannot be written.
    """
    history = state.history
    count = len(history.objectives)
    if count < 2 or not len(history.front):
        raise SilicastError(
            "a front is drawn of two or more objectives and at least one design",
            field="--plot",
            hint="print the table instead",
        )
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    figure = figure_class()(figsize=(0.6 + 4.4 * len(pairs), 4.2), layout="constrained")
    signs = np.array([objective.sign for objective in history.objectives])
    values = history.values * signs
    rows = np.searchsorted(np.flatnonzero(history.feasible), history.front)
    for index, (i, j) in enumerate(pairs):
        axes = figure.add_subplot(1, len(pairs), index + 1)
        axes.scatter(
            values[:, i], values[:, j], s=10, color=TRIED, linewidths=0, label="tried", zorder=2
        )
        best = values[rows]
        if count == 2:
            _steps(axes, best, history.objectives[0].largest)
        axes.scatter(
            best[:, i], best[:, j], s=22, color=FRONT, linewidths=0, label="front", zorder=4
        )
        for name, axis, column in (("x", axes.xaxis, i), ("y", axes.yaxis, j)):
            _scale(axes, name, values[:, column])
            objective = history.objectives[column]
            axis.set_label_text(
                f"{_words(objective.metric)}{' (more is better)' if objective.largest else ''}"
            )
        axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.6, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        if index == 0:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle(
        f"{state.method} search: {len(history):,} designs tried, {len(history.front)} on the front",
        fontsize=10,
    )
    save_plot(figure, path)


def _steps(axes: Any, best: Any, first_large: bool) -> None:
    order = np.argsort(best[:, 0])
    where = "pre" if first_large else "post"
    axes.step(best[order, 0], best[order, 1], where=where, color=FRONT, linewidth=1.0, zorder=3)


def _scale(axes: Any, name: str, values: Any) -> None:
    """Decades where values go over more than one."""
    if values.min() > 0 and values.max() / values.min() > 10:
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")


def _words(metric: str) -> str:
    """A metric as an axis says it.

    >>> _words("area_mm2"), _words("tops_per_w")
    ('area, mm2', 'tops per w')
    """
    name, _, unit = metric.rpartition("_")
    if unit in {"ms", "mj", "w", "mm2", "us", "s", "gb", "usd"} and name and name[-4:] != "_per":
        shown = {"mj": "mJ", "w": "W", "gb": "GB", "usd": "USD"}.get(unit, unit)
        return f"{name.replace('_', ' ')}, {shown}"
    return metric.replace("_", " ")


def draw_layers(mapped_layers: MappedLayers, path: Path) -> None:
    """A bar a distinct layer, as often as it runs: energy by level, and time by bound.

    Raises:
        SilicastError: the file cannot be written.
    """
    count = len(mapped_layers.layers)
    figure = figure_class()(figsize=(11, 1.6 + 0.28 * count), layout="constrained")
    energy, time = figure.subplots(1, 2, sharey=True)
    rows = np.arange(count)
    times = np.array([layer.count for layer in mapped_layers.layers])
    left = np.zeros(count)
    names = [memory.name for memory in mapped_layers.architecture.memories]
    for level, name in enumerate(names):
        pj = np.array([float(a.cost.access_pj[level, :, 0].sum()) for a in mapped_layers.answers])
        energy.barh(rows, pj * times / 1e6, left=left, color=COLOURS[level % 6], label=name)
        left += pj * times / 1e6
    total = np.array([float(a.cost.energy_pj[0]) for a in mapped_layers.answers]) * times / 1e6
    energy.barh(rows, total - left, left=left, color=OTHER, label="units, leakage")
    energy.set_yticks(
        rows, [f"{layer.name} x {layer.count}" for layer in mapped_layers.layers], fontsize=8
    )
    energy.invert_yaxis()
    energy.set_xlabel("uJ")
    energy.legend(frameon=False, fontsize=8)
    energy.set_title("Energy by level", fontsize=10, loc="left")
    bounds = [busiest(answer.cost) for answer in mapped_layers.answers]
    kinds = list(dict.fromkeys(bounds))
    cycles = np.array([float(a.cost.cycles[0]) for a in mapped_layers.answers]) * times
    for number, kind in enumerate(kinds):
        mine = np.array([bound == kind for bound in bounds])
        time.barh(rows[mine], cycles[mine], color=COLOURS[(number + 2) % 6], label=kind)
    time.set_xlabel("cycles")
    time.legend(frameon=False, fontsize=8, title="bound by", title_fontsize=8)
    time.set_title("Time, and what bounds it", fontsize=10, loc="left")
    for axes in (energy, time):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{sum(times)} layers on {mapped_layers.architecture.name}: "
        f"{mapped_layers.energy_pj / 1e6:,.4g} uJ, {mapped_layers.cycles:,.0f} cycles",
        fontsize=11,
    )
    save_plot(figure, path)
