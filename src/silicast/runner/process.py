"""Another process that answers lines; it can be killed, and a sealed one reads no file."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, final

from silicast.runner.lines import Line
from silicast.runner.replies import Replies
from silicast.runner.worker import Done, LineBatch, Start, received, send


@final
class AnswerProcess:
    """A process of :mod:`silicast.runner.worker`, and the piece of work that it has."""

    def __init__(self, start: Start) -> None:
        self.piece: int | None = None
        self._child = subprocess.Popen(
            [sys.executable, "-m", "silicast.runner.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._to, self._from = _open(self._child.stdin), _open(self._child.stdout)
        with suppress(BrokenPipeError):
            send(self._to, start)  # type: ignore[arg-type]

    def is_ready(self) -> bool:
        """Waits until it has started; False if it could not."""
        return received(self._from, Done) is not None  # type: ignore[arg-type]

    @property
    def handle(self) -> int:
        """What to wait on for answers."""
        return self._from.fileno()

    def give(self, piece: int, lines: Sequence[Line]) -> None:
        """Sends lines; that it died is seen where answers are read."""
        self.piece = piece
        with suppress(BrokenPipeError):
            send(self._to, LineBatch(list(lines)))  # type: ignore[arg-type]

    def has_answered(self, seconds: float) -> bool:
        """Whether answers, or its end, come within a time."""
        return bool(select.select([self.handle], [], [], seconds)[0])

    def take(self) -> Replies | None:
        """The answers to its piece; None if it died of it."""
        result = received(self._from, Done)  # type: ignore[arg-type]
        return None if result is None else result.replies()

    def died_of(self) -> str:
        """How it ended, in words."""
        status = self._child.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def end(self) -> None:
        """Kills it, whatever it does."""
        for stream in (self._to, self._from):
            with suppress(OSError):
                stream.close()
        self._child.kill()
        self._child.wait()


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
