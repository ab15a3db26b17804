"""Lines of a batch over processes, and the answers back in their order.

How lines are divided changes no answer. Each process has one piece of work at a time, cut so that
it takes about :data:`PIECE_S`, or up to :data:`LONG_PIECE_S` where enough lines wait, because cases
of one deployment are quicker together; what a case takes is learned by task as answers come. This
process answers alone until a batch has shown that it takes a while.
"""

from __future__ import annotations

import math
import os
import re
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from silicast.core.errors import over_limit
from silicast.runner.lines import CaseSource, Line
from silicast.runner.process import AnswerProcess
from silicast.runner.replies import Replied, Replies, broken, replies, stated_id, too_costly
from silicast.runner.worker import Start
from silicast.scenario.answer import Refusal

PIECE_S = 1.0
LONG_PIECE_S = 4.0
PIECES_LEFT = 4
"""Pieces that each process has at least before it, where a piece is longer than the shortest."""
ALONE_S = 0.5
"""Seconds of work before other processes are started."""
MOST_LINES = 4096
MOST_BYTES = 16 << 20
"""Of a piece; one line may be longer."""
MOST_AHEAD = 8
"""Pieces, for each process, that wait for one before them."""

_TASK = re.compile(rb'"task"\s*:\s*"([a-z]{1,16})"')
_TASK_WITHIN = 4096


def usable_processors() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@final
@dataclass(frozen=True)
class PointLimits:
    """What one case may use; a process that uses more is ended.

    Attributes:
        seconds: of time; memory_bytes: of address space, of a whole process; 0 = no limit.
    """

    seconds: float = 0.0
    memory_bytes: int = 0

    @staticmethod
    def from_gb(seconds: float, memory_gb: float) -> PointLimits:
        """The same with memory in units of 10^9 bytes."""
        return PointLimits(seconds, round(memory_gb * 1e9))

    def __bool__(self) -> bool:
        return bool(self.seconds or self.memory_bytes)


NO_LIMITS = PointLimits()


class CaseAnswers(Protocol):
    """Whatever answers lines."""

    def pieces(self) -> Iterator[tuple[list[Line], list[Replied]]]:
        """Lines and their answers, a piece at a time."""
        ...


