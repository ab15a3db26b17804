"""Every point of a space answered into a store; what the store has is not answered again."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import msgspec

from silicast.core.errors import SilicastError
from silicast.exploration.belonging import sign_of
from silicast.exploration.scenario_space import ScenarioSpace
from silicast.runner.lines import Line
from silicast.runner.points import PointCase, PointKeys, cases_of, check_fields
from silicast.runner.replies import replies
from silicast.runner.store import AnswerStore, column_types, part_name
from silicast.runner.workers import NO_LIMITS, CaseAnswers, PointLimits, Workers

CHUNK_S = 10.0
CHUNK_ROWS = 4096
CHUNK_BYTES = 32 << 20
"""A shard is written after so many seconds, answers or bytes: at most that is lost to a kill."""
AHEAD = 1024
"""Cases that are laid out before they are answered."""
SAMPLED_S = 2.0
SAMPLED = 12
"""Points that an estimate of the time answers, and the seconds after which it stops."""
RANKS = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"),
    ("JOB_COMPLETION_INDEX", "", ""),
    ("SKYPILOT_NODE_RANK", "", "SKYPILOT_NUM_NODES"),
)
"""Variables of the environment: the number of this task, of the first one, and how many."""

Progress = Callable[[int], None]
Executor = Callable[["PointLines", Path, Sequence[Path], PointLimits], CaseAnswers]
"""Makes of lines, their folder, calibrations and limits what answers them elsewhere."""


@final
class SweepTally:
    """How far a sweep is; whoever holds it knows it also after an interruption.

    Attributes:
        known: points that the store had; answered, refused: of this run, as they were written.
        reasons: why points were refused -> how many.
        lost: points whose process died or went beyond its limits twice: they are not stored, and
            a further sweep tries them again; of each the scenario's id and what happened.

        best: the best estimate of the metric that is watched, as far as rows are written.

    Args:
        stopped: not empty once no further point is to be begun; what runs is finished and written.
        watched: a metric; "" = none.
    """

    def __init__(self, stopped: Callable[[], str] = str, watched: str = "") -> None:
        self._stopped, self.watched = stopped, watched
        self.best: float | None = None
        self.known = self.answered = self.refused = self.shards = 0
        self.reasons = Counter[str]()
        self.lost: dict[str, str] = {}

    @property
    def is_finishing(self) -> bool:
        """Whether no further point is begun."""
        return bool(self._stopped())

    def watch(self, line: bytes) -> None:
        """Takes note of an answer if it is the best so far."""
        belief = msgspec.json.decode(line, type=_Watched).metrics.get(self.watched)
        if belief is not None:
            better = min if sign_of(self.watched) > 0 else max
            value = belief.estimate
            self.best = value if self.best is None else better(self.best, value)

    @property
    def done(self) -> int:
        """Points that need no further work in this run."""
        return self.known + self.answered + self.refused + len(self.lost)


@final
class PointLines:
    """Points as lines of a batch, laid out as they are needed.

    Attributes:
        cases: of lines whose answers were not taken yet, by their ids.
    """

    handle = None

    def __init__(self, cases: Iterator[PointCase], known: set[str], tally: SweepTally) -> None:
        self._cases, self._known, self._tally = cases, known, tally
        self._waiting: deque[Line] = deque()
        self._is_through = False
        self.cases: dict[str, PointCase] = {}

    @property
    def waiting(self) -> deque[Line]:
        """Lines that are laid out; none once the sweep is to finish."""
        if self._tally.is_finishing:
            self._waiting.clear()
        return self._waiting

    @property
    def ended(self) -> bool:
        """Whether no more will come."""
        return self._is_through or self._tally.is_finishing

    def has_more(self) -> bool:
        """Whether a further line can be laid out."""
        return not self.ended

    def read(self) -> None:
        """Lays out some."""
        for case in self._cases:
            if case.key in self._known:
                self._tally.known += 1
                continue
            self.cases[case.key] = case
            self._waiting.append(case.line)
            if len(self._waiting) >= AHEAD:
                return
        self._is_through = True


def shard_of(text: str | None, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Which part of a space this process answers: its number, from 0, and of how many.

    Args:
        text: "2/8"; "auto/8" or "auto": the number is that of a Slurm array, of an indexed Job of
            Kubernetes or of SkyPilot, "auto" takes the count from there too; None = all.

    Raises:
        SilicastError: none of these, or the environment does not have it.

    >>> shard_of("2/8"), shard_of("auto/8", {"JOB_COMPLETION_INDEX": "7"})
    ((2, 8), (7, 8))
    """
    if text is None:
        return 0, 1
    first, _, last = text.partition("/")
    if first != "auto":
        number, count = _whole(first, text), _whole(last, text)
    else:
        number, count = _from_environment(last, text, environment)
    if not 0 <= number < count:
        raise _bad_shard(f"{text}: part {number} of {count}; parts are numbered from 0")
    return number, count


