"""One session of measuring: host costs, collectives, kernels, whole models; a row at a time.

Whatever ends it, what was measured is in the file. Continued, it asks for what is not there yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.measurement.lost import LOST, given_up, is_fatal
from silicast.measurement.progress import Clock, Outcome, Progress
from silicast.measurement.records import (
    CollectiveRow,
    Columns,
    Conditions,
    FailedRow,
    HostRow,
    KernelRow,
    RunRow,
)
from silicast.measurement.store import MeasurementFile

REFERENCE = "reference"
"""Name of the rows of the kernel that is measured again and again."""
REFERENCE_EVERY_S = 15.0
REFERENCE_LATER = 0.15
"""Rows are flagged "drift" while the reference kernel is off by more than so much."""
ONCE_SHARE = 0.3
"""Of the budget, after which the kernels begin even if collectives are left."""
MODELS_SHARE = 0.4
"""Of the budget, for whole models where they are wanted."""

Row = KernelRow | HostRow | CollectiveRow | RunRow | FailedRow
Tell = Callable[[Row], None]
Measure = Callable[[Columns], KernelRow | FailedRow]


class Chooser(Protocol):
    """Says which kernel to measure next."""

    def next(self, left_s: float) -> Columns | None:
        """The next kernel; None if none is left, or none that fits into that many seconds."""

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """A kernel was measured, now or before."""

    def failed(self, kernel: Columns, reason: str) -> None:
        """A kernel cannot be measured."""


@final
@dataclass(frozen=True)
class Tools:
    """What a session measures with; tests put others in.

    Attributes:
        measure: times one kernel; chooser: says which, None = no kernels are wanted.
        hosts, collectives: measure all of theirs; called once.
        models: measures whole models into the file within seconds; None = not wanted.
        reference: the kernel that is measured again and again; None = none.
    """

    measure: Measure
    chooser: Chooser | None = None
    hosts: Callable[[], Iterable[HostRow | FailedRow]] = tuple
    collectives: Callable[[], Iterable[CollectiveRow | FailedRow]] = tuple
    models: Callable[[MeasurementFile, float, Tell], object] | None = None
    reference: Columns | None = None


class _EndedError(Exception):
    """Somebody asked to end, or the device is lost; the text says which."""


@final
class Measuring:
    """Measures into an open file.

    Args:
        file: open; rows go to its session.
        budget_s: of everything together, from ``started_s`` on, by ``clock``.
        stop: why to end, "" = go on.
        watch: called whenever there is something new to show.
    """

    def __init__(
        self,
        file: MeasurementFile,
        tools: Tools,
        budget_s: float,
        *,
        stop: Callable[[], str] = str,
        watch: Callable[[Progress], None] = lambda _: None,
        clock: Clock = time.monotonic,
        started_s: float | None = None,
    ) -> None:
        self.file, self.tools, self.budget_s = file, tools, budget_s
        self.stop, self.watch, self.clock = stop, watch, clock
        self._started_s = clock() if started_s is None else started_s
        self.progress = Progress(budget_s, self._started_s, clock)
        self._first_reference_us = 0.0
        self._reference: float | None = None
        self._reference_at = -math.inf
        self._exhausted = False

    def run(self) -> Outcome:
        """Measures until the budget is used up, nothing is left or somebody ends it."""
        start = self._started_s
        end = start + self.budget_s
        models = self.tools.models
        ended = ""
        try:
            self._once("host", self.tools.hosts)
            self._once("collectives", self.tools.collectives)
            self._kernels(end - (MODELS_SHARE * self.budget_s if models else 0.0))
            left = end - self.clock()
            if models is not None and left > 0.0:
                self._phase("models")
                models(self.file, left, self._shown)
        except _EndedError as why:
            ended = str(why)
        except KeyboardInterrupt:
            ended = "interrupted"
        progress = self.progress
        seconds = self.clock() - start
        return Outcome(seconds, progress.rows, progress.failed, ended, self._exhausted)

    def _remember(self, chooser: Chooser) -> None:
        """Tells what the file holds of this machine already."""
        before, own = self.file.before, self.file.session
        alike = {session.id for session in before.sessions if session.device == own.device}
        for row in before.kernels:
            if row.session in alike:
                with suppress(SilicastError):  # imported: of no family that is measured here
                    chooser.tell(row.kernel, row.latency_us)
            if row.session == own.id and row.name == REFERENCE and not self._first_reference_us:
                self._first_reference_us = row.latency_us
        for failed in given_up(row for row in before.failed if row.session in alike):
            if "op" in failed.what:
                with suppress(SilicastError):  # a collective, which is no kernel
                    chooser.failed(failed.what, failed.reason)

    def _once(
        self, phase: str, rows: Callable[[], Iterable[HostRow | CollectiveRow | FailedRow]]
    ) -> None:
        """Measures what every session has once; it is all there if the file has a kernel."""
        self._phase(phase)
        before, own = self.file.before, self.file.session.id
        if any(row.session == own for row in before.kernels):
            return
        failed = given_up(row for row in before.failed if row.session == own)
        known = {_what(row) for kind in (before.hosts, before.collectives, failed)
                 for row in kind if row.session == own}  # fmt: skip
        end = self.clock() + ONCE_SHARE * self.budget_s
        for row in rows():
            if _what(row) not in known:
                self._append(msgspec.structs.replace(row, session=own, at=row.at or now()))
            if self.clock() > end:
                return

    def _kernels(self, end: float) -> None:
        """One kernel after the other, until the time is up."""
        chooser = self.tools.chooser
        if chooser is None:
            return
        self._phase("kernels")
        self._remember(chooser)
        self._check_reference()
        while (kernel := chooser.next(end - self.clock())) is not None:
            row = self._measured(kernel)
            if isinstance(row, KernelRow):
                chooser.tell(kernel, row.latency_us)
            else:
                chooser.failed(kernel, row.reason)
            if self.stop():
                raise _EndedError(self.stop())
        self._exhausted = chooser.next(math.inf) is None

    def _measured(self, kernel: Columns) -> KernelRow | FailedRow:
        """One row, safe on the disk."""
        self.progress.op = str(kernel.get("op", ""))
        self.watch(self.progress)
        if self.clock() - self._reference_at > REFERENCE_EVERY_S:
            self._check_reference()
        row = self._timed(kernel)
        if isinstance(row, KernelRow) and self._reference is not None:
            flags = list(row.flags)
            if abs(self._reference - 1.0) > REFERENCE_LATER and "drift" not in flags:
                flags.append("drift")
            conditions = msgspec.structs.replace(
                row.conditions or Conditions(), reference=self._reference
            )
            row = msgspec.structs.replace(row, conditions=conditions, flags=flags)
        self._append(row)
        return row

    def _timed(self, kernel: Columns) -> KernelRow | FailedRow:
        """One row, whatever happens while it is measured."""
        own, at = self.file.session.id, now()
        try:
            row = self.tools.measure(kernel)
        except Exception as error:  # the sweep goes on
            reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
            said = " ".join(str(error).split())[:500]
            return FailedRow(own, kernel, reason, f"{type(error).__name__}: {said}", at)
        return msgspec.structs.replace(row, session=own, at=row.at or at)

    def _check_reference(self) -> None:
        """Measures the reference kernel, whose time says whether the machine is as it was."""
        self._reference_at = self.clock()
        if self.tools.reference is None:
            return
        row = self._timed(self.tools.reference)
        if isinstance(row, FailedRow):
            self._append(row)
            return
        if not self._first_reference_us:
            self._first_reference_us = row.latency_us
        self._reference = row.latency_us / self._first_reference_us
        self._append(msgspec.structs.replace(row, name=REFERENCE))

    def _append(self, row: Row) -> None:
        self.file.append(row)
        self._shown(row)

    def _shown(self, row: Row) -> None:
        """Counts a row that is in the file; ends if somebody asked to, or the device is lost."""
        self.progress.failed += isinstance(row, FailedRow)
        self.progress.rows += not isinstance(row, FailedRow)
        self.watch(self.progress)
        if is_fatal(row):
            raise _EndedError(LOST)
        if self.progress.phase != "kernels" and self.stop():
            raise _EndedError(self.stop())

    def _phase(self, name: str) -> None:
        if self.stop():
            raise _EndedError(self.stop())
        self.progress.phase, self.progress.op = name, ""
        self.watch(self.progress)


def _what(row: HostRow | CollectiveRow | FailedRow) -> str:
    """What a row is of."""
    match row:
        case HostRow():
            return content_hash(["host", row.quantity, row.engine, row.states])
        case CollectiveRow():
            return content_hash(["collective", row.collective])
        case FailedRow():
            return content_hash(["failed", row.what])


def now() -> str:
    """ISO date and time, UTC, to the microsecond: no two rows have the same."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_id() -> str:
    """Names a session: when it started, and a few letters that no other has.

    >>> len(new_id())
    24
    """
    moment = datetime.now(UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{content_hash([now(), time.perf_counter_ns()])[:7]}"
