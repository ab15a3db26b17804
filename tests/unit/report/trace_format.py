"""The Trace Event Format as its viewers read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from silicast.core.errors import SilicastError
from silicast.report.drawing.trace import NANOSECONDS_PER_US, Event

NUMBER = (int, float)
FIELDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("name", str), ("pid", int), ("tid", int), ("ts", NUMBER),
)  # fmt: skip
"""Of every event, with their types."""
OWN_FIELD: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "X": ("dur", NUMBER), "C": ("args", dict), "M": ("args", dict),
    "s": ("id", int), "f": ("id", int), "b": ("id", int), "e": ("id", int),
}  # fmt: skip


def check_trace(document: Mapping[str, Any]) -> None:
    """Checks a document against the format as the viewers read it.

    Raises:
        SilicastError: a field is missing or of the wrong type, two slices of a track overlap
            without one being inside the other, or an arrow has no slice at an end.
    """
    events = document.get("traceEvents")
    if not isinstance(events, list) or not events:
        raise SilicastError("has no events", field="traceEvents")
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, event in enumerate(events):
        _check_fields(event, f"traceEvents[{number}]")
        if event["ph"] == "X":
            start = _cut(event["ts"])
            end = start + _cut(event["dur"])
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, end))
    for (pid, tid), slices in tracks.items():
        _check_nesting(slices, f"pid {pid}, tid {tid}")
    _check_arrows(events, tracks)
    _check_spans(events)


def _cut(microseconds_: float) -> int:
    """Whole nanoseconds, as viewers read them."""
    return int(microseconds_ * NANOSECONDS_PER_US)


def _check_fields(event: Any, where: str) -> None:
    if not isinstance(event, dict) or event.get("ph") not in OWN_FIELD:
        raise SilicastError("is no event of a known phase", field=where)
    for name, kind in (*FIELDS, OWN_FIELD[event["ph"]]):
        if not isinstance(event.get(name), kind) or isinstance(event.get(name), bool):
            raise SilicastError(f"{name} is {event.get(name)!r}", field=where)
    if event["ts"] < 0 or event.get("dur", 0) < 0:
        raise SilicastError("begins or ends before the trace does", field=where)
    if event["ph"] == "C" and not all(
        isinstance(value, (int, float)) for value in event["args"].values()
    ):
        raise SilicastError("a counter counts numbers", field=where)


def _check_nesting(slices: Sequence[tuple[int, int]], where: str) -> None:
    """Slices of one track lie one after the other or inside each other."""
    open_: list[int] = []
    for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_ and open_[-1] <= start:
            open_.pop()
        if open_ and end > open_[-1]:
            raise SilicastError(f"slices overlap at {start} ns", field=where)
        open_.append(end)


def _check_arrows(
    events: Sequence[Event], tracks: Mapping[tuple[int, int], Sequence[tuple[int, int]]]
) -> None:
    """Each arrow has both ends, at slices' beginnings, and none goes back in time."""
    starts = {track: {start for start, _ in slices} for track, slices in tracks.items()}
    ends: dict[int, dict[str, float]] = {}
    for event in events:
        if event["ph"] not in "sf":
            continue
        at = _cut(event["ts"])
        if at not in starts.get((event["pid"], event["tid"]), set()):
            raise SilicastError(f"arrow {event['id']} has no slice", field="traceEvents")
        ends.setdefault(event["id"], {})[event["ph"]] = event["ts"]
    for number, pair in ends.items():
        if set(pair) != {"s", "f"} or pair["f"] < pair["s"]:
            raise SilicastError(f"arrow {number} has no two ends in time", field="traceEvents")


def _check_spans(events: Sequence[Event]) -> None:
    """Spans of one number end in the reverse order of their beginnings, each with its own name."""
    open_: dict[tuple[int, str, int], list[tuple[str, float]]] = {}
    for event in events:
        if event["ph"] not in "be":
            continue
        stack = open_.setdefault((event["pid"], event["cat"], event["id"]), [])
        if event["ph"] == "b":
            stack.append((event["name"], event["ts"]))
        elif not stack or stack[-1][0] != event["name"] or stack.pop()[1] > event["ts"]:
            raise SilicastError(f"span {event['name']} has no beginning", field="traceEvents")
    if any(open_.values()):
        raise SilicastError("a span has no end", field="traceEvents")
