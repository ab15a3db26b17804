"""Drawings inside a page: bars as SVG, without scripts, fonts or anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, final

WIDTH: Final = 720.0
"""Units of a drawing's width; the page scales it."""
BAR: Final = 22.0
GAP: Final = 8.0
TEXT: Final = 12.0
CHARACTER: Final = 6.6
"""Of a small text, on average."""
LEAST_SCALE: Final = 1e-300
"""Of an axis with ticks beside zero: steps below it are no normal numbers."""
COLORS: Final = (
    "#3b6fb6", "#d98a2b", "#4f9d69", "#b5534b", "#7d6bb0", "#4ba3a8", "#a8843f", "#8a8f98",
    "#c86fa0", "#6b8f3a", "#2f4b7c", "#e0b04c", "#90604a", "#5f9ea0", "#b08bc9", "#c2513f",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class BarPiece:
    """A part of a bar: its name, its size and its words for whoever points at it."""

    name: str
    size: float
    words: str = ""


@final
@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a drawing.

    Attributes:
        label: in front of it.
        pieces: one after the other.
        start: where it begins, in the units of the sizes.
        mark: a line across it, such as a limit; 0 = none.
    """

    label: str
    pieces: Sequence[BarPiece]
    start: float = 0.0
    mark: float = 0.0


def bars(rows: Sequence[Bar], unit: str, title: str, order: Sequence[str] = ()) -> str:
    """Rows over one axis from zero on, as an SVG element.

    Args:
        unit: of the sizes, at the axis.
        order: names whose colours several drawings share.
        title: for those who cannot see it.
    """
    left = max(len(row.label) for row in rows) * CHARACTER + 12.0
    most = max(max(_end(row), row.mark) for row in rows) or 1.0
    scale = (WIDTH - left - 16.0) / most
    names = list(dict.fromkeys((*order, *(piece.name for row in rows for piece in row.pieces))))
    color = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    shapes, top = [], 4.0
    for row in rows:
        shapes.append(_text(left - 8.0, top + BAR * 0.68, row.label, "end"))
        at = left + row.start * scale
        for piece in row.pieces:
            wide = piece.size * scale
            words = escape(f"{piece.name}: {piece.words}" if piece.words else piece.name)
            shapes.append(
                f'<rect x="{at:.1f}" y="{top:.1f}" width="{max(wide, 0.3):.1f}" height="{BAR:g}" '
                f'fill="{color[piece.name]}"><title>{words}</title></rect>'
            )
            if wide > len(piece.name) * CHARACTER + 6.0:
                shapes.append(_text(at + wide / 2, top + BAR * 0.68, piece.name, "middle", "#fff"))
            at += wide
        if row.mark:
            x = left + row.mark * scale
            shapes.append(_line(x, top - 3.0, x, top + BAR + 3.0, "#b00020", 2.0))
        top += BAR + GAP
    shapes.append(_axis(left, top, most, scale, unit))
    height = top + 34.0
    shown = {
        piece.name
        for row in rows
        for piece in row.pieces
        if piece.size * scale <= len(piece.name) * CHARACTER + 6.0
    }
    key, height = _key([name for name in names if name in shown], color, height)
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(shapes)}{key}</svg>"
    )


def interval(estimate: float, p05: float, p95: float, most: float) -> str:
    """An estimate with its interval on a short axis from zero to ``most``, as an SVG element."""
    wide, high = 150.0, 14.0
    scale = (wide - 6.0) / (most or 1.0)
    low_x, high_x, x = (3.0 + value * scale for value in (p05, p95, estimate))
    return (
        f'<svg class="interval" viewBox="0 0 {wide:g} {high:g}" aria-hidden="true">'
        f"{_line(3.0, 7.0, wide - 3.0, 7.0, '#d8dce2', 1.0)}"
        f'<rect x="{low_x:.1f}" y="4" width="{max(high_x - low_x, 1.0):.1f}" height="6" '
        f'fill="#9db9de"/><circle cx="{x:.1f}" cy="7" r="3.4" fill="#1f4e8c"/></svg>'
    )


@final
@dataclass(frozen=True, slots=True)
class Point:
    """A point of :func:`scatter` with the ends of its intervals: (estimate, p05, p95) each."""

    label: str
    x: tuple[float, float, float]
    y: tuple[float, float, float]


def scatter(points: Sequence[Point], across: str, up: str, *, joined: bool = False) -> str:
    """Points with intervals on axes from zero on, as an SVG element.

    Args:
        joined: by a line, in one colour.
    """
    left, top, wide, high = 52.0, 10.0, WIDTH - 80.0, 280.0
    most = [1.1 * max(max(getattr(point, way)) for point in points) or 1.0 for way in ("x", "y")]

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / most[0] * wide, top + high - y / most[1] * high

    shapes = [
        _line(left, top + high, left + wide, top + high, "#444", 1.0),
        _line(left, top, left, top + high, "#444", 1.0),
    ]
    for tick in _ticks(most[0]):
        x, y = at(tick, 0.0)
        shapes += [_line(x, y, x, y + 4.0, "#444", 1.0), _text(x, y + 17.0, f"{tick:g}", "middle")]
    for tick in _ticks(most[1]):
        x, y = at(0.0, tick)
        shapes += [
            _line(x, y, x + wide, y, "#e3e6eb", 1.0),
            _text(x - 6.0, y + 4.0, f"{tick:g}", "end"),
        ]
    taken: list[tuple[float, float, float]] = []
    ends = [(at(point.x[1], point.y[0]), at(point.x[2], 0.0)[0]) for point in points]
    across_bars = [(x, y + TEXT / 2.0, last - x) for (x, y), last in ends]
    for number, point in enumerate(points):
        color = COLORS[0 if joined else number % len(COLORS)]
        x, y = at(point.x[0], point.y[0])
        if joined and number:
            before = points[number - 1]
            shapes.append(_line(*at(before.x[0], before.y[0]), x, y, color, 1.0))
        shapes.append(_line(*at(point.x[1], point.y[0]), *at(point.x[2], point.y[0]), color, 1.5))
        shapes.append(_line(*at(point.x[0], point.y[1]), *at(point.x[0], point.y[2]), color, 1.5))
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')
        others = [bar for index, bar in enumerate(across_bars) if index != number]
        spot = _free_spot(x, y, point.label, [*taken, *others])
        taken.append(spot)
        shapes.append(_text(spot[0], spot[1], point.label, "start", color))
    shapes.append(_text(left + wide, top + high + 32.0, across, "end"))
    shapes.append(_text(left + 6.0, top + 10.0, up, "start"))
    height = top + high + 40.0
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escape(up)} over {escape(across)}">{"".join(shapes)}</svg>'
    )


def _free_spot(
    x: float, y: float, label: str, taken: Sequence[tuple[float, float, float]]
) -> tuple[float, float, float]:
    """Where a point's label covers no other: left end, base line and width.

    >>> first = _free_spot(50.0, 50.0, "a", [])
    >>> _free_spot(51.0, 50.0, "b", [first])[1] > first[1]
    True
    """
    wide = len(label) * CHARACTER
    spots = [
        (x + 7.0, y + step * TEXT * side - 6.0 + (step > 0) * 4.0, wide)
        for step in range(8)
        for side in (1.4, -1.4)
    ]
    spots = [(x + 7.0, y - 6.0, wide), (x + 7.0, y + TEXT + 4.0, wide), *spots]

    def is_free(spot: tuple[float, float, float]) -> bool:
        left, base, _ = spot
        return all(
            left + wide < other or other + size < left or abs(base - line) > TEXT
            for other, line, size in taken
        )

    return next((spot for spot in spots if is_free(spot)), spots[0])


def _end(row: Bar) -> float:
    return row.start + sum(piece.size for piece in row.pieces)


def _axis(left: float, top: float, most: float, scale: float, unit: str) -> str:
    shapes = [_line(left, top, left + most * scale, top, "#444", 1.0)]
    for tick in _ticks(most):
        x = left + tick * scale
        shapes += [
            _line(x, top, x, top + 4.0, "#444", 1.0),
            _text(x, top + 17.0, f"{tick:g}", "middle"),
        ]
    shapes.append(_text(left - 8.0, top + 17.0, unit, "end"))
    return "".join(shapes)


def _ticks(most: float) -> list[float]:
    """Round numbers from zero to ``most``.

    >>> _ticks(1.07), _ticks(82.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 20.0, 40.0, 60.0, 80.0])
    """
    if most < LEAST_SCALE:
        return [0.0]
    step = 1.0
    while step > most / 4.0:
        step /= 10.0
    for factor in (2.0, 2.5, 2.0) * 40:
        if most / step <= 6.0:
            break
        step *= factor
    return [float(f"{number * step:.6g}") for number in range(int(most / step + 1e-9) + 1)]


def _key(names: Sequence[str], color: dict[str, str], top: float) -> tuple[str, float]:
    """Colours of pieces that are too narrow for their names, and where the key ends."""
    shapes, x = [], 4.0
    for name in names:
        wide = len(name) * CHARACTER + 26.0
        if x + wide > WIDTH:
            x, top = 4.0, top + 18.0
        shapes.append(
            f'<rect x="{x:.1f}" y="{top - 10.0:.1f}" width="10" height="10" fill="{color[name]}"/>'
        )
        shapes.append(_text(x + 14.0, top, name, "start"))
        x += wide
    return "".join(shapes), top + (10.0 if names else -6.0)


def _text(x: float, y: float, text: str, anchor: str, fill: str = "#333") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" '
        f'font-size="{TEXT:g}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
        f'stroke-width="{width:g}"/>'
    )
