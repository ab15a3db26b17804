"""The predicted timeline as slices on tracks, arrows from launches to kernels, and counters.

Whoever predicts a pass describes it here; :mod:`silicast.report.drawing.trace` writes it for a
viewer.
Times are whole picoseconds from the first moment of the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from silicast.workload.graphs.op import Dim, Op

HOST = "host"
ENGINE, LAUNCHES = "engine", "launches"
LAYERS, COMMUNICATION = "steps and layers", "communication"
MANY = 8
"""Lengths of sequences up to which each is written out."""


@final
@dataclass(frozen=True, slots=True)
class Track:
    """Where slices lie one after the other, or inside each other.

    Attributes:
        process: the host, or a device; thread: a stream, or another line of it.
    """

    process: str
    thread: str


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Something that takes time; ``args`` say more of it."""

    track: Track
    name: str
    start_ps: int
    end_ps: int
    args: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Arrow:
    """From a launch to the kernel that it launched, or a message; ``name`` says what it is."""

    source: Slice
    target: Slice
    name: str = "launch"


@final
@dataclass(frozen=True, slots=True)
class CounterSample:
    """Values of a counter from a moment on."""

    process: str
    name: str
    at_ps: int
    values: Mapping[str, float]


@final
@dataclass(frozen=True, slots=True)
class TraceSpan:
    """Something that takes time beside others of its kind, on no track of its own: a request.

    Attributes:
        process: under which it is drawn; ``kind``: name of the group.
        number: of the thing; spans of one number nest, those that lie in it after it.
    """

    process: str
    kind: str
    number: int
    name: str
    start_ps: int
    end_ps: int
    args: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class PredictedTimeline:
    """A predicted timeline.

    Attributes:
        title: what ran.
        spans: outer ones before those inside.
        total_ps: its end; no slice ends later.
        about: what to know of it.
    """

    title: str
    slices: tuple[Slice, ...]
    arrows: tuple[Arrow, ...]
    samples: tuple[CounterSample, ...]
    total_ps: int
    about: Mapping[str, Any] = field(default_factory=dict)
    spans: tuple[TraceSpan, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class TraceStretch:
    """A stretch of a timeline, and its end."""

    slices: list[Slice]
    arrows: list[Arrow]
    samples: list[CounterSample]
    end_ps: int

    def then(self, other: TraceStretch) -> TraceStretch:
        """Two timelines one after the other."""
        return TraceStretch(
            self.slices + other.slices,
            self.arrows + other.arrows,
            self.samples + other.samples,
            max(self.end_ps, other.end_ps),
        )


def stream_name(number: int) -> str:
    """The track of a stream of the device."""
    return f"stream {number}"


def in_layers(
    track: Track, pieces: Iterable[tuple[str, int, int]], least_ps: int = 0
) -> list[Slice]:
    """Neighbouring pieces of equal names as one slice, none before the one before it has ended.

    Args:
        pieces: (layer, start, end) of kernels in their order.
        least_ps: where the first may begin.
    """
    items: list[tuple[str, int, int]] = []
    for name, start, end in pieces:
        if items and items[-1][0] == name:
            _, first, last = items[-1]
            items[-1] = (name, first, max(last, end))
        else:
            reached = items[-1][2] if items else least_ps
            items.append((name, max(start, reached), max(end, start, reached)))
    return [Slice(track, *piece) for piece in items]


def sizes(
    op: Op, symbols: Mapping[str, int], lengths: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Dimensions of an op as numbers.

    Args:
        symbols: values of those that only the batch knows.
        lengths: the same of those that differ by sequence.
    """
    return {name: _size(dim, symbols, lengths) for name, dim in op.dims}


def _size(dim: Dim, symbols: Mapping[str, int], lengths: Mapping[str, Sequence[int]]) -> Any:
    if isinstance(dim, tuple):
        return summary(dim)
    if isinstance(dim, int):
        return dim
    name = dim if isinstance(dim, str) else dim.symbol
    if name in lengths:
        return summary(lengths[name])
    if name not in symbols:
        return str(name)
    return symbols[name] if isinstance(dim, str) else int(dim.evaluate(symbols[name]))


def summary(values: Sequence[int]) -> Any:
    """Lengths of sequences: a number, a short list, or how many there are from where to where.

    >>> summary([5]), summary([5, 6]), summary(range(100))
    (5, [5, 6], '100 from 0 to 99')
    """
    if len(values) == 1:
        return int(values[0])
    if len(values) <= MANY:
        return [int(value) for value in values]
    low, high = int(min(values)), int(max(values))
    return f"{len(values)} of {low}" if low == high else f"{len(values)} from {low} to {high}"