def _from_environment(last: str, text: str, environment: Mapping[str, str]) -> tuple[int, int]:
    for index, first, total in RANKS:
        if index in environment:
            start = environment.get(first, "0") if first else "0"
            count = last or environment.get(total, "")
            if not count:
                raise _bad_shard(f"{index} is set, and nothing says of how many")
            return _whole(environment[index], index) - _whole(start, first), _whole(count, text)
    names = ", ".join(index for index, _, _ in RANKS)
    raise _bad_shard(f"{text}: none of {names} is set")


def _whole(text: str, what: str) -> int:
    if not text.isdecimal():
        raise _bad_shard(f"expected a whole number from 0 in {what!r}, found {text!r}")
    return int(text)


def _bad_shard(message: str) -> SilicastError:
    return SilicastError(message, field="--shard", hint="for example 0/8, or auto/8")


@final
@dataclass(frozen=True)
class Sweep:
    """A space that is answered into a store.

    Attributes:
        folder: where relative paths of its scenarios start.
        calibrations: files that every point rests on.
        shard, shards: the part of the space that is answered here.
    """

    space: ScenarioSpace
    folder: Path
    calibrations: Sequence[Path] = ()
    shard: int = 0
    shards: int = 1

    def check(self) -> None:
        """Refuses what can be known to be wrong before anything is answered.

        Raises:
            SilicastError: names the file, the field and what to do.
        """
        self.space.check()
        check_fields(self.space, self.folder)

    def cases(self) -> Iterator[PointCase]:
        """The points of this part as cases."""
        keys = PointKeys(self.folder, self.calibrations)
        return cases_of(self.space, keys, self.shard, self.shards)

    def estimate_s(self) -> float:
        """Seconds that a point takes in one process, from a few of them, spread over the space."""
        legal, _ = self.space.counts()
        step = max(legal // SAMPLED, 1)
        keys = PointKeys(self.folder, self.calibrations)
        seconds, number, tried = 0.0, 0, 0
        for points in self.space.points():
            for point in points:
                if number % step == 0 and seconds < SAMPLED_S:
                    line = keys.case(self.space.base, point).line
                    start = time.perf_counter()
                    replies([line], self.folder, self.calibrations)
                    seconds += time.perf_counter() - start
                    tried += 1
                number += 1
        return seconds / max(tried, 1)

    def run(
        self,
        store: AnswerStore,
        *,
        workers: int = 1,
        limits: PointLimits = NO_LIMITS,
        executor: Executor | None = None,
        cases: Iterator[PointCase] | None = None,
        tally: SweepTally | None = None,
        progress: Progress | None = None,
    ) -> SweepTally:
        """Answers what the store has not.

        Args:
            workers: processes that answer; limits: of a point.
            executor: answers in place of processes of this machine.
            cases: are answered in place of all points; they may state a ``seed``.
            tally: counts, for who must know them if this is interrupted.
            progress: called with the number of points done so far.

        Raises:
            SilicastError: the store cannot be read or written.
        """
        told = tally or SweepTally()
        store.note(self.space, self.folder)
        part = part_name(self.space, self.shard, self.shards) if cases is None else ""
        lines = PointLines(self.cases() if cases is None else cases, store.keys(part), told)
        types = column_types(self.space) | ({} if cases is None else {"seed": "int"})
        if executor is None:
            work: CaseAnswers = Workers(lines, self.folder, self.calibrations, workers, limits)
        else:
            work = executor(lines, self.folder, self.calibrations, limits)
        rows: list[tuple[PointCase, bytes]] = []
        size, since = 0, time.monotonic()
        try:
            for _, answers in work.pieces():
                for each in answers:
                    case = lines.cases.pop(str(each.id))
                    if each.is_lost:
                        told.lost[case.key] = _head(each.line).reason
                        continue
                    rows.append((case, each.line.rstrip(b"\n")))
                    size += len(each.line)
                late = time.monotonic() - since > CHUNK_S
                if late or len(rows) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                    self._write(store, rows, types, told, part)
                    rows, size, since = [], 0, time.monotonic()
                if progress is not None:
                    progress(told.done + len(rows))
        finally:  # an interruption leaves what was answered
            self._write(store, rows, types, told, part)
        return told

    def _write(
        self,
        store: AnswerStore,
        rows: Sequence[tuple[PointCase, bytes]],
        types: Mapping[str, str],
        tally: SweepTally,
        part: str,
    ) -> None:
        if not rows:
            return
        store.add(rows, types, part)
        tally.shards += 1
        for _, line in rows:
            head = _head(line)
            if tally.watched and head.ok:
                tally.watch(line)
            tally.answered += head.ok
            tally.refused += not head.ok
            if head.error is not None:
                tally.reasons[head.reason] += 1


class _Reason(msgspec.Struct, frozen=True):
    message: str
    field: str

    @property
    def text(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class _Estimate(msgspec.Struct, frozen=True):
    estimate: float


class _Watched(msgspec.Struct, frozen=True):
    """What of an answer is watched."""

    metrics: dict[str, _Estimate] = {}


class _Head(msgspec.Struct, frozen=True):
    """What of an answer is counted."""

    ok: bool
    error: _Reason | None = None

    @property
    def reason(self) -> str:
        return "" if self.error is None else self.error.text


def _head(line: bytes) -> _Head:
    return msgspec.json.decode(line, type=_Head)
