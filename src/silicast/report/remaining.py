"""How long work will go on: what it was expected to take, and what it took so far."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, final

FORETOLD_S = 10.0
"""Seconds of work that what was foretold counts for beside what was seen."""


class _ProgressReport(NamedTuple):
    elapsed_s: float
    done: int


@final
class Remaining:
    """The time that pieces of work have left, which sharpens as they are done.

    The pace is that of the later half of the time so far: work that takes up where an earlier run
    stopped, or that slows down, is told right after a while.

    Args:
        pieces: how many there are.
        foretold_s: seconds that each was expected to take; one of which nothing is known is
            taken to be as the others are, and all alike where nothing is known of any.
    """

    def __init__(self, pieces: int, foretold_s: Sequence[float | None] = ()) -> None:
        known_s = [each for each in foretold_s if each is not None]
        usual = sum(known_s) / len(known_s) if known_s else 1.0
        self._known = bool(known_s)
        every = foretold_s or [None] * pieces
        self._until = [0.0, *accumulate(usual if each is None else each for each in every)]
        self._reports = deque([_ProgressReport(0.0, 0)])

    def report(self, done: int, elapsed_s: float) -> None:
        """So many pieces were done after so many seconds."""
        reports = self._reports
        reports.append(_ProgressReport(elapsed_s, min(done, len(self._until) - 1)))
        while len(reports) > 2 and reports[1].elapsed_s <= elapsed_s / 2.0:
            reports.popleft()

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds from now on; None as long as nothing can be said.

        >>> alike = Remaining(4)
        >>> alike.left_s(1.0) is None
        True
        >>> alike.report(1, 2.0)
        >>> alike.left_s(2.0), alike.left_s(3.0)
        (6.0, 5.0)
        >>> Remaining(2, [30.0, 60.0]).left_s(12.0)
        78.0
        """
        first, last = self._reports[0], self._reports[-1]
        work = self._until[last.done] - self._until[first.done]
        foretold = FORETOLD_S if self._known else 0.0
        if foretold + work <= 0.0:
            return None
        pace = (foretold + last.elapsed_s - first.elapsed_s) / (foretold + work)
        begun = self._until[min(last.done + 1, len(self._until) - 1)]
        present = pace * (begun - self._until[last.done]) - (elapsed_s - last.elapsed_s)
        return pace * (self._until[-1] - begun) + max(present, 0.0)

    def per_s(self) -> float | None:
        """Pieces a second of the later half of the time so far; None as long as none is done.

        >>> remaining = Remaining(100)
        >>> remaining.report(6, 2.0)
        >>> remaining.per_s()
        3.0
        """
        first, last = self._reports[0], self._reports[-1]
        took_s = last.elapsed_s - first.elapsed_s
        return (last.done - first.done) / took_s if last.done > first.done and took_s else None


@final
class RemainingTime:
    """The time that is left as text, as of whenever it is drawn.

    Args:
        remaining: of work that begins now.
    """

    def __init__(self, remaining: Remaining) -> None:
        self._remaining, self._start_s = remaining, time.perf_counter()

    def report(self, done: int) -> None:
        """States how many pieces are done."""
        self._remaining.report(done, time.perf_counter() - self._start_s)

    def __str__(self) -> str:
        left = self._remaining.left_s(time.perf_counter() - self._start_s)
        rate = self._remaining.per_s()
        parts = [f"{roughly(left)} left" if left else "", f"{rate:.3g}/s" if rate else ""]
        return ", ".join(filter(None, parts))


def foretelling(foretold_s: Mapping[str, float | None]) -> str:
    """What a run will take, in words; "" where nothing is known of any piece.

    >>> foretelling({"gemm": 30.0, "moe": 40.0})
    'about 70 s on this machine'
    >>> foretelling({"gemm": 700.0, "mine": None}), foretelling({"mine": None})
    ('about 12 min on this machine, beside mine, of which nothing is known', '')
    """
    known_s = [each for each in foretold_s.values() if each is not None]
    if not known_s:
        return ""
    unknown = ", ".join(name for name, each in foretold_s.items() if each is None)
    beside = f", beside {unknown}, of which nothing is known" if unknown else ""
    return f"{roughly(sum(known_s))} on this machine{beside}"


def roughly(seconds: float) -> str:
    """A time that is not known better than this.

    >>> [roughly(x) for x in (2.0, 37.0, 700.0, 5400.0, 4e5)]
    ['a few seconds', 'about 40 s', 'about 12 min', 'about 1.5 h', 'about 5 days']
    """
    if seconds < 5.0:
        return "a few seconds"
    if seconds < 95.0:
        return f"about {10 * max(math.floor(seconds / 10 + 0.5), 1)} s"
    if seconds < 5370.0:
        return f"about {seconds / 60:.0f} min"
    if seconds < 172800.0:
        hours = seconds / 3600
        return f"about {hours:.1f} h" if hours < 1.95 else f"about {hours:.0f} h"
    return f"about {seconds / 86400:.0f} days"
