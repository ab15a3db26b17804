"""Layers on a design, drawn: energy and time of each, by level and by what bounds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silicast.accelerator.counting.layer_table import MappedLayers
from silicast.report.designs.design_layers import busiest
from silicast.report.designs.mapping_plot import COLOURS, OTHER
from silicast.report.drawing.plot_file import figure_class, save_plot


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
