"""Predicted against measured time of whole models: the picture of the README.

    .venv/bin/python benchmarks/plot_end_to_end.py

Reads the measured cases, predicts them and writes docs/_static/end_to_end.svg (drawn the same for
the same rows: no date, fixed identifiers).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from silicast.validation.scorecard.suite import data_folder, suites

PICTURE = Path(__file__).parents[1] / "docs" / "_static" / "end_to_end.svg"
TITLES = {"prefill_ms": "prefill", "decode_step_ms": "decode step", "total_ms": "whole batch"}


def main() -> None:
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "silicast", "font.size": 9})
    scored = suites()["end-to-end"].score(data_folder())
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), constrained_layout=True)
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
                rows.measured[chosen], rows.estimate[chosen], yerr=error, fmt="o", markersize=4,
                linewidth=0.7, color=colours[device], label=device,
            )  # fmt: skip
        mape = np.mean(np.abs(rows.estimate / rows.measured - 1)) * 100
        axis.set(
            xscale="log", yscale="log", xlim=(low, high), ylim=(low, high),
            xlabel="measured, ms", title=f"{TITLES[rows.metric]}: mean error {mape:.1f} %",
        )  # fmt: skip
        for ticks in (axis.xaxis, axis.yaxis):
            ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            ticks.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("predicted, ms")
    axes[0].legend(fontsize=7, frameon=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    print(PICTURE)


if __name__ == "__main__":
    main()
