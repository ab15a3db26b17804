"""Counters of a server as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from typing import final

HEAD = (
    "# HELP silicast_requests_total Requests by route and status.\n"
    "# TYPE silicast_requests_total counter\n"
)
SWEEPS = (
    "# HELP silicast_sweeps_running Sweeps that run.\n"
    "# TYPE silicast_sweeps_running gauge\n"
    "silicast_sweeps_running {}\n"
)


@final
class RequestCounts:
    """Requests by route and status, since the server started; all in one thread."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()

    def add(self, route: str, status: int) -> None:
        """Counts a request."""
        self._counts[route, status] += 1

    def text(self, *, running_sweeps: int) -> str:
        """All counters, in the text format of Prometheus."""
        rows = (
            f'silicast_requests_total{{route="{route}",status="{status}"}} {count}\n'
            for (route, status), count in sorted(self._counts.items())
        )
        return HEAD + "".join(rows) + SWEEPS.format(running_sweeps)
