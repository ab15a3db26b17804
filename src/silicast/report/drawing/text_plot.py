"""Drawings in characters, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

HEIGHT: Final = 12
"""Lines between the axes."""
MARGIN: Final = 9
"""Columns of the numbers at the vertical axis."""
WIDEST: Final = 100


@final
@dataclass(frozen=True)
class TextPlot:
    """Draws itself at the width that there is; ``lines``: of a drawing so many columns wide."""

    lines: Callable[[int], Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(self.lines(min(options.max_width, WIDEST))))


def empty_grid(width: int) -> list[list[str]]:
    """Characters of a drawing so many columns wide: lines from above, each from the left."""
    return [[" "] * max(width - MARGIN - 2, 20) for _ in range(HEIGHT)]


def framed(
    title: str,
    grid: Sequence[Sequence[str]],
    label: Callable[[float], str],
    ticks: Iterable[tuple[int, str]],
) -> list[str]:
    """The grid with its title and axes.

    Args:
        label: of a height, from 0 to 1; ticks: column and text, from the right. A text that would
            touch the one before it is left out.
    """
    lines, last, columns = [title], len(grid) - 1, len(grid[0])
    for number, row in enumerate(grid):
        text = label((last - number) / last) if number % 3 == 0 or number == last else ""
        lines.append(f"{text:>{MARGIN}} ┤{''.join(row)}".rstrip())
    lines.append(" " * MARGIN + " └" + "─" * columns)
    start = MARGIN + 2
    axis = [" "] * (start + columns)
    free = len(axis) + 1
    for column, text in ticks:
        at = max(min(start + column - len(text) // 2, len(axis) - len(text)), 0)
        if at + len(text) < free:
            axis[at : at + len(text)] = text
            free = at
    return [*lines, "".join(axis).rstrip()]
