"""Where output goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH_WITHOUT_TERMINAL = 100
"""Columns where stdout is a file or a pipe, and no COLUMNS of the environment says how many."""
LEAST_WIDTH = 20

NARROW = 60
"""Columns of a terminal below which progress is told in numbers alone."""

LOOK_S = 0.2
"""Between two looks at how far something is."""

Advance = Callable[[int], None]
"""Called with how much is done as work goes on."""


def write_json(value: Any) -> None:
    """A result as indented JSON on stdout."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode("utf-8") + "\n")


_STEERING = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that would steer a terminal, or turn its text around: names of files hold any."""


def harmless(text: str) -> str:
    r"""Text in which control characters are written out; tabs and ends of lines stay.

    >>> harmless("a\x1b[2Jb.toml")
    'a\\x1b[2Jb.toml'
    """
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def write_lines(lines: Iterable[str]) -> None:
    """Lines on stdout that are copied from there: never wrapped."""
    sys.stdout.writelines(f"{harmless(line)}\n" for line in lines)


PLAIN = str.maketrans(
    {
        "─": "-", "–": "-", "µ": "u", "…": "...", "±": "+-", "×": "x", "·": ".", "┤": "|", "└": "+",
        "┊": ":", "◆": "*", "│": "|", "├": "+", "█": "#", "→": "->", "≤": "<=", "≥": ">=",
    }
)  # fmt: skip
"""What stands for rules and signs where the terminal has none of them."""


def has_signs() -> bool:
    """Whether stdout can write rules and signs beyond ASCII."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return encoding.startswith(("utf", "gb18030"))


@final
class _PlainStream(io.TextIOBase):
    """A stream that writes ASCII for rules and signs."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As if it had them all, so that one table says what stands for them."""
        return "utf-8"

    def write(self, text: str, /) -> int:
        return self._stream.write(text.translate(PLAIN))

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def show(*parts: RenderableType) -> None:
    """Tables and lines on stdout; coloured only where a terminal reads them."""
    from rich.console import Console

    out: Any = sys.stdout if has_signs() else _PlainStream(sys.stdout)
    if sys.stdout.isatty():
        _print_harmless(Console(file=out, highlight=False, emoji=False), parts)
        return
    text = io.StringIO()
    _print_harmless(
        Console(file=text, width=_stated_width(), highlight=False, emoji=False, no_color=True),
        parts,
    )
    for line in text.getvalue().splitlines():
        out.write(f"{line.rstrip()}\n")


def _stated_width() -> int:
    text = os.environ.get("COLUMNS", "")
    return max(int(text), LEAST_WIDTH) if text.isdecimal() else WIDTH_WITHOUT_TERMINAL


def _print_harmless(console: Console, parts: Sequence[RenderableType]) -> None:
    """Prints parts; control characters in their texts are written out."""
    from rich.segment import Segment, Segments

    for part in parts:
        shown = console.render_str(part) if isinstance(part, str) else part
        segments = [
            segment if segment.control else Segment(harmless(segment.text), segment.style)
            for segment in console.render(shown)
        ]
        console.print(Segments(segments), end="" if segments[-1:] == [Segment.line()] else "\n")


def warn(text: str) -> None:
    """Writes one line to stderr."""
    with suppress(OSError):  # where nobody can be told, the exit status still says it
        sys.stderr.write(harmless(text.rstrip("\n")) + "\n")


@final
class _ClosedStream(io.TextIOBase):
    """Stands for a stdout that was closed before we started; Python has None there."""

    def write(self, _text: str, /) -> int:
        raise OSError(errno.EBADF, "stdout is closed")


@final
class TextBytes(io.RawIOBase):
    """Takes bytes for a stream of text that has none below it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        """All of some UTF-8."""
        self._stream.write(bytes(content).decode("utf-8"))
        return len(content)


def replace_closed_streams() -> None:
    """Makes a closed stdout an error once something is written; a closed stderr takes all."""
    if sys.stdout is None:
        sys.stdout = _ClosedStream()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for good


def abandon_stdout() -> None:
    """Drops what could not be written, or Python would try once more at its exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def told_as_it_goes() -> bool:
    """Whether somebody looks on: stderr is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(
    title: str,
    count: int | None = None,
    foretold_s: Sequence[float | None] = (),
    note: Callable[[], str] = str,
) -> Iterator[Advance]:
    """A progress bar on stderr, drawn once work has taken a second and only on a terminal.

    Args:
        count: how much there is to do; None where that is not known beforehand.
        foretold_s: seconds that each of so many is expected to take, as far as is known.
        note: what else is told behind it.
    """
    if not told_as_it_goes():
        yield lambda _done: None
        return
    import threading

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from silicast.report.remaining import Remaining, RemainingTime

    console = Console(stderr=True)
    drawn = () if console.width < NARROW else (BarColumn(), TimeElapsedColumn())
    left = None if count is None else RemainingTime(Remaining(count, foretold_s))
    text = () if left is None else (TextColumn("{task.fields[left]}"),)
    columns = (
        TextColumn(title),
        MofNCompleteColumn(),
        *drawn,
        *text,
        TextColumn("{task.fields[note]}", markup=False),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(title, total=count, left=left, note="")

    def advance(done: int) -> None:
        if left is not None:
            left.report(done)
        bar.update(task, completed=done, note=note())

    starter = threading.Timer(1.0, bar.start)
    starter.daemon = True
    starter.start()
    try:
        yield advance
    finally:
        starter.cancel()
        bar.stop()


@contextmanager
def watched(title: str, count: int, done: Callable[[], int]) -> Iterator[None]:
    """The same of work that does not call back: how far it is, is looked up as it goes on.

    Args:
        done: how much is done; called from another thread.
    """
    with progress(title, count) as advance, _looking(lambda: advance(done())):
        yield


@contextmanager
def watched_from_first(title: str, done: Callable[[], int]) -> Iterator[None]:
    """As :func:`watched`, of work that may never begin: nothing is drawn before the first is done.

    Args:
        done: how much is done; called from another thread.
    """
    with ExitStack() as drawn:
        advances = list[Callable[[int], None]]()

        def look() -> None:
            if not advances and done():
                advances.append(drawn.enter_context(progress(title)))
            for advance in advances:
                advance(done())

        with _looking(look):
            yield


@contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    """Calls ``look`` from time to time from another thread; never where no terminal is."""
    if not told_as_it_goes():
        yield
        return
    import threading

    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(LOOK_S):
            look()

    watcher = threading.Thread(target=repeat, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def live_line() -> Iterator[Callable[[str], None]]:
    """A line on stderr that is drawn over and over; nothing where no terminal is."""
    if not told_as_it_goes():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(stderr=True, highlight=False)) as shown:
        yield shown.update
