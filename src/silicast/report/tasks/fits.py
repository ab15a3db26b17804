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
    if "trains" in why:
        return _training_parts(scenario, why)
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
    behind = why["fitting"] - len(rows) - why["slow"]
    slow = f"; {why['slow']} are too slow" if why["slow"] else ""
    slow += f"; {behind} are behind these" if behind else ""
    return [
        table,
        Text(""),
        Text(f"{shown}{slow}; best first: {why['order']}"),
        Text("billions of parameters (active ones); tokens/s of one user; prompt tokens/s"),
    ]


def _training_parts(
    scenario: Mapping[str, Any], why: Mapping[str, Any]
) -> Sequence[RenderableType]:
    """A table of the ways of training."""
    both = "device" in scenario and "model" in scenario
    what = "device" if "device" not in scenario else "model"
    columns = {
        **({} if both else {what: "tree"}),
        "way": "tree",
        **({"fits": "tree", "recompute": "tree"} if both else {}),
        "GB": "right",
        "of": "right",
        "batch": "right",
        "longest": "right",
        "tokens/s": "right",
        **({"90 %": "right"} if both else {}),
    }
    rows = []
    for row in why["trains"]:
        speed = row.get("tokens_per_s")
        line = [row["way"], rounded(row["memory_gb"]), rounded(row["usable_gb"])]
        if both:
            line[1:1] = ["yes" if row["fits"] else "no", row["recompute"]]
        else:
            line.insert(0, str(row[what]))
        line += [f"{row['batch']:,}", f"{row['context']:,}"]
        line.append(_whole(speed["estimate"]) if speed else "-")
        rows.append([*line, _interval(speed)] if both else line)
    size = f"{why['users']} x {why['context']} tokens"
    return [
        listing(columns, rows),
        Text(""),
        Text(
            f"GB with {size} a device; the largest batch at {why['context']}, the longest with "
            f"{why['users']}, everything computed again; tokens/s of a device"
        ),
        Text(f"{why['fitting']} of {why['tried']} tried fit; best first: {why['order']}"),
    ]


def _interval(speed: Mapping[str, Any] | None) -> str:
    return f"{_whole(speed['p05'])} - {_whole(speed['p95'])}" if speed else "-"


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
