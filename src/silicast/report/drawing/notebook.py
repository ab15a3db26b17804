"""Answers in notebooks: as a table of HTML and as figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, final

from silicast.report.drawing.plot_file import check_plot, figure_class, save_plot
from silicast.report.tasks.sequences import without_tokens
from silicast.scenario.answer import Answer, Belief


@final
@dataclass(frozen=True)
class NotebookFigure:
    """A figure that a notebook shows, whether or not it was set up for matplotlib.

    Attributes:
        figure: of matplotlib, to be changed at will.
    """

    figure: Any

    def save(self, path: str | Path) -> None:
        """Writes a file (.svg, .png, .pdf).

        Raises:
            SilicastError: it cannot be written.
        """
        check_plot(Path(path))
        save_plot(self.figure, Path(path))

    def _repr_svg_(self) -> str:
        content = BytesIO()
        self.figure.savefig(content, format="svg", metadata={"Date": None})
        return content.getvalue().decode("utf-8")


HEADINGS = ("metric", "estimate", "5 %", "95 %", "bound")


def answer_html(answer: Answer) -> str:
    """One answer: its metrics, how sure it is, and its warnings."""
    rows = [
        (
            name,
            f"{belief.estimate:.4g}",
            f"{belief.p05:.4g}",
            f"{belief.p95:.4g}",
            f"{answer.bound[name]:.4g}" if name in answer.bound else "",
        )
        for name, belief in without_tokens(answer.metrics).items()
    ]
    warnings = "".join(f"<li>{escape(text)}</li>" for text in answer.warnings)
    sure = f"<p>tier {escape(answer.tier)}, domain {escape(answer.domain)}</p>"
    return table_html(HEADINGS, rows) + sure + (f"<ul>{warnings}</ul>" if warnings else "")


def table_html(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table.

    >>> table_html(["a"], [["<b>"]])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def intervals_figure(metrics: Mapping[str, Belief]) -> NotebookFigure:
    """A figure with a line a metric: its interval as factors of its estimate.

    Raises:
        SilicastError: matplotlib is not installed.
    """
    shown = [(name, belief) for name, belief in metrics.items() if belief.estimate > 0.0]
    figure = figure_class()(figsize=(7.0, 1.0 + 0.35 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    for index, (_, belief) in enumerate(shown):
        ends = [belief.p05 / belief.estimate, belief.p95 / belief.estimate]
        axes.plot(ends, [index, index], linewidth=5, solid_capstyle="butt")
        axes.plot([1.0], [index], "k|", markersize=12)
    axes.set_yticks(range(len(shown)), [f"{name} {belief:.4g}" for name, belief in shown])
    axes.invert_yaxis()
    axes.set_xlabel("of the estimate (90 % interval)")
    return NotebookFigure(figure)


def points_figure(
    points: Sequence[tuple[str, Belief, Belief]], across: str, up: str
) -> NotebookFigure:
    """A figure with a point a candidate and the intervals of both metrics.

    Args:
        points: label, value across, value up.

    Raises:
        SilicastError: matplotlib is not installed.
    """
    figure = figure_class()(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for label, x, y in points:
        off_x = [[x.estimate - x.p05], [x.p95 - x.estimate]]
        off_y = [[y.estimate - y.p05], [y.p95 - y.estimate]]
        axes.errorbar([x.estimate], [y.estimate], off_y, off_x, fmt="o", label=label)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if points:
        axes.legend(fontsize="small")
    return NotebookFigure(figure)
