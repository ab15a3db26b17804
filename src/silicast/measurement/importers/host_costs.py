"""What the host spent on launching, from a profiler's record of the runtime's calls."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.measurement.records.records import HostRow, RepeatSpread

FEWEST = 8
"""Calls from which on a median is worth a row."""
PAUSE_US = 1000.0
"""Launches further apart than this wait for something else than the host's own work."""
_LAUNCHES = (
    "cudaLaunchKernel",
    "cuLaunchKernel",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "cudaLaunchCooperativeKernel",
)
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
_COPIES = ("cudaMemcpy_", "cuMemcpyDtoH", "cuMemcpyHtoD")


@final
@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """One call of the runtime: its name, thread, start and duration in microseconds."""

    name: str
    thread: Hashable
    start_us: float
    duration_us: float


def is_graph_launch(name: str) -> bool:
    """Whether a call launches a graph."""
    return name.startswith(_GRAPH_LAUNCHES)


def host_costs(
    calls: Iterable[RuntimeCall], session: str, engine: str = ""
) -> tuple[tuple[HostRow, ...], dict[str, float]]:
    """Medians of what launches took, flagged as taken under a profiler.

    Returns:
        Rows "dispatch", from one launch to the next of a thread that waited for nothing between,
        and "graph_launch", the call alone. For the session ``launch_call_us``, median of the calls
        that launch one kernel, where there are enough: no model has it by itself, it is a part of
        "dispatch".
    """
    launches: list[float] = []
    taken: dict[str, list[float]] = {"dispatch": [], "graph_launch": []}
    before: dict[Hashable, float] = {}
    for call in sorted(calls, key=lambda call: call.start_us):
        if call.name.startswith(_LAUNCHES):
            launches.append(call.duration_us)
            last = before.get(call.thread)
            if last is not None and call.start_us - last < PAUSE_US:
                taken["dispatch"].append(call.start_us - last)
            before[call.thread] = call.start_us
        elif is_graph_launch(call.name):
            taken["graph_launch"].append(call.duration_us)
            before.pop(call.thread, None)
        elif "Synchronize" in call.name or call.name.startswith(_COPIES):
            before.pop(call.thread, None)
    rows = [
        HostRow(
            session,
            quantity,
            statistics.median(times),
            engine=engine,
            spread=_spread(times),
            flags=["profiled"],
        )
        for quantity, times in taken.items()
        if len(times) >= FEWEST and statistics.median(times) > 0
    ]
    middle = statistics.median(launches) if len(launches) >= FEWEST else 0.0
    return tuple(rows), {"launch_call_us": middle} if middle > 0 else {}


def _spread(times: list[float]) -> RepeatSpread:
    low, high = (float(x) for x in np.quantile(times, (0.05, 0.95)))
    return RepeatSpread(low, high, len(times))
