"""Drawings of tuning: causes of a kernel's time, times by number of tokens."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot
from silicast.tuning.diagnosis import Diagnosis
from silicast.tuning.gain import CAUSES
from silicast.tuning.plan import TuningPlan

DARK, LIGHT, MARK = "#1f4e79", "#9dbfdd", "#c0504d"

TITLE_WIDTH = 90
"""Letters of a title in one line."""


def plot_causes(diagnosis: Diagnosis, title: str, path: Path) -> None:
    """A waterfall of the measured time's causes, with bound and the faster configuration."""
    check_plot(path)
    shown = {
        name: value
        for name, value in diagnosis.causes_us.items()
        if abs(value) > 0.0005 * diagnosis.measured_us
    }
    figure = figure_class()(figsize=(8.5, 3.8), layout="constrained")
    axes = figure.subplots()
    reached = 0.0
    for index, (name, value) in enumerate(shown.items()):
        colour = DARK if name == "work" else LIGHT if value >= 0.0 else MARK
        axes.barh(index, value, left=reached, color=colour)
        end = max(reached, reached + value)
        axes.text(end, index, f" {value:.3g}", va="center", fontsize=8)
        reached += value
    axes.barh(len(shown), diagnosis.measured_us, color="#444444")
    axes.text(
        diagnosis.measured_us, len(shown), f" {diagnosis.measured_us:.4g}", va="center", fontsize=8
    )
    axes.set_yticks(range(len(shown) + 1), [*(CAUSES[name] for name in shown), "measured"])
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.axvline(diagnosis.bound_us, color=MARK, linewidth=1.0, linestyle="--")
    axes.text(diagnosis.bound_us, -0.62, "bound", color=MARK, fontsize=8, ha="center")
    if diagnosis.faster is not None:
        best = diagnosis.faster
        axes.axvspan(best.p05_us, best.p95_us, color="#d7e8d0", zorder=0)
        axes.axvline(best.estimate_us, color="#4f8f3a", linewidth=1.0)
        axes.text(
            best.estimate_us,
            -0.62,
            "faster configuration",
            color="#4f8f3a",
            fontsize=8,
            ha="center",
        )
    axes.set_xlim(0.0, diagnosis.measured_us * 1.1)
    axes.set_xlabel("us")
    axes.set_title(fill(title, TITLE_WIDTH), fontsize=10, pad=14)
    plain_axes(axes)
    save_plot(figure, path)


def plot_gains(plan: TuningPlan, path: Path) -> None:
    """What each entry of the first file saves over an existing one, with 90 % intervals.

    Without an existing file: times of the entries.
    """
    check_plot(path)
    entries = plan.files[0].entries
    tokens = [each.tokens for each in entries]
    judged = entries[0].existing_us is not None

    def shown(us: float, reference: float | None) -> float:
        return us if reference is None else 100.0 * (1.0 - us / reference)

    middle = [shown(each.estimate_us, each.existing_us) for each in entries]
    ends = np.array(
        [[shown(us, each.existing_us) for us in (each.p05_us, each.p95_us)] for each in entries]
    )
    figure = figure_class()(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    low, high = ends.min(axis=1), ends.max(axis=1)
    axes.vlines(range(len(tokens)), low, high, color=LIGHT, linewidth=6.0)
    axes.plot(range(len(tokens)), middle, "o", color=DARK, markersize=5.0)
    axes.set_xticks(range(len(tokens)), [str(count) for count in tokens], rotation=45)
    axes.set_xlabel("tokens")
    if judged:
        axes.axhline(0.0, color="#888888", linewidth=0.8)
        axes.set_ylabel("saved over the existing file, %")
    else:
        axes.set_yscale("log")
        axes.set_ylabel("us of both products")
    axes.set_title(f"{plan.model} on {plan.device}, {plan.dtype}: 90 % intervals", fontsize=10)
    plain_axes(axes)
    save_plot(figure, path)


def plain_axes(axes: Any) -> None:
    """Axes without a frame above and on the right."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
