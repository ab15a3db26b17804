"""A scheduled pipeline as a timeline: one track a rank, an arrow for each message."""

from __future__ import annotations

from typing import Any

import numpy as np

from silicast.composition.trace_events import Arrow, Slice, Trace, Track
from silicast.core.numerics import I64
from silicast.distributed.dependencies import producers
from silicast.distributed.pipeline import PipelineTimes
from silicast.distributed.schedules.order import KINDS

PICOSECONDS = 1e12


def pipeline_trace(times: PipelineTimes, title: str = "pipeline") -> Trace:
    """Slices and arrows of one plan, for :mod:`silicast.report.trace`.

    Args:
        times: in whole picoseconds, or in seconds.
    """
    order = times.order
    start, end = _picoseconds(times.start), _picoseconds(times.end)
    width = len(str(order.placement.ranks - 1))
    tracks = [Track("pipeline", f"rank {r:0{width}d}") for r in range(order.placement.ranks)]
    second = np.concatenate(([False], order.together[:-1]))
    slices: list[Slice] = []
    for i, rank in enumerate(order.rank.tolist()):
        if second[i]:  # drawn with the one before it
            slices.append(slices[-1])
            continue
        name = f"{KINDS[order.kind[i]]} {order.micro_batch[i]}"
        if order.together[i]:
            name = f"{name} | {KINDS[order.kind[i + 1]]} {order.micro_batch[i + 1]}"
        about: dict[str, Any] = {
            "micro_batch": int(order.micro_batch[i]), "chunk": int(order.chunk[i]),
            "stage": int(order.stage[i]),
        }  # fmt: skip
        slices.append(Slice(tracks[rank], name, int(start[i]), int(end[i]), about))
    sources = producers(order)
    arrows = [
        Arrow(slices[source], slices[i])
        for i, source in enumerate(sources.tolist())
        if source >= 0 and order.rank[source] != order.rank[i]
    ]
    drawn = tuple(each for each, behind in zip(slices, second.tolist(), strict=True) if not behind)
    return Trace(title, drawn, tuple(arrows), (), int(end.max()))


def _picoseconds(values: Any) -> I64:
    if values.dtype.kind == "i":
        return np.asarray(values)
    rounded: I64 = np.rint(values * PICOSECONDS).astype(np.int64)
    return rounded