@final
class CaseCost:
    """Seconds that a case is expected to take, by what its line states as task."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def estimate(self, line: Line) -> float:
        """Of one line; of a task that none has been seen of, a quarter of a piece."""
        value = _TASK.search(line[1][:_TASK_WITHIN]) if line[1] is not None else None
        task = value.group(1).decode() if value else ""
        return self._seconds.get(task, PIECE_S / 4)

    @property
    def is_known(self) -> bool:
        """Whether any case has been seen."""
        return bool(self._seconds)

    @property
    def seconds(self) -> Mapping[str, float]:
        """Task -> what a case of it takes."""
        return self._seconds

    def learn(self, result: Replies) -> None:
        """Takes note of what cases took."""
        self.note({task: spent.seconds / spent.cases for task, spent in result.spent.items()})

    def note(self, seconds: Mapping[str, float]) -> None:
        """Takes note of what a case of each task took."""
        for task, each in seconds.items():
            self._seconds[task] = (self._seconds.get(task, each) + each) / 2


@final
class LinePieces:
    """Cuts lines as they come into pieces of about equal time.

    Attributes:
        cost: what cases are expected to take.
    """

    def __init__(self, lines: CaseSource) -> None:
        self._lines, self.cost = lines, CaseCost()

    def next(self, most_s: float) -> list[Line]:
        """The next lines, as many as are there and take so long; [] if none are there."""
        lines, piece = self._lines, list[Line]()
        cost, size = 0.0, 0
        while True:
            while not lines.waiting and lines.has_more():
                lines.read()
            if not lines.waiting:
                return piece
            line = lines.waiting[0]
            cost, size = cost + self.cost.estimate(line), size + len(line[1] or b"")
            if piece and (cost > most_s or size > MOST_BYTES or len(piece) == MOST_LINES):
                return piece
            piece.append(lines.waiting.popleft())


@final
class Workers:
    """Answers the lines of a batch in their order.

    Args:
        lines: what comes.
        folder, calibrations: as of :func:`~.replies.replies`.
        count: processes; 1 = none but this one.
        limits: of a case; with them no case is answered in this process. A case that ends or
            outlasts its process is tried once more, alone, and then refused.
    """

    def __init__(
        self,
        lines: CaseSource,
        folder: Path | None,
        calibrations: Sequence[Path],
        count: int,
        limits: PointLimits = NO_LIMITS,
    ) -> None:
        self._lines, self._count, self._cut = lines, count, LinePieces(lines)
        self._folder, self._calibrations = folder, list(calibrations)
        self._limits = limits
        self._processes: list[AnswerProcess] = []
        self._pieces: dict[int, list[Line]] = {}
        self._found: dict[int, Replies] = {}
        self._given = self._next = 0

    def pieces(self) -> Iterator[tuple[list[Line], list[Replied]]]:
        """Lines and their answers, a piece at a time; no more is answered once nobody asks."""
        try:
            if not self._limits:
                yield from self._alone()
            if not self._is_over:
                self._start()
            if not self._processes and not self._is_over:
                if self._limits:
                    raise over_limit(
                        "the system starts no process that limits could hold for",
                        hint="leave the limits out, or allow more processes",
                    )
                self._count = 1
                yield from self._alone()
            while not self._is_over:
                self._give()
                yield from self._in_order()
                self._give()  # answers that were handed on make room: else all may be idle
                if not self._is_over:
                    self._wait()
        finally:
            for process in self._processes:
                process.end()

    @property
    def cost(self) -> CaseCost:
        """What cases took so far."""
        return self._cut.cost

    @property
    def _is_over(self) -> bool:
        return self._lines.ended and not self._lines.waiting and not self._pieces

    def _alone(self) -> Iterator[tuple[list[Line], list[Replied]]]:
        """Pieces that this process answers: all, or those of a batch's start."""
        busy_s = 0.0
        while not self._is_over and (self._count == 1 or busy_s < ALONE_S):
            piece = self._piece()
            if not piece:
                if self._lines.ended:
                    return
                self._lines.read()
                continue
            start = time.perf_counter()
            result = replies(piece, self._folder, self._calibrations)
            busy_s += time.perf_counter() - start
            self.cost.learn(result)
            yield piece, result.rows

    def _piece(self) -> list[Line]:
        """The next lines, as many as are there and make a piece; [] if none are there."""
        while not self._lines.waiting and self._lines.has_more():  # what waits says how long
            self._lines.read()
        return self._cut.next(self._piece_s())

    def _piece_s(self) -> float:
        """How long the next piece may take: several processes end at about the same time."""
        if not self.cost.is_known:  # these cases may take long
            return PIECE_S
        if self._count == 1:
            return LONG_PIECE_S
        waiting_s = sum(map(self.cost.estimate, self._lines.waiting))
        return min(max(waiting_s / (PIECES_LEFT * self._count), PIECE_S), LONG_PIECE_S)

    def _start(self) -> None:
        """Starts the processes; where none can be, this one goes on alone."""
        folder = None if self._folder is None else str(self._folder)
        paths = [str(path) for path in self._calibrations]
        self._shared = Start(folder, paths, memory_bytes=self._limits.memory_bytes)
        started = list[AnswerProcess]()
        with suppress(OSError):  # the system allows no more processes
            started.extend(AnswerProcess(self._shared) for _ in range(self._count))
        self._processes = [process for process in started if self._is_ready(process)]
        for process in started:
            if process not in self._processes:
                process.end()

    def _give(self) -> None:
        """Gives a piece to each process that has none."""
        for process in self._processes:
            if process.piece is not None:
                continue
            piece = self._piece() if self._may_give() else []
            if not piece:
                return
            number, self._given = self._given, self._given + 1
            self._pieces[number] = piece
            process.give(number, piece)

    def _may_give(self) -> bool:
        return self._given - self._next < MOST_AHEAD * self._count

    def _in_order(self) -> Iterator[tuple[list[Line], list[Replied]]]:
        while self._next in self._found:
            result = self._found.pop(self._next)
            piece = self._pieces.pop(self._next)
            self._next += 1
            yield piece, result.rows

    def _wait(self) -> None:
        """Waits until a process has answered, or lines come that one is free for."""
        if self._next in self._found:
            return
        busy = [process for process in self._processes if process.piece is not None]
        watched = [process.handle for process in busy]
        handle = self._lines.handle
        is_free = len(busy) < len(self._processes) and self._may_give()
        if is_free and handle is not None and not self._lines.ended:
            watched.append(handle)
        left_s = min((self._left_s(process) for process in busy), default=math.inf)
        wait_s = None if math.isinf(left_s) else max(left_s, 0.0)
        ready = set(select.select(watched, [], [], wait_s)[0])
        if handle in ready:
            self._lines.read()
        for process in busy:
            if process.handle in ready:
                self._take(process)
            elif self._left_s(process) <= 0.0:
                process.end()  # its piece is answered case by case
                self._take(process)

    def _left_s(self, process: AnswerProcess) -> float:
        """Seconds that a piece may still take: its longest case its limit, the others as usual."""
        if not self._limits.seconds:
            return math.inf
        return self._limits.seconds + LONG_PIECE_S - process.busy_s

    def _take(self, process: AnswerProcess) -> None:
        number, take = process.piece, process.take()
        assert number is not None
        process.piece = None
        if take is not None:
            self.cost.learn(take)
            self._found[number] = take
            return
        self._found[number] = self._one_by_one(self._pieces[number])
        process.end()
        self._processes[self._processes.index(process)] = self._another()

    def _another(self) -> AnswerProcess:
        process = AnswerProcess(self._shared)
        self._is_ready(process)
        return process

    def _is_ready(self, process: AnswerProcess) -> bool:
        """Waits until it may be given cases: where they have a limit, all is loaded."""
        return process.is_warm() if self._limits.seconds else process.is_ready()

    def _one_by_one(self, piece: Sequence[Line]) -> Replies:
        """Answers of a piece that ended a process; a case that ends a new one too is refused."""
        rows: list[Replied] = []
        process, is_new = self._another(), True
        try:
            for line in piece:
                process.give(0, [line])
                take = process.take(self._limits.seconds)
                if take is None and not is_new and not process.is_late:
                    process.end()  # it may have died of what it answered before
                    process = self._another()
                    process.give(0, [line])
                    take = process.take(self._limits.seconds)
                is_new = take is None
                if take is not None:
                    rows += take.rows
                    continue
                rows.append(Replied.from_reply(self._failed(process, line), is_lost=True))
                process.end()
                process = self._another()
        finally:
            process.end()
        return Replies(rows)

    def _failed(self, process: AnswerProcess, line: Line) -> Refusal:
        """The refusal of a case that ended or outlasted a process twice."""
        identity = stated_id(line)
        if process.is_late:
            return too_costly(f"not answered within {self._limits.seconds:g} s, twice", identity)
        return broken(f"the process that answered it ended with {process.died_of()}", identity)
