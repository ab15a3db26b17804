"""Processes that answer many callers of one event loop, each within a time."""

from __future__ import annotations

import asyncio
import re
from asyncio import Future, TimerHandle
from collections import deque
from collections.abc import Sequence
from typing import final

from silicast.runner.lines import Line
from silicast.runner.process import AnswerProcess
from silicast.runner.replies import Replied, broken, stated_id
from silicast.runner.worker import SpaceText, Start

AGAIN_S = 1.0
"""Seconds after which a process that could not start is started again."""
MOST_SHARED = 32
LONGEST_SHARED = 4096
SHARED_S = 1.0
"""Callers that a process answers together, bytes of the line of one, and seconds for all."""
_QUICK = re.compile(rb'"task"\s*:\s*"kernel"')

Work = Sequence[Line] | SpaceText


class TooBusyError(Exception):
    """As many callers wait as may, or none of the processes came free in time."""


class TooSlowError(Exception):
    """An answer took longer than it may; the process that worked on it is gone."""


@final
class Caller:
    """One who waits.

    Attributes:
        is_patient: waits for as long as it takes, behind all who are not.
        may_share: its line is answered together with those of others.
        running: what its work is part of; None = it waits for a process.
    """

    def __init__(self, work: Work, answer: Future[list[Replied]], *, is_patient: bool) -> None:
        self.work, self.answer, self.is_patient = work, answer, is_patient
        self.may_share = not is_patient and _is_quick(work)
        self.running: Running | None = None
        self.timer: TimerHandle | None = None


@final
class Running:
    """What a process works on, and for whom."""

    def __init__(self, process: AnswerProcess, callers: list[Caller]) -> None:
        self.process, self.callers = process, callers
        self.timer: TimerHandle | None = None

    @property
    def is_patient(self) -> bool:
        return any(caller.is_patient for caller in self.callers)


