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


@final
@dataclass(frozen=True)
class HostCosts:
    """What the host spent.

    Attributes:
        rows: "dispatch", from one launch to the next of a thread that waited for nothing between;
            "graph_launch", the call alone. Flagged as taken under a profiler.
        launch_call_us: median of the calls that launch one kernel, 0 = too few. No model has it
            by itself: it is a part of "dispatch".
    """

    rows: tuple[HostRow, ...]
    launch_call_us: float

    @property
    def noted(self) -> dict[str, float]:
        """What a session keeps of it."""
        return {"launch_call_us": self.launch_call_us} if self.launch_call_us > 0 else {}


def host_costs(calls: Iterable[RuntimeCall], session: str, engine: str = "") -> HostCosts:
    """Medians of what launches took."""
    by_thread: dict[Hashable, list[RuntimeCall]] = {}
    for call in calls:
        by_thread.setdefault(call.thread, []).append(call)
    launches: list[float] = []
    taken: dict[str, list[float]] = {"dispatch": [], "graph_launch": []}
    for thread in by_thread.values():
        last: RuntimeCall | None = None
        for call in sorted(thread, key=lambda call: call.start_us):
            if is_launch(call.name):
                launches.append(call.duration_us)
                if last is not None and call.start_us - last.start_us < PAUSE_US:
                    taken["dispatch"].append(call.start_us - last.start_us)
                last = call
            elif is_graph_launch(call.name):
                taken["graph_launch"].append(call.duration_us)
                last = None
            elif _waits(call.name):
                last = None
    rows = [
        HostRow(
            session, quantity, statistics.median(times), engine=engine,
            spread=_spread(times), flags=["profiled"],
        )
        for quantity, times in taken.items()
        if len(times) >= FEWEST and statistics.median(times) > 0
    ]  # fmt: skip
    middle = statistics.median(launches) if len(launches) >= FEWEST else 0.0
    return HostCosts(tuple(rows), middle)


def _spread(times: list[float]) -> Spread:
    low, high = (float(x) for x in np.quantile(times, (0.05, 0.95)))
    return Spread(low, high, len(times))
