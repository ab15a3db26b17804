"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH_WITHOUT_TERMINAL = 100
"""Columns where stdout is a file or a pipe: the same bytes whoever runs it."""

Advance = Callable[[int, int], None]
"""Called with (done, all) as work goes on."""


def write_json(value: Any) -> None:
    """A result as indented JSON on stdout."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode("utf-8") + "\n")


def show(*parts: RenderableType) -> None:
    """Tables and lines on stdout; coloured only where a terminal reads them."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console(highlight=False, emoji=False).print(*parts, sep="\n")
        return
    text = io.StringIO()
    Console(
        file=text, width=WIDTH_WITHOUT_TERMINAL, highlight=False, emoji=False, no_color=True
    ).print(*parts, sep="\n")
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def warn(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(text.rstrip("\n") + "\n")


@contextmanager
def progress(title: str) -> Iterator[Advance]:
    """A progress bar on stderr, drawn once work has taken a second and only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _all: None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), Remaining())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)
    visible_at = time.monotonic() + 1.0

    def advance(done: int, count: int) -> None:
        bar.update(task, completed=done, total=count)
        if not bar.live.is_started and time.monotonic() >= visible_at:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