@final
class AnswerPool:
    """Sealed processes; all methods are called in one event loop.

    Kernels of callers that wait at the same time are answered together. If their process is late
    or dies, each is answered again alone, so that none suffers from another.

    Args:
        count: processes; waiting: callers that may wait for one.
        seconds: for one answer; wait_s: before it, for a process; memory_bytes: of each process.
    """

    def __init__(
        self, count: int, waiting: int, seconds: float, wait_s: float, memory_bytes: int
    ) -> None:
        self._start = Start(None, [], is_sealed=True, memory_bytes=memory_bytes)
        self._count, self._most = count, count + waiting
        self._seconds, self._wait_s = seconds, wait_s
        self._free: list[AnswerProcess] = []
        self._running: set[Running] = set()
        self._waiting: deque[Caller] = deque()
        self._patient: deque[Caller] = deque()
        self._callers = 0
        self._renewals: set[asyncio.Task[None]] = set()
        self._starting: set[AnswerProcess] = set()
        self._is_ended = False

    async def begin(self) -> None:
        """Starts the processes."""
        await asyncio.gather(*(self._renew() for _ in range(self._count)))

    def end(self) -> None:
        """Ends all processes, whatever they do."""
        self._is_ended = True
        for process in tuple(self._starting):
            process.kill()
        for running in tuple(self._running):
            self._stop(running)
        for process in self._free:
            process.end()
        self._free.clear()

    async def answer(self, work: Work, *, is_patient: bool = False) -> list[Replied]:
        """The answers to some lines, or the layout of a space; cancelling it ends the work.

        Raises:
            TooBusyError, TooSlowError: there is none.
        """
        if not is_patient and self._callers >= self._most:
            raise TooBusyError
        loop = asyncio.get_running_loop()
        caller = Caller(work, loop.create_future(), is_patient=is_patient)
        self._callers += not is_patient
        try:
            self._queue(caller).append(caller)
            if not is_patient:
                self._set_timer(caller)
            self._dispatch()
            return await caller.answer
        finally:
            self._callers -= not is_patient
            self._forget(caller)

    def _queue(self, caller: Caller) -> deque[Caller]:
        return self._patient if caller.is_patient else self._waiting

    def _set_timer(self, caller: Caller) -> None:
        if caller.timer is not None:
            caller.timer.cancel()
        loop = asyncio.get_running_loop()
        caller.timer = loop.call_later(self._wait_s, self._give_up, caller)

    def _give_up(self, caller: Caller) -> None:
        """Ends the wait of one that no process came free for."""
        if caller.running is None and not caller.answer.done():
            caller.answer.set_exception(TooBusyError())

    def _forget(self, caller: Caller) -> None:
        """Nobody waits for this answer any more; the process that works on it alone is ended."""
        if caller.timer is not None:
            caller.timer.cancel()
        running = caller.running
        if running is None:
            queue = self._queue(caller)
            if caller in queue:
                queue.remove(caller)
        elif running in self._running and all(each.answer.done() for each in running.callers):
            self._replace(running)

    def _dispatch(self) -> None:
        """Gives free processes to those who wait; one process stays for those without patience."""
        while self._free and (callers := self._next()):
            running = Running(self._free.pop(), callers)
            work: list[Line] = []
            for caller in callers:
                caller.running = running
                if isinstance(caller.work, SpaceText):
                    running.process.lay_out(caller.work)
                else:
                    work.extend(caller.work)
            if work:
                running.process.give(0, work)
            self._running.add(running)
            loop = asyncio.get_running_loop()
            loop.add_reader(running.process.handle, self._take, running)
            seconds = self._seconds if len(callers) == 1 else min(SHARED_S, self._seconds)
            running.timer = loop.call_later(seconds, self._late, running)

    def _next(self) -> list[Caller]:
        """Those whose work the next process gets together; none = nobody may have it."""
        queue = self._waiting
        while queue and queue[0].answer.done():
            queue.popleft()
        if queue:
            callers = [queue.popleft()]
            while callers[0].may_share and len(callers) < MOST_SHARED and queue:
                if not queue[0].may_share:
                    break
                callers.append(queue.popleft())
            return callers
        busy = sum(running.is_patient for running in self._running)
        if self._patient and busy < max(1, self._count - 1):
            return [self._patient.popleft()]
        return []

    def _take(self, running: Running) -> None:
        """The process has answered, or ended."""
        result = running.process.take()
        if result is None:
            self._failed(running, f"ended with {running.process.died_of()}")
            return
        self._release(running)
        self._free.append(running.process)
        start = 0
        for caller in running.callers:
            count = 1 if isinstance(caller.work, SpaceText) else len(caller.work)
            rows = result.rows[start : start + count]
            start += count
            if not caller.answer.done():
                caller.answer.set_result(rows)
        self._dispatch()

    def _late(self, running: Running) -> None:
        self._failed(running, "")

    def _failed(self, running: Running, death: str) -> None:
        """Replaces a process that is late, or died; several callers are answered again alone."""
        self._replace(running)
        if len(running.callers) > 1:
            for caller in reversed(running.callers):
                caller.may_share, caller.running = False, None
                self._waiting.appendleft(caller)
                self._set_timer(caller)
            self._dispatch()
            return
        (caller,) = running.callers
        if caller.answer.done():
            return
        if not death:
            caller.answer.set_exception(TooSlowError())
            return
        lines = [(0, None)] if isinstance(caller.work, SpaceText) else caller.work
        message = f"the process that answered it {death}"
        rows = [Replied.from_reply(broken(message, stated_id(line))) for line in lines]
        caller.answer.set_result(rows)

    def _release(self, running: Running) -> None:
        self._running.discard(running)
        asyncio.get_running_loop().remove_reader(running.process.handle)
        if running.timer is not None:
            running.timer.cancel()

    def _stop(self, running: Running) -> None:
        self._release(running)
        running.process.end()

    def _replace(self, running: Running) -> None:
        self._stop(running)
        if not self._is_ended:
            renewal = asyncio.get_running_loop().create_task(self._renew())
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def _renew(self) -> None:
        """Starts one more process."""
        while not self._is_ended:
            process = await asyncio.to_thread(self._started)
            if process is not None:
                self._free.append(process)
                self._dispatch()
                return
            await asyncio.sleep(AGAIN_S)

    def _started(self) -> AnswerProcess | None:
        """A process that has answered a case; None = it could not, or nobody needs it any more."""
        process = AnswerProcess(self._start)
        self._starting.add(process)
        is_warm = not self._is_ended and process.is_warm()
        self._starting.discard(process)
        if is_warm and not self._is_ended:
            return process
        process.end()
        return None


def _is_quick(work: Work) -> bool:
    """Whether it is one line that takes about as long as its transport.

    >>> _is_quick([(1, b'{"task": "kernel"}')]), _is_quick([(1, b'{"task": "serving"}')])
    (True, False)
    """
    if isinstance(work, SpaceText) or len(work) != 1:
        return False
    line = work[0][1]
    return line is not None and len(line) <= LONGEST_SHARED and _QUICK.search(line) is not None
