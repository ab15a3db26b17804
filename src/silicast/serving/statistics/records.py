"""What a simulation observed: each request's times, each step, and the gaps between tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from copy import copy
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.serving.simulation.scheduler import SimulatedRequests
from silicast.serving.traffic.requests import Requests

_COMPACT = 1 << 16
_BINS = 64
"""Parts of the time of arrivals by which gaps are kept, where a part of a run is measured."""
NANO = 1e-9


def seconds(times_ns: I64) -> F64:
    """Nanoseconds as seconds."""
    return np.multiply(times_ns, NANO, dtype=np.float64)


@final
class Gaps:
    """Times between the tokens of a sequence: values and how often each occurred."""

    def __init__(self) -> None:
        self._values, self._counts = array("q"), array("q")
        self._known: tuple[I64, I64] = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def add(self, gap_ns: int, count: int) -> None:
        """``count`` tokens that came so long after the one before."""
        self._values.append(gap_ns)
        self._counts.append(count)

    def add_each(self, gaps_ns: list[int], count: int) -> None:
        """``count`` tokens of each of so many steps."""
        self._values.extend(gaps_ns)
        self._counts.extend((count,) * len(gaps_ns))
        if len(self._values) >= max(_COMPACT, len(self._known[0])):
            self._flush()

    def table(self) -> tuple[I64, I64]:
        """Values, ascending, and counts."""
        self._flush()
        return self._known

    @staticmethod
    def union(parts: Sequence[Gaps]) -> Gaps:
        """All gaps of several."""
        union = Gaps()
        for values, counts in (part.table() for part in parts):
            union._values.frombytes(values.tobytes())
            union._counts.frombytes(counts.tobytes())
        return union

    def _flush(self) -> None:
        """Values that occurred before count together."""
        if not self._values:
            return
        values, counts = (np.array(each, dtype=np.int64) for each in (self._values, self._counts))
        values, counts = (
            np.concatenate(each) for each in zip(self._known, (values, counts), strict=True)
        )
        result, position = np.unique(values, return_inverse=True)
        self._known = result, np.bincount(position, weights=counts).astype(np.int64)
        self._values, self._counts = array("q"), array("q")


@final
class StepLog:
    """Steps of one replica, as a timeline of runs of alike steps.

    A row of several steps is a run of decode. ``prefill_tokens`` are new tokens of ``prompts``, of
    which ``past_tokens`` were there; ``blocks`` are in use when it starts, ``blocks_end`` when it
    ends; ``cached_tokens`` those of the sequences in decode before the
    first step.
    """

    COLUMNS = (
        "replica", "start_ns", "end_ns", "steps", "decoding", "prefill_tokens", "running",
        "waiting", "blocks", "blocks_end", "prompts", "past_tokens", "cached_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._numbers) // len(self.COLUMNS)

    def add(self, *row: int) -> None:
        """A step or a run, as :data:`COLUMNS` say."""
        self._numbers.extend(row)

    def table(self) -> I64:
        """Rows of :data:`COLUMNS`, shape (rows, columns)."""
        return np.array(self._numbers, dtype=np.int64).reshape(-1, len(self.COLUMNS))

    def columns(self) -> dict[str, I64]:
        """The same by name, each of shape (rows,)."""
        return dict(zip(self.COLUMNS, self.table().T, strict=True))


@final
class Records:
    """Everything observed in one simulation; int64 arrays of shape (requests,), -1 = not yet.

    Attributes:
        sent_ns: the client sends; ``arrived_ns``: its engine knows of it; ``scheduled_ns``: its
            first step starts; ``first_ns``: the client has its first token; ``done_ns``: its last.
        moving_ns: how long its cache was on the way from prefill to decode.
        replica: that served it.
        reused: prompt tokens found in a cache.
        log: steps.
        window_ns: first and last moment of the steady state, in which the requests are sent that
            count; None = the whole run counts.
        worked_ns: first and last moment of the work of devices that counts; None = as
            ``window_ns``. Where a queue grows they work long after the last request is sent.
        verified: times that a step verified the drafts of a sequence; ``accepted``: tokens that
            these brought, one each beside the drafted ones.
    """

    def __init__(self, requests: Requests, sequences: SimulatedRequests) -> None:
        count = len(requests)
        self.requests, self.sequences = requests, sequences
        self.sent_ns, self.arrived_ns, self.scheduled_ns, self.first_ns, self.done_ns = (
            np.full(count, -1, dtype=np.int64) for _ in range(5)
        )
        self.replica, self.moving_ns = (np.full(count, -1, dtype=np.int64) for _ in range(2))
        self.reused = sequences.reused
        self.log = StepLog()
        self.window_ns: tuple[int, int] | None = None
        self.worked_ns: tuple[int, int] | None = None
        bins = _BINS if requests.steady else 1
        self._bin_ns = int(requests.arrival_ns.max()) // bins + 1
        self._gaps = [Gaps() for _ in range(bins)]
        self.verified = self.accepted = self.end_ns = 0

    @property
    def answered(self) -> I64:
        """Requests that were answered, in the order they were sent."""
        done: I64 = np.flatnonzero(self.done_ns >= 0)
        return done

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether statistics count each request: all, or those sent in the window."""
        if self.window_ns is None:
            return np.ones(len(self.sent_ns), dtype=bool)
        first, last = self.window_ns
        return (self.sent_ns >= first) & (self.sent_ns < last)

    @property
    def finished(self) -> I64:
        """Requests that were answered and are measured, in the order they were sent."""
        done: I64 = np.flatnonzero((self.done_ns >= 0) & self.measured)
        return done

    @property
    def hit_rate(self) -> float:
        """Share of their prompt tokens that a prefix cache held."""
        rows = self.finished
        prompts = int(self.requests.input_tokens[rows].sum())
        return float(self.reused[rows].sum() / max(prompts, 1))

    def whole(self) -> Records:
        """The same, all of the run measured."""
        whole = copy(self)
        whole.window_ns = whole.worked_ns = None
        return whole

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """First and last moment of the work of devices that counts; None = the whole run."""
        return self.worked_ns or self.window_ns

    def forget_warm_up(self) -> None:
        """Gaps and drafts so far are not counted."""
        self._gaps = [Gaps() for _ in self._gaps]
        self.verified = self.accepted = 0

    def gaps_at(self, now_ns: int) -> Gaps:
        """Where gaps that end now are noted."""
        return self._gaps[min(now_ns // self._bin_ns, len(self._gaps) - 1)]

    @property
    def gaps(self) -> Gaps:
        """Gaps between tokens of a sequence, of all; those that ended in the window."""
        if self.window_ns is None or len(self._gaps) == 1:
            return self._gaps[0] if len(self._gaps) == 1 else Gaps.union(self._gaps)
        first, last = (round(moment / self._bin_ns) for moment in self.window_ns)
        return Gaps.union(self._gaps[first : max(last, first + 1)])

    def steps(self) -> I64:
        """Rows of the log that are measured: those that start in the span that counts."""
        table = self.log.table()
        if self.span_ns is None:
            return table
        first, last = self.span_ns
        start = table[:, StepLog.COLUMNS.index("start_ns")]
        return table[(start >= first) & (start < last)]

    def steps_by_column(self) -> dict[str, I64]:
        """The same by name, each of shape (rows,)."""
        return dict(zip(StepLog.COLUMNS, self.steps().T, strict=True))

    def ttft_s(self) -> F64:
        """Time to the first token of the finished requests, seconds."""
        rows = self.finished
        return seconds(self.first_ns[rows] - self.sent_ns[rows])

    def e2e_s(self) -> F64:
        """From sending to the last token."""
        rows = self.finished
        return seconds(self.done_ns[rows] - self.sent_ns[rows])

    def tpot_s(self) -> F64:
        """Time per output token after the first, of the finished requests with two and more."""
        rows = self.finished
        rows = rows[self.requests.output_tokens[rows] > 1]
        tokens = self.requests.output_tokens[rows] - 1
        tpot_s: F64 = (self.done_ns[rows] - self.first_ns[rows]) * 1e-9 / tokens
        return tpot_s
