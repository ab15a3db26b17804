"""A traced run on another device, as a table for people and as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from silicast.core.prediction import Quantity
from silicast.measurement.what_if.scaled_trace import ScaledTrace
from silicast.report.drawing.numbers import duration, percent
from silicast.report.drawing.tables import listing
from silicast.scenario.answer import largest_of

MOST_NAMED = 5


def what_if_table(result: ScaledTrace) -> RenderableType:
    """Ops with their measured and predicted times, the sum, and what has no ratio of its own."""
    columns = {
        "op": "left",
        "launches": "right",
        result.traced: "right",
        result.device: "right",
        "90 %": "right",
        "ratio": "right",
    }
    rows = [[op.op, f"{op.launches:,}", *_times(op.measured_us, op.scaled_us)] for op in result.ops]
    if result.unscaled:
        unknown_us = sum(each.measured_us for each in result.unscaled)
        rows.append(["others", "", duration(unknown_us * 1e-6), "", "", ""])
    rows.append(["all kernels", "", *_times(result.measured_us, result.scaled_us)])
    for sent in result.collectives:
        name = f"{sent.reason}: {sent.op}"
        exposed = _times(0.0, sent.exposed_us)
        rows.append([name, f"{sent.launches:,}", "", *exposed[1:3], ""])
    if result.wall_us is not None:
        rows.append(["with gaps", "", *_times(*result.wall_us)])
    lines = [
        f"others: {percent(each.measured_us / result.measured_us)} {each.name[:48]}: {each.reason}"
        for each in result.unscaled[:MOST_NAMED]
    ]
    if result.unscaled:
        share = percent(result.unscaled_share)
        lines.append(f"{share} of the kernel time takes the ratio of all other kernels")
    if result.rows_assumed:
        lines.append(
            "no norm, lookup or rotation tells tokens from weights: the rows of every product are "
            "taken to grow with the batch"
        )
    if result.idle_us is not None:
        lines.append("gaps between kernels are the host's: they stay as they were measured")
    if result.plan.gpus > 1:
        lines.append(
            f"ops are those of one of {result.plan.gpus} GPUs and of one micro-batch; collectives "
            "are inserted at their predicted times"
        )
    if result.busy_share < 1.0:
        hidden = percent(1.0 - result.busy_share)
        lines.append(f"{hidden} of the kernel time ran beside other kernels: it stays hidden")
    if result.overlap:
        share = percent(result.overlap_share)
        lines.append(f"{share} of it beside kernels of its own stream, as {result.overlap} do")
    lines.append(
        "scaled tier: measured kernels times the ratio of our predictions for both devices"
    )
    return Group(listing(columns, rows), Text(""), *(Text(line) for line in lines))


def _times(measured_us: float, scaled_us: Quantity) -> list[str]:
    low, high = duration(scaled_us.p05 * 1e-6), duration(scaled_us.p95 * 1e-6)
    return [
        duration(measured_us * 1e-6),
        duration(scaled_us.estimate * 1e-6),
        f"{low} - {high}",
        f"{scaled_us.estimate / measured_us:.2f}" if measured_us else "",
    ]


def what_if_values(result: ScaledTrace) -> dict[str, Any]:
    """Plain values; times in us."""
    wall = result.wall_us
    return {
        "traced": result.traced,
        "device": result.device,
        "tier": "scaled",
        "measured_us": result.measured_us,
        "kernels_us": asdict(result.scaled_us),
        "idle_us": result.idle_us,
        "busy_share": result.busy_share,
        "overlap_share": result.overlap_share,
        "measured_wall_us": None if wall is None else wall[0],
        "wall_us": None if wall is None else asdict(wall[1]),
        "unscaled_share": result.unscaled_share,
        "coverage": _coverage(result),
        "gpus": result.plan.gpus,
        "collectives": [
            {
                "reason": each.reason,
                "op": each.op,
                "bytes": each.bytes,
                "gpus": each.gpus,
                "launches": each.launches,
                "exposed_us": asdict(each.exposed_us),
            }
            for each in result.collectives
        ],
        "ops": [
            {
                "op": op.op,
                "launches": op.launches,
                "measured_us": op.measured_us,
                "scaled_us": asdict(op.scaled_us),
            }
            for op in result.ops
        ],
        "unscaled": [
            {"name": each.name, "measured_us": each.measured_us, "reason": each.reason}
            for each in result.unscaled
        ],
    }


def _coverage(result: ScaledTrace) -> dict[str, Any]:
    """Shares of the measured kernel time by what its prediction rests on, as in answers."""
    unknown: dict[str, float] = {}
    for each in result.unscaled:
        share = each.measured_us / result.measured_us
        unknown[each.name] = unknown.get(each.name, 0.0) + share
    shares = {"scaled": 1.0 - result.unscaled_share, "unmodelled": result.unscaled_share}
    time_share = {name: round(share, 6) for name, share in shares.items() if share > 0.0}
    return {"time_share": time_share, **largest_of(unknown, "kernel")}
