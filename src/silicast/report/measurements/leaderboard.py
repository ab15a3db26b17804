"""Boards of the scorecard, on screens and as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.report.drawing.tables import listing
from silicast.validation.leaderboard import SetScore

COLUMNS = (
    "rank",
    "tool",
    "rows",
    "done",
    "mean %",
    "median %",
    "bias %",
    "inside %",
    "interval",
    "regret %",
    "s",
)
KEY = (
    "Error of every measured value, those that are not answered at 100 %. Ranks are those of 90 % "
    "of drawn sets of cases: tools whose ranks overlap tie."
)
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}div{overflow-x:auto}"
    "th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}"
    "th:nth-child(2),td:nth-child(2){text-align:left}"
    "@media(prefers-color-scheme:dark){body{background:#14171c;color:#e8eaee}}"
)


def board_cells(each: SetScore) -> list[str]:
    """One tool's row."""
    rank = f"{each.best_rank}"
    if each.worst_rank != each.best_rank:
        rank = f"{each.best_rank}-{each.worst_rank}"
    return [
        rank,
        f"{each.tool} {each.version}",
        f"{each.rows}",
        f"{each.answered}",
        f"{each.mean:.1f}",
        f"{each.median:.1f}",
        *(_number(value) for value in (each.bias, each.coverage)),
        "-" if each.interval is None else f"{each.interval:.2f}",
        _number(each.regret),
        _number(each.seconds),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def boards_table(boards: Mapping[str, Sequence[SetScore]]) -> RenderableType:
    """All sets of cases, a table each."""
    parts: list[RenderableType] = [Text(KEY)]
    sides = {name: "left" if name == "tool" else "right" for name in COLUMNS}
    for name, scores in boards.items():
        parts += [Text(), Text(name, "bold"), listing(sides, map(board_cells, scores))]
    return Group(*parts)


def boards_page(boards: Mapping[str, Sequence[SetScore]], commitment: str) -> str:
    """The same as a page that needs nothing else.

    Args:
        commitment: hash of the truths that were scored against.
    """
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in COLUMNS)
    parts = [f"<h1>Scorecard</h1><p>{escape(KEY)} Truths: {escape(commitment)}</p>"]
    for name, scores in boards.items():
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in board_cells(each)) + "</tr>"
            for each in scores
        )
        parts.append(f"<h2>{escape(name)}</h2><div><table><tr>{head}</tr>{rows}</table></div>")
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>Scorecard</title><style>{STYLE}</style>{body}</html>\n'
    )
