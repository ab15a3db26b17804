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

Advance = Callable[[int], None]
"""Called with how much is done as work goes on."""


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
def progress(title: str, count: int | None = None) -> Iterator[Advance]:
    """A progress bar on stderr, drawn once work has taken a second and only on a terminal.

    Args:
        count: how much there is to do; None where that is not known beforehand.
    """
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=count)
    starter = threading.Timer(1.0, bar.start)
    starter.daemon = True
    starter.start()
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        starter.cancel()
        bar.stop()
