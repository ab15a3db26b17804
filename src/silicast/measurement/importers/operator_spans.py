"""Spans of time: operators, nested, with their kernels; and when a device worked, with its gaps."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import final

from silicast.formats.source import Source
from silicast.measurement.importers.launches import LONGEST_US
from silicast.measurement.importers.recorded_calls import (
    WITHOUT_PARTS,
    NotAKernelError,
    RecordedCall,
    kernel_of,
)
from silicast.measurement.records.records import Columns

NOWHERE = -1


@final
@dataclass(frozen=True, slots=True)
class OperatorSpan:
    """One operator on one thread; start and end in any unit, the same for all."""

    start: float
    end: float
    thread: Hashable
    call: RecordedCall


@final
class OperatorSpans:
    """All spans as trees, one or more a thread.

    Attributes:
        spans: in the order of their start, threads together.
        parents: index of the span around each, :data:`NOWHERE` for none.
        tables: ``kernel`` table of each, None where it is none; reasons: why not.
    """

    def __init__(self, spans: Sequence[OperatorSpan]) -> None:
        self.spans = sorted(spans, key=lambda span: (span.start, -span.end))
        self.parents: list[int] = []
        self.tables: list[Columns | None] = []
        self.reasons: list[str] = []
        self._starts: dict[Hashable, tuple[list[float], list[int]]] = {}
        self._nest()
        self._read()

    def _nest(self) -> None:
        open_: dict[Hashable, list[int]] = {}
        for index, span in enumerate(self.spans):
            stack = open_.setdefault(span.thread, [])
            while stack and self.spans[stack[-1]].end <= span.start:
                stack.pop()
            self.parents.append(stack[-1] if stack else NOWHERE)
            stack.append(index)
            starts, indices = self._starts.setdefault(span.thread, ([], []))
            starts.append(span.start)
            indices.append(index)

    def _read(self) -> None:
        """Tables of all spans; those that stand for their parts only where no part is read."""
        tables_by_call: dict[str, tuple[Columns | None, str]] = {}
        for span in self.spans:
            key = repr(span.call)
            if key not in tables_by_call:
                tables_by_call[key] = _table(span.call)
            table, reason = tables_by_call[key]
            self.tables.append(table)
            self.reasons.append(reason)
        with_parts = set()
        for index in range(len(self.spans) - 1, -1, -1):
            if index in with_parts and self.spans[index].call.operator in WITHOUT_PARTS:
                self._reject(index, "counted by its parts")
            if self.tables[index] is not None or index in with_parts:
                with_parts.add(self.parents[index])
        # an operator that calls itself, or another name of it, on the same sizes is one kernel
        for index in [
            index
            for index, parent in enumerate(self.parents)
            if parent != NOWHERE and self.tables[index] == self.tables[parent] is not None
        ]:
            self._reject(index, "a part of the operator around it")

    def _reject(self, index: int, reason: str) -> None:
        self.tables[index], self.reasons[index] = None, reason

    def owner(self, index: int) -> int:
        """The innermost span that is a kernel's, from this one outwards."""
        while index != NOWHERE and self.tables[index] is None:
            index = self.parents[index]
        return index

    def at(self, thread: Hashable, time: float) -> int:
        """The innermost span of a thread that holds a moment."""
        starts, indices = self._starts.get(thread, ([], []))
        position = bisect_right(starts, time) - 1
        index = indices[position] if position >= 0 else NOWHERE
        while index != NOWHERE and self.spans[index].end < time:
            index = self.parents[index]
        return index

    def own_times(self) -> list[float]:
        """Duration of each span without the spans in it."""
        self_times = [span.end - span.start for span in self.spans]
        for span, parent in zip(self.spans, self.parents, strict=True):
            if parent != NOWHERE:
                self_times[parent] -= span.end - span.start
        return self_times


def _table(call: RecordedCall) -> tuple[Columns | None, str]:
    try:
        return kernel_of(call), ""
    except NotAKernelError as error:
        return None, str(error)


TICK_US = 0.01
"""Below this two times are the same: tools round."""


@final
@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """A kernel or a transfer on a device.

    Attributes:
        start_us, took_us: by the tool's clock.
        stream: that it ran on; None = not recorded. row: its number in the file.
    """

    start_us: float
    took_us: float
    stream: Hashable
    row: int


@final
@dataclass(frozen=True)
class DeviceTimes:
    """How a device spent the time from its first kernel to the end of the last, us.

    Attributes:
        idle_us: nothing ran; busy_us: anything did.
        overlap_us: kernels ran beside others of their own stream; overlap: the two rows of the
            longest such time, "" = none.
    """

    idle_us: float
    busy_us: float
    overlap_us: float
    overlap: str


def device_times(spans: Sequence[DeviceSpan], source: Source, field: str) -> DeviceTimes:
    """What at least one span of a device says.

    Raises:
        SilicastError: a start that is no time, or a gap that no run has; names the row.
    """
    for span in spans:
        if not math.isfinite(span.start_us) or span.start_us < 0.0:
            hint = "a start is a number of at least 0: was the clock set back?"
            raise source.error(f"row {span.row} starts at {span.start_us} us", field, hint)
    order = sorted(spans, key=lambda span: (span.start_us, span.took_us))
    idle, until = 0.0, order[0].start_us
    for span in order:
        gap = span.start_us - until
        if gap > LONGEST_US:
            hint = "no run waits for an hour between two kernels: is the unit right?"
            raise source.error(
                f"nothing runs for {gap / 1e6:.3g} s before row {span.row}", field, hint
            )
        idle += max(gap, 0.0)
        until = max(until, span.start_us + span.took_us)
    return DeviceTimes(idle, until - order[0].start_us - idle, *_overlap(order))


def _overlap(order: Sequence[DeviceSpan]) -> tuple[float, str]:
    """Time in which kernels ran beside others of their stream, and where it is the longest."""
    before: dict[Hashable, DeviceSpan] = {}
    total, longest, where = 0.0, 0.0, ""
    for span in order:
        if span.stream is None:
            continue
        other = before.get(span.stream)
        end = span.start_us + span.took_us
        if other is not None:
            other_end = other.start_us + other.took_us
            both = min(other_end, end) - span.start_us
            if both > TICK_US:
                total += both
                if both > longest:
                    longest, where = both, f"rows {other.row} and {span.row}"
            if other_end > end:
                continue
        before[span.stream] = span
    return total, where
