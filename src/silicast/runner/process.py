"""Another process that answers lines; it can be killed, and a sealed one reads no file."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, final

from silicast.runner.lines import Line
from silicast.runner.replies import Replies
from silicast.runner.worker import Done, LineBatch, SpaceText, Start, received, send

WARM_UP = b'{"task":"kernel","device":"H100","kernel":{"op":"gemm","m":8,"n":64,"k":64}}'
"""Answered once by a process, so that no other case waits for what it loads."""


@final
class AnswerProcess:
    """A process of :mod:`silicast.runner.worker`, and the piece of work that it has.

    Attributes:
        piece: the number of that piece; is_late: the last answer was not there in time.
    """

    def __init__(self, start: Start) -> None:
        self.piece: int | None = None
        self.is_late = False
        self._since = time.monotonic()
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

    def is_warm(self) -> bool:
        """Waits until it has started and answered a case; False if it could not."""
        if not self.is_ready():
            return False
        self.give(0, [(1, WARM_UP)])
        is_warm = self.take() is not None
        self.piece = None
        return is_warm

    @property
    def handle(self) -> int:
        """What to wait on for answers."""
        return self._from.fileno()

    def give(self, piece: int, lines: Sequence[Line]) -> None:
        """Sends lines; that it died is seen where answers are read."""
        self.piece = piece
        self._send(LineBatch(list(lines)))

    def lay_out(self, space: SpaceText) -> None:
        """Sends a space; otherwise as :meth:`give`."""
        self._send(space)

    def _send(self, work: LineBatch | SpaceText) -> None:
        self._since = time.monotonic()
        with suppress(BrokenPipeError):
            send(self._to, work)  # type: ignore[arg-type]

    def has_answered(self, seconds: float) -> bool:
        """Whether answers, or its end, come within a time."""
        return bool(select.select([self.handle], [], [], seconds)[0])

    @property
    def busy_s(self) -> float:
        """Seconds since it was given its piece."""
        return time.monotonic() - self._since

    def take(self, seconds: float = 0.0) -> Replies | None:
        """The answers to its piece; None if it died of it, or is late.

        Args:
            seconds: after which it is late; 0 = never.
        """
        self.is_late = bool(seconds) and not self.has_answered(seconds)
        if self.is_late or self._from.closed:
            return None
        result = received(self._from, Done)  # type: ignore[arg-type]
        return None if result is None else result.replies()

    def died_of(self) -> str:
        """How it ended, in words."""
        status = self._child.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def kill(self) -> None:
        """Kills it, whatever it does; who waits for its answer gets none."""
        self._child.kill()

    def end(self) -> None:
        """Kills it and frees what it holds."""
        for stream in (self._to, self._from):
            with suppress(OSError):
                stream.close()
        self._child.kill()
        self._child.wait()


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
