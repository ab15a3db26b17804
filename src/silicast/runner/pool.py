"""Processes that answer lines for many callers at once, each within a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import final

from silicast.runner.lines import Line
from silicast.runner.process import AnswerProcess
from silicast.runner.replies import Replied, broken, stated_id
from silicast.runner.worker import Start


class TooBusyError(Exception):
    """All processes answer, and as many callers wait as may."""


class TooSlowError(Exception):
    """An answer took longer than it may; the process that worked on it is gone."""


@final
class AnswerPool:
    """Sealed processes; calls may come from several threads.

    Args:
        count: processes; waiting: callers that may wait for one; seconds: for one answer.
        memory_bytes: of each process.
    """

    def __init__(self, count: int, waiting: int, seconds: float, memory_bytes: int) -> None:
        self._start = Start(None, [], is_sealed=True, memory_bytes=memory_bytes)
        self._seconds = seconds
        self._callers = threading.BoundedSemaphore(count + waiting)
        self._free = queue.SimpleQueue[AnswerProcess]()
        self._all: set[AnswerProcess] = set()
        self._is_ended = False
        for _ in range(count):
            self._free.put(self._new())

    def answer(self, lines: Sequence[Line]) -> list[Replied]:
        """The answers to some lines.

        Raises:
            TooBusyError, TooSlowError: there is none.
        """
        if not self._callers.acquire(blocking=False):
            raise TooBusyError
        try:
            return self._answered(self._free.get(), lines)
        finally:
            self._callers.release()

    def _answered(self, process: AnswerProcess, lines: Sequence[Line]) -> list[Replied]:
        process.give(0, lines)
        is_in_time = process.has_answered(self._seconds)
        result = process.take() if is_in_time else None
        if result is not None:
            self._free.put(process)
            return result.rows
        self._replace(process)
        if not is_in_time:
            raise TooSlowError
        message = f"the process that answered it ended with {process.died_of()}"
        return [Replied.from_reply(broken(message, stated_id(line))) for line in lines]

    def _replace(self, process: AnswerProcess) -> None:
        process.end()
        self._all.discard(process)
        if not self._is_ended:
            self._free.put(self._new())

    def _new(self) -> AnswerProcess:
        process = AnswerProcess(self._start)
        process.is_warm()
        self._all.add(process)
        return process

    def end(self) -> None:
        """Ends all processes, whatever they do."""
        self._is_ended = True
        for process in tuple(self._all):
            process.end()
