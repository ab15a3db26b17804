"""A predicted timeline in the Trace Event Format, which ui.perfetto.dev and Chrome open.

Viewers keep whole nanoseconds, and turn a beginning and a duration into them each on its own: two
neighbours in picoseconds would overlap, and Perfetto drops what overlaps. So times are rounded to
nanoseconds here, ends rather than durations; ``args`` hold the exact durations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from silicast.composition.timeline.trace_events import (
    COMMUNICATION,
    HOST,
    Arrow,
    PredictedTimeline,
    Slice,
    TraceSpan,
    Track,
)

Event = dict[str, Any]

PICOSECONDS_PER_NS = 1_000
NANOSECONDS_PER_US = 1_000
CATEGORIES = {COMMUNICATION: "communication"}
"""Phase -> the field that only such events need."""


def trace_document(trace: PredictedTimeline) -> dict[str, Any]:
    """The whole document: ``traceEvents`` and what a reader must know of them."""
    processes, threads = _numbers(trace)
    events = _names(processes, threads)
    order = sorted(
        range(len(trace.slices)),
        key=lambda i: (
            processes[trace.slices[i].track.process],
            threads[trace.slices[i].track],
            trace.slices[i].start_ps,
            -trace.slices[i].end_ps,
            i,
        ),
    )
    events += [_slice(trace.slices[i], processes, threads) for i in order]
    for number, arrow in enumerate(trace.arrows, start=1):
        events.append(_flow("s", number, arrow, arrow.source, processes, threads))
        events.append({**_flow("f", number, arrow, arrow.target, processes, threads), "bp": "e"})
    for sample in trace.samples:
        events.append(
            {
                "ph": "C",
                "name": sample.name,
                "pid": processes[sample.process],
                "tid": 0,
                "ts": microseconds(nanoseconds(sample.at_ps)),
                "args": dict(sample.values),
            }
        )
    events += _spans(trace.spans, processes)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "title": trace.title,
            "total_ps": trace.total_ps,
            "note": "predicted, not measured",
            **trace.about,
        },
    }


def nanoseconds(picoseconds: int) -> int:
    """The nearest nanosecond.

    >>> nanoseconds(1_499), nanoseconds(1_500)
    (1, 2)
    """
    return (picoseconds + PICOSECONDS_PER_NS // 2) // PICOSECONDS_PER_NS


def microseconds(whole_ns: int) -> float:
    """Nanoseconds as microseconds, such that a viewer finds them again, by rounding as by cutting.

    >>> microseconds(1_234_567), int(microseconds(1_001) * 1000)
    (1234.567, 1001)
    """
    value = whole_ns / NANOSECONDS_PER_US
    while int(value * NANOSECONDS_PER_US) < whole_ns:
        value = math.nextafter(value, math.inf)
    return value


def _numbers(trace: PredictedTimeline) -> tuple[dict[str, int], dict[Track, int]]:
    """Process and thread numbers, the host first; threads in the order of their names."""
    tracks = sorted({each.track for each in trace.slices}, key=_rank)
    names = dict.fromkeys(track.process for track in tracks)
    names |= dict.fromkeys(sample.process for sample in trace.samples)
    names |= dict.fromkeys(span.process for span in trace.spans)
    processes = {name: number for number, name in enumerate(names, start=1)}
    threads: dict[Track, int] = {}
    for track in tracks:
        used = sum(other.process == track.process for other in threads)
        threads[track] = used + 1
    return processes, threads


def _rank(track: Track) -> tuple[bool, str, int, str]:
    """The host's tracks first; of a device layers, streams, communication."""
    indices = ("engine", "launches", "steps and layers", "stream", COMMUNICATION)
    index = next(
        (i for i, name in enumerate(indices) if track.thread.startswith(name)), len(indices)
    )
    return (track.process != HOST, track.process, index, track.thread)


def _names(processes: Mapping[str, int], threads: Mapping[Track, int]) -> list[Event]:
    """What processes and threads are called, and their order."""
    events: list[Event] = []
    for name, pid in processes.items():
        events.append(_meta("process_name", pid, 0, {"name": name}))
        events.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
    for track, tid in threads.items():
        pid = processes[track.process]
        events.append(_meta("thread_name", pid, tid, {"name": track.thread}))
        events.append(_meta("thread_sort_index", pid, tid, {"sort_index": tid}))
    return events


def _meta(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slice(each: Slice, processes: Mapping[str, int], threads: Mapping[Track, int]) -> Event:
    start, end = nanoseconds(each.start_ps), nanoseconds(each.end_ps)
    return {
        "ph": "X",
        "name": each.name,
        "cat": CATEGORIES.get(each.track.thread, each.track.thread.partition(" ")[0]),
        "pid": processes[each.track.process],
        "tid": threads[each.track],
        "ts": microseconds(start),
        "dur": microseconds(end - start),
        "args": {**each.args, "duration_ps": each.end_ps - each.start_ps},
    }


def _flow(
    phase: str,
    number: int,
    arrow: Arrow,
    at: Slice,
    processes: Mapping[str, int],
    threads: Mapping[Track, int],
) -> Event:
    return {
        "ph": phase,
        "name": arrow.name,
        "cat": arrow.name.partition(" ")[0],
        "id": number,
        "pid": processes[at.track.process],
        "tid": threads[at.track],
        "ts": microseconds(nanoseconds(at.start_ps)),
    }


def _spans(spans: Sequence[TraceSpan], processes: Mapping[str, int]) -> list[Event]:
    """Beginnings and ends in order of time: at one moment ends first, inner before outer."""
    events: list[tuple[tuple[int, int, int], Event]] = []
    for index, span in enumerate(spans):
        start, end = nanoseconds(span.start_ps), nanoseconds(span.end_ps)
        both = {
            "cat": span.kind,
            "id": span.number,
            "name": span.name,
            "pid": processes[span.process],
            "tid": 0,
        }
        events.append(
            (
                (start, 1, index),
                {"ph": "b", **both, "ts": microseconds(start), "args": dict(span.args)},
            )
        )
        # one without a length ends after it has begun
        events.append(
            ((end, 0 if end > start else 2, -index), {"ph": "e", **both, "ts": microseconds(end)})
        )
    return [event for _, event in sorted(events, key=lambda each: each[0])]
