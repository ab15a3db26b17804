"""A graph of kernels from top to bottom: what was joined to each, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from silicast.core.errors import SilicastError
from silicast.report.drawing.plot_file import figure_class, save_plot

COLUMN_INCHES, ROW_INCHES, MOST_INCHES = 2.3, 0.46, 180.0
PALE: Final = (0.93, 0.95, 0.97)
FULL: Final = (0.85, 0.45, 0.16)
"""Colours of no time at all and of the largest share."""
LONGEST: Final = 30
"""Characters of a name."""


def draw_kernels(rows: Sequence[Mapping[str, Any]], path: Path, title: str) -> None:
    """A box a kernel below all that it waits for, the more coloured the more time it takes.

    Args:
        rows: ``name``, ``op``, ``joined``, ``waits`` (earlier rows) and ``us`` of each.

    Raises:
        SilicastError: nothing runs, or the file cannot be written.
    """
    if not rows:
        raise SilicastError("nothing runs: there is nothing to draw", field="--plot")
    at = placed([row["waits"] for row in rows])
    across = 1 + max(column for column, _ in at)
    down = 1 + max(line for _, line in at)
    height = min(1.0 + ROW_INCHES * down, MOST_INCHES)
    figure = figure_class()(figsize=(1.0 + COLUMN_INCHES * across, height), layout="constrained")
    axes = figure.subplots()
    total = sum(row["us"] for row in rows) or 1.0
    largest = max(row["us"] for row in rows) or 1.0
    for row, (column, line) in zip(rows, at, strict=True):
        for wait in row["waits"]:
            source = at[wait]
            axes.annotate(
                "",
                (column, line - 0.3),
                (source[0], source[1] + 0.3),
                arrowprops={"arrowstyle": "->", "color": "#8a97a3", "lw": 0.7, "shrinkA": 0},
            )
        share = row["us"] / largest
        color = tuple(low + (high - low) * share for low, high in zip(PALE, FULL, strict=True))
        box = {"boxstyle": "round,pad=0.25", "facecolor": color, "edgecolor": "#5b6873", "lw": 0.6}
        words = f"{label(row)}\n{row['us']:.3g} µs, {100.0 * row['us'] / total:.0f} %"
        axes.text(column, line, words, ha="center", va="center", fontsize=6, bbox=box, zorder=3)
    joined = sum(len(row["joined"]) for row in rows)
    axes.set_title(f"{title}: {len(rows)} kernels, {joined} operators joined to them", fontsize=8)
    axes.set_xlim(-0.6, across - 0.4)
    axes.set_ylim(down - 0.4, -0.6)
    axes.set_axis_off()
    save_plot(figure, path)


def placed(waits: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Column and line of each kernel: below the lowest that it waits for, in the column of the
    first of them where that is free.

    >>> placed([[], [0], [0], [1, 2]])  # a branch
    [(0, 0), (0, 1), (1, 1), (0, 2)]
    """
    result: list[tuple[int, int]] = []
    taken: set[tuple[int, int]] = set()
    for before in waits:
        line = 1 + max((result[each][1] for each in before), default=-1)
        column = result[before[0]][0] if before else 0
        while (column, line) in taken:
            column += 1
        taken.add((column, line))
        result.append((column, line))
    return result


def label(row: Mapping[str, Any]) -> str:
    """The kernel and what is joined to it.

    >>> label({"name": "conv_3", "op": "conv2d", "joined": ["relu_3"]})
    'conv_3 + relu_3'
    """
    words = " + ".join([row["name"], *row["joined"]])
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
