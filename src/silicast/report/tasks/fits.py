"""What fits, for people: one line a pair, on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.tables import figure, listing

Answer = Mapping[str, Any]


def fits_parts(scenario: Mapping[str, Any], answer: Answer) -> Sequence[RenderableType]:
    """A table of the pairs, and how they were chosen."""
    why = answer["why"]
    what = "device" if "device" not in scenario else "model"
    several = why["users"] > 1
    columns = {
        what: "tree",
        "weights": "tree",
        "billions": "right",
        "GB": "right",
        "of": "right",
        "tokens/s": "right",
        "90 %": "right",
        **({"of all": "right"} if several else {}),
        "prompt/s": "right",
    }
    rows = [_line(row, what, several=several) for row in why["fits"]]
    table = listing(columns, rows)
    kinds = "models" if what == "model" else "devices"
    shown = f"{len(rows)} of {why['fitting']} {kinds} that fit are shown, of {why['tried']} tried"
    slow = f"; {why['slow']} were too slow" if why["slow"] else ""
    return [
        table,
        Text(""),
        Text(f"{shown}{slow}; best first: {why['order']}"),
        Text("billions of parameters (active ones); tokens/s of one user; prompt tokens/s"),
    ]


def _line(row: Mapping[str, Any], what: str, *, several: bool) -> list[str]:
    speed = row["tokens_per_s"]
    active = "" if row["active_b"] > 0.8 * row["parameters_b"] else f" ({row['active_b']:.2g})"
    return [
        str(row[what]),
        str(row["weights"]),
        f"{row['parameters_b']:.3g}{active}",
        rounded(row["memory_gb"]),
        rounded(row["usable_gb"]),
        _whole(speed["estimate"]),
        f"{_whole(speed['p05'])} - {_whole(speed['p95'])}",
        *([_whole(row["output_tokens_per_s"])] if several else []),
        figure(row["prompt_tokens_per_s"]),
    ]


def _whole(rate: float) -> str:
    return f"{rate:.1f}" if rate < 20 else f"{rate:,.0f}"
