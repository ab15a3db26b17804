"""What fits, for people: one line a pair, on one screen, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from silicast.core.errors import SilicastError
from silicast.report.drawing.numbers import rounded
from silicast.report.drawing.plot_file import figure_class, save_plot
from silicast.report.drawing.tables import figure, listing

Answer = Mapping[str, Any]


def fits_parts(scenario: Mapping[str, Any], answer: Answer) -> Sequence[RenderableType]:
    """A table of the pairs, and how they were chosen."""
    why = answer["why"]
    if "trains" in why:
        return _training_parts(scenario, why)
    kind = "device" if "device" not in scenario else "model"
    several = why["users"] > 1
    columns = {
        kind: "tree",
        "weights": "tree",
        "billions": "right",
        "GB": "right",
        "of": "right",
        "tokens/s": "right",
        "90 %": "right",
        **({"of all": "right"} if several else {}),
        "prompt/s": "right",
    }
    rows = [_line(row, kind, several=several) for row in why["fits"]]
    table = listing(columns, rows)
    kinds = "models" if kind == "model" else "devices"
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
    kind = "device" if "device" not in scenario else "model"
    columns = {
        **({} if both else {kind: "tree"}),
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
            line.insert(0, str(row[kind]))
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


def _line(row: Mapping[str, Any], kind: str, *, several: bool) -> list[str]:
    speed = row["tokens_per_s"]
    active = "" if row["active_b"] > 0.8 * row["parameters_b"] else f" ({row['active_b']:.2g})"
    return [
        str(row[kind]),
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


ROW_INCHES, LEAST_INCHES = 0.24, 2.2
WEIGHTS, CACHE, REST, ROOM, SPEED = "#3b6fb6", "#d98a2b", "#b8c4cf", "#e8ecef", "#c2410c"
PARTS: Final = (("weights", WEIGHTS), ("cache", CACHE), ("the rest", REST))


def draw_fits(rows: Sequence[Mapping[str, Any]], path: Path, *, by_model: bool) -> None:
    """A line a pair, in the order of the answer.

    Args:
        rows: of ``why.fits``.
        by_model: they are models of one device; else devices of one model.

    Raises:
        SilicastError: nothing fits, or the file cannot be written.
    """
    if not rows:
        raise SilicastError("nothing fits: there is nothing to draw", field="--plot")
    height = max(LEAST_INCHES, 1.0 + ROW_INCHES * len(rows))
    figure = figure_class()(figsize=(8.0, height), layout="constrained")
    memory, speed = figure.subplots(1, 2, sharey=True)
    name = "model" if by_model else "device"
    at = range(len(rows))
    memory.barh(at, [row["usable_gb"] for row in rows], color=ROOM, height=0.8, label="usable")
    start = [0.0] * len(rows)
    for (label, color), sizes in zip(PARTS, zip(*map(_parts, rows), strict=True), strict=True):
        memory.barh(at, sizes, left=start, color=color, height=0.55, label=label)
        start = [begin + size for begin, size in zip(start, sizes, strict=True)]
    speeds = [row["tokens_per_s"] for row in rows]
    estimates = [belief["estimate"] for belief in speeds]
    across = [
        [belief["estimate"] - belief["p05"] for belief in speeds],
        [belief["p95"] - belief["estimate"] for belief in speeds],
    ]
    speed.errorbar(estimates, at, xerr=across, fmt="o", ms=4, color=SPEED, elinewidth=1)
    memory.set_yticks(at, [f"{row[name]}  {row['weights']}" for row in rows], fontsize=7)
    memory.invert_yaxis()
    memory.set_xlabel("memory, GB")
    speed.set_xlabel("tokens a second of one user, 90 % interval")
    speed.set_xlim(left=0.0)
    memory.legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    other = rows[0]["device" if by_model else "model"]
    figure.suptitle(f"{'on' if by_model else 'of'} {other}", fontsize=10)
    save_plot(figure, path)


def _parts(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Weights, cache and the rest, GB."""
    other_gb = row["memory_gb"] - row["weights_gb"] - row["kv_cache_gb"]
    return row["weights_gb"], row["kv_cache_gb"], max(other_gb, 0.0)
