"""What a run of suites takes on this machine, from what each took on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import final

import msgspec

from silicast.core.decode import Strict
from silicast.core.files import write_atomically

COSTS = Path(__file__).with_name("costs.json")
"""Written by ``python -m benchmarks.speed_scorecard``, and by every run that is committed."""

QUICK_S = 180.0
"""CPU seconds that a suite may take and still be run whenever something under it changes."""

TRIALS = 5
"""Of the reference work: the quickest is the least disturbed."""


@final
class Cost(Strict, frozen=True):
    """CPU seconds that a suite took, its tables read and two sizes scored.

    Attributes:
        sample_rows: the limit of the sample.
        sample_s: what the sample took.
        rows: rows of all metrics.
        all_s: what they took.
        extrapolated: from a larger sample, as all would have taken too long.
    """

    sample_rows: int
    sample_s: float
    rows: int
    all_s: float
    extrapolated: bool = False

    def seconds(self, limit: int | None) -> float:
        """What a run takes, a straight line between the two sizes; all never less than a sample.

        >>> cost = Cost(sample_rows=100, sample_s=2.0, rows=1100, all_s=12.0)
        >>> cost.seconds(None), cost.seconds(600), cost.seconds(10), cost.seconds(5000)
        (12.0, 7.0, 2.0, 12.0)
        """
        every_s = max(self.all_s, self.sample_s)
        if limit is None or self.rows <= self.sample_rows:
            return every_s
        share = (limit - self.sample_rows) / (self.rows - self.sample_rows)
        return self.sample_s + min(max(share, 0.0), 1.0) * (every_s - self.sample_s)


@final
class Costs(Strict, frozen=True):
    """Of all suites, measured on one machine.

    Attributes:
        reference_s: what :func:`reference_s` took there, at the same time.
        suites: by name.
    """

    reference_s: float
    suites: Mapping[str, Cost]


@cache
def costs() -> Costs:
    """What is on record."""
    return msgspec.json.decode(COSTS.read_bytes(), type=Costs)


def is_quick(name: str, within_s: float = QUICK_S) -> bool:
    """Whether a suite takes at most so many CPU seconds; one that was never timed is not."""
    cost = costs().suites.get(name)
    return cost is not None and cost.all_s <= within_s


_WRITING = threading.Lock()


def record(name: str, rows: int, cpu_s: float) -> None:
    """Notes what a whole run of a suite took, at the speed of the machine of the record."""
    with _WRITING:
        last = costs()
        every_s = float(f"{cpu_s * last.reference_s / reference_s():.3g}")
        earlier = last.suites.get(name, Cost(rows, every_s, rows, every_s))
        cost = msgspec.structs.replace(earlier, rows=rows, all_s=every_s, extrapolated=False)
        suites = dict(sorted({**last.suites, name: cost}.items()))
        content = msgspec.json.encode(msgspec.structs.replace(last, suites=suites))
        write_atomically(COSTS, msgspec.json.format(content, indent=1) + b"\n")
        costs.cache_clear()


def expected_s(names: Sequence[str], limit: int | None = None) -> dict[str, float | None]:
    """Seconds that each suite will take on this machine, by name; None of one never timed."""
    measured = costs()
    slower = reference_s() / measured.reference_s
    of_each = {name: measured.suites.get(name) for name in names}
    return {name: slower * cost.seconds(limit) if cost else None for name, cost in of_each.items()}


def reference_s() -> float:
    """CPU seconds of a fixed piece of work that is as scoring is: arrays and small objects."""
    return min(_reference_trial() for _ in range(TRIALS))


def _reference_trial() -> float:
    import numpy as np

    start = time.process_time()
    values = np.linspace(1.0, 2.0, 20_000)
    for _ in range(40):
        values = np.sqrt(values * values + np.log(values))
    seen = dict[tuple[int, str], float]()
    for number in range(20_000):
        seen[number % 997, str(number % 31)] = number * 0.5
    return time.process_time() - start
