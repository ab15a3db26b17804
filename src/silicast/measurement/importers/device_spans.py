"""When a device worked: gaps between kernels, and kernels that run at once on one stream."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import final

from silicast.formats.source import Source
from silicast.measurement.importers.launches import LONGEST_US

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
