"""Many scenarios, one JSON object a line, to as many answers in the same order.

Lines are answered in pieces, over several processes where that is asked for; answers are those of
single runs, bit for bit. They are written as they come, so that whatever ends a batch leaves the
answers that were finished, and a batch can go on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

from silicast.core.calibration import load_calibration
from silicast.core.growing import GrowingFile, growing
from silicast.runner.lines import STDIN, CaseLines, opened
from silicast.runner.record import (
    RecordedAnswer,
    kept_answers,
    noted,
    record_of,
    skip_answered,
    skip_unrecorded,
    started,
)
from silicast.runner.replies import Replied
from silicast.runner.workers import Workers
from silicast.scenario.answer import Identity

MOST_SHARED = 5
"""Ids of several cases that are named."""
ALL_ANSWERED = 0
SOME_FAILED = 3
BUSY = "another batch is writing it"

Progress = Callable[[int], None]


@final
@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a batch, so far.

    Attributes:
        kept: answers of the cases that an earlier run had finished; part of the others.
        shared_ids: ids of several cases each; the first few.
    """

    answered: int
    failed: int
    kept: int = 0
    shared_ids: tuple[Identity, ...] = ()

    @property
    def cases(self) -> int:
        return self.answered + self.failed

    @property
    def exit_status(self) -> int:
        """0 if every case was answered, 3 if some failed."""
        return SOME_FAILED if self.failed else ALL_ANSWERED


@final
class Tally:
    """Counts answers as they come; whoever holds it knows them also after an interruption."""

    def __init__(self) -> None:
        self._answered = self._failed = self._kept = 0
        self._seen = set[Identity]()
        self._shared = dict[Identity, None]()

    def add(self, answer: Replied | RecordedAnswer) -> None:
        if answer.id in self._seen and len(self._shared) < MOST_SHARED:
            self._shared[answer.id] = None
        self._seen.add(answer.id)
        self._answered += answer.ok
        self._failed += not answer.ok
        self._kept += isinstance(answer, RecordedAnswer)

    @property
    def cases(self) -> int:
        return self._answered + self._failed

    @property
    def result(self) -> BatchResult:
        """The same with what else is known."""
        return BatchResult(self._answered, self._failed, self._kept, tuple(self._shared))


def run_batch_file(
    source: Path,
    target: Path,
    progress: Progress | None = None,
    *,
    calibrations: Sequence[Path] = (),
    workers: int = 1,
    resume: bool = False,
    tally: Tally | None = None,
) -> BatchResult:
    """Answers every case of a JSON Lines file into another file, as they come.

    A regular file is locked against other writers. Relative paths in a case start at the folder of
    ``source``.

    Args:
        source: a file; ``-`` = standard input.
        progress: called with the number of cases done so far, from time to time.
        calibrations: files that every case rests on, before its own.
        workers: processes that answer.
        resume: answers that ``target`` holds are kept; the rest is added.
        tally: counts answers, for who must know them if this is interrupted.

    Raises:
        SilicastError: ``source`` cannot be read, is too large or no text, a file of
            ``calibrations`` is none, ``target`` cannot be written, is ``source``, is written by
            another process, or holds answers to other cases or of another version (exit status 2).
            A bad case raises nothing.
    """
    tally = tally or Tally()
    for path in calibrations:
        load_calibration(path)
    folder = Path() if source == STDIN else source.parent
    with opened(source) as stream:
        status = os.fstat(stream.fileno())
        with growing(target, BUSY, source=status, keep=resume) as out:
            run = _BatchRun(CaseLines(stream), out, folder, calibrations, tally)
            if out.is_regular:
                with _recording(target, resume=resume) as record:
                    run.begin(target, record, resume=resume)
                    run.answer(workers, progress)
            else:
                run.answer(workers, progress)
    return tally.result


@contextmanager
def _recording(target: Path, *, resume: bool) -> Iterator[GrowingFile]:
    """The record beside a file of answers, gone when all is done."""
    path = record_of(target)
    with growing(path, BUSY, keep=resume) as record:
        yield record
    path.unlink(missing_ok=True)


@final
class _BatchRun:
    """One batch on its way from lines to a file."""

    def __init__(
        self,
        lines: CaseLines,
        out: GrowingFile,
        folder: Path | None,
        calibrations: Sequence[Path],
        tally: Tally,
    ) -> None:
        self._lines, self._out = lines, out
        self._folder, self._calibrations = folder, calibrations
        self._tally = tally
        self._record: GrowingFile | None = None

    def begin(self, target: Path, record: GrowingFile, *, resume: bool) -> None:
        """Begins a record, or takes up that of an interrupted run and skips what it answered."""
        self._record = record
        if not resume:
            started(record, self._calibrations)
            return
        record.cut_torn_line()
        with self._out.reader() as stream:
            answers = list(kept_answers(stream, target))
            if not answers:
                started(record, self._calibrations)
            elif not skip_answered(self._lines, answers, target, record, self._calibrations):
                stream.seek(0)
                cases = skip_unrecorded(
                    self._lines, answers, stream, target, self._folder, self._calibrations
                )
                started(record, self._calibrations)
                noted(record, 0, cases)
        self._out.cut_torn_line()
        for answer in answers:
            self._tally.add(answer)

    def answer(self, workers: int, progress: Progress | None) -> None:
        """Answers the cases that are left."""
        tally = self._tally
        work = Workers(self._lines, self._folder, self._calibrations, workers)
        for lines, rows in work.pieces():
            if self._record is not None:
                noted(self._record, tally.cases, lines)
            self._out.add(b"".join(row.line for row in rows))
            for row in rows:
                tally.add(row)
            if progress is not None:
                progress(tally.cases)


def run_batch_stream(
    source: Path,
    out: BinaryIO,
    progress: Progress | None = None,
    *,
    calibrations: Sequence[Path] = (),
    workers: int = 1,
    tally: Tally | None = None,
) -> BatchResult:
    """The same into a stream that is open; arguments and errors as of :func:`run_batch_file`."""
    for path in calibrations:
        load_calibration(path)
    folder = Path() if source == STDIN else source.parent
    with opened(source) as stream:
        return run_batch(
            stream,
            out,
            folder=folder,
            progress=progress,
            calibrations=calibrations,
            workers=workers,
            tally=tally,
        )


def run_batch(
    lines: BinaryIO,
    out: BinaryIO,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    calibrations: Sequence[Path] = (),
    workers: int = 1,
    tally: Tally | None = None,
) -> BatchResult:
    """Answers every case of a stream of lines, in order; blank lines are no cases.

    A case without an id gets the number of its line, from 1. Where another one states that number
    as its id, or two state the same, the result says so.

    Args:
        folder: where relative paths in a case start.
        progress, calibrations, workers, tally: as of :func:`run_batch_file`.
    """
    tally = tally or Tally()
    for _, rows in Workers(CaseLines(lines), folder, calibrations, workers).pieces():
        out.write(b"".join(row.line for row in rows))
        out.flush()
        for row in rows:
            tally.add(row)
        if progress is not None:
            progress(tally.cases)
    return tally.result
