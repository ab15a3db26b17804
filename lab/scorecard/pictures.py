"""The picture of the README: predicted against measured time of whole models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.scorecard.figures import point_figures
from lab.scorecard.results import rounded
from lab.scorecard.suite import Scored
from silicast.report.drawing.tables import figure

END_TO_END = "end_to_end.svg"
TITLES = {"prefill_ms": "prefill", "decode_step_ms": "decode step", "total_ms": "whole batch"}


def title(metric: str, mean_ape: float) -> str:
    """What stands over one part of the picture; the mean error as the README's table shows it."""
    return f"{TITLES[metric]}: mean error {figure(rounded(mean_ape))} %"


def draw_end_to_end(scored: Sequence[Scored], folder: Path) -> None:
    """Writes the picture of a run of suite ``end-to-end``; the same bytes for the same rows.

    Titles are text, not shapes, so that a test reads them.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "silicast", "svg.fonttype": "none", "font.size": 9})
    drawing, axes = plt.subplots(1, 3, figsize=(10, 3.6), constrained_layout=True)
    devices = sorted({str(d) for s in scored for d in s.groups["device"]})
    colours = {d: plt.get_cmap("tab10")(i) for i, d in enumerate(devices)}
    for axis, rows in zip(axes, scored, strict=True):
        low, high = rows.measured.min() * 0.7, rows.measured.max() * 1.4
        axis.fill_between(
            [low, high], [low * 0.9, high * 0.9], [low * 1.1, high * 1.1], color="0.92"
        )
        axis.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        for device in devices:
            chosen = rows.groups["device"] == device
            error = np.abs(np.stack((rows.p05, rows.p95)) - rows.estimate)[:, chosen]
            axis.errorbar(
                rows.measured[chosen],
                rows.estimate[chosen],
                yerr=error,
                fmt="o",
                markersize=4,
                linewidth=0.7,
                color=colours[device],
                label=device,
            )
        mean_ape = point_figures(rows.measured, rows.estimate)["mean_ape"]
        axis.set(
            xscale="log",
            yscale="log",
            xlim=(low, high),
            ylim=(low, high),
            xlabel="measured, ms",
            title=title(rows.metric, mean_ape),
        )
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            ticks.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("predicted, ms")
    axes[0].legend(fontsize=7, frameon=False)
    drawing.savefig(folder / END_TO_END, metadata={"Date": None})
    plt.close(drawing)
