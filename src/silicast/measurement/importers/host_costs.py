"""What the host spent on launching, as a profiler of the runtime's calls saw it."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.measurement.records import HostRow, Spread

FEWEST = 8
"""Calls from which on a median is worth a row."""
PAUSE_US = 1000.0
"""Launches further apart than this wait for something else than the host's own work."""


@final
@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """One call of the runtime: its name, thread, start and duration in microseconds."""

    name: str
    thread: Hashable
    start_us: float
    duration_us: float


def is_launch(name: str) -> bool:
    """Whether a call launches one kernel."""
    return name.startswith(("cudaLaunchKernel", "cuLaunchKernel", "hipLaunchKernel",
                            "hipExtModuleLaunchKernel", "cudaLaunchCooperativeKernel"))  # fmt: skip


def is_graph_launch(name: str) -> bool:
    """Whether a call launches a graph."""
    return name.startswith(("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"))


def _waits(name: str) -> bool:
    return "Synchronize" in name or name.startswith(("cudaMemcpy_", "cuMemcpyDtoH", "cuMemcpyHtoD"))


def host_rows(calls: Iterable[RuntimeCall], session: str, engine: str = "") -> list[HostRow]:
    """Medians of what launches took, flagged as taken under a profiler.

    ``launch_call`` is the call alone, ``graph_launch`` that of a graph, ``dispatch`` from one
    launch to the next of a thread that waited for nothing between.
    """
    by_thread: dict[Hashable, list[RuntimeCall]] = {}
    for call in calls:
        by_thread.setdefault(call.thread, []).append(call)
    taken: dict[str, list[float]] = {"launch_call": [], "graph_launch": [], "dispatch": []}
    for thread in by_thread.values():
        last: RuntimeCall | None = None
        for call in sorted(thread, key=lambda call: call.start_us):
            if is_launch(call.name):
                taken["launch_call"].append(call.duration_us)
                if last is not None and call.start_us - last.start_us < PAUSE_US:
                    taken["dispatch"].append(call.start_us - last.start_us)
                last = call
            elif is_graph_launch(call.name):
                taken["graph_launch"].append(call.duration_us)
                last = None
            elif _waits(call.name):
                last = None
    return [
        HostRow(
            session, quantity, statistics.median(times), engine=engine,
            spread=_spread(times), flags=["profiled"],
        )
        for quantity, times in taken.items()
        if len(times) >= FEWEST and statistics.median(times) > 0
    ]  # fmt: skip


def _spread(times: list[float]) -> Spread:
    low, high = (float(x) for x in np.quantile(times, (0.05, 0.95)))
    return Spread(low, high, len(times))
