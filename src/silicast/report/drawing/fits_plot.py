"""What fits: memory beside that of the device, and tokens a second of one user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from silicast.core.errors import SilicastError
from silicast.report.drawing.plot_file import figure_class, save_plot

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
        start = [one + size for one, size in zip(start, sizes, strict=True)]
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
