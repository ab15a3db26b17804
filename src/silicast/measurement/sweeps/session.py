"""One session of measuring, a row at a time: host costs, collectives, kernels, whole models.

However it ends, all measured rows are in the file; continued, it measures what is missing.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.hashing import content_hash
from silicast.measurement.records.dataset import REFERENCE
from silicast.measurement.records.records import (
    CollectiveRow,
    Columns,
    FailedRow,
    HostRow,
    KernelRow,
    MachineConditions,
    RunRow,
    utc_now,
)
from silicast.measurement.records.store import MeasurementFile
from silicast.measurement.sweeps.budget import shown

REFERENCE_EVERY_S = 15.0
REFERENCE_DRIFT = 0.15
"""Relative change of the reference kernel beyond which rows are flagged "drift"."""
ONCE_SHARE = 0.3
"""Share of the budget after which kernels begin even if collectives are left."""
MODELS_SHARE = 0.4
"""Share of the budget for whole models where they are measured."""

Row = KernelRow | HostRow | CollectiveRow | RunRow | FailedRow
OnceRow = HostRow | CollectiveRow | FailedRow
Tell = Callable[[Row], None]
Measure = Callable[[Columns], KernelRow | FailedRow]
Clock = Callable[[], float]


class Chooser(Protocol):
    """Chooses which kernel to measure next."""

    def next(self, left_s: float) -> Columns | None:
        """The next kernel; None if none is left, or none that fits into ``left_s`` seconds."""

    def tell(self, kernel: Columns, latency_us: float) -> None:
        """Adds a measured kernel to the design."""

    def failed(self, kernel: Columns, reason: str) -> None:
        """Removes a kernel that cannot be measured."""


@final
@dataclass(frozen=True)
class Tools:
    """What a session measures with; tests replace them.

    Attributes:
        measure: times one kernel; chooser: of kernels, None = none are measured.
        hosts, collectives: measure all of theirs; called once.
        models: measures whole models into the file within seconds; None = not wanted.
        reference: kernel that is measured again and again; None = none.
    """

    measure: Measure
    chooser: Chooser | None = None
    hosts: Callable[[], Iterable[HostRow | FailedRow]] = tuple
    collectives: Callable[[], Iterable[CollectiveRow | FailedRow]] = tuple
    models: Callable[[MeasurementFile, float, Tell], object] | None = None
    reference: Columns | None = None


@final
class SessionProgress:
    """Progress of a session.

    Attributes:
        phase: "host", "collectives", "kernels" or "models"; op: being measured.
        rows, failed: added so far.
    """

    def __init__(self, budget_s: float, started_s: float, clock: Clock) -> None:
        self.budget_s, self.started_s, self.clock = budget_s, started_s, clock
        self.phase, self.op = "host", ""
        self.rows = self.failed = 0

    def __str__(self) -> str:
        passed = min(self.clock() - self.started_s, self.budget_s)
        failed = f", {self.failed} failed" if self.failed else ""
        running = f"{self.phase} {self.op}".strip()
        return f"{shown(passed)} of {shown(self.budget_s)}: {self.rows} rows{failed}; {running}"


@final
@dataclass(frozen=True)
class SessionResult:
    """Result of a session.

    Attributes:
        seconds: its duration; rows, failed: that it added.
        ended: why it ended early, "" = by its budget.
        exhausted: no kernel is left to measure.
    """

    seconds: float
    rows: int
    failed: int
    ended: str = ""
    exhausted: bool = False


class _EndedError(Exception):
    """The user ended the session, or the device is lost; the text says which."""


@final
class MeasuringSession:
    """Measures into an open file.

    Args:
        file: rows are added to its session.
        budget_s: for everything, from ``started_s`` on by ``clock``.
        stop: returns why to end, "" = continue.
        watch: called whenever progress changes.
    """

    def __init__(
        self,
        file: MeasurementFile,
        tools: Tools,
        budget_s: float,
        *,
        stop: Callable[[], str] = str,
        watch: Callable[[SessionProgress], None] = lambda _: None,
        clock: Clock = time.monotonic,
        started_s: float | None = None,
    ) -> None:
        self.file, self.tools, self.budget_s = file, tools, budget_s
        self.stop, self.watch, self.clock = stop, watch, clock
        self._started_s = clock() if started_s is None else started_s
        self.progress = SessionProgress(budget_s, self._started_s, clock)
        self._first_reference_us = 0.0
        self._reference: float | None = None
        self._reference_at = -math.inf
        self._exhausted = False

    def run(self) -> SessionResult:
        """Measures until the budget is used up, nothing is left or somebody ends it."""
        end = self._started_s + self.budget_s
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
        seconds = self.clock() - self._started_s
        progress = self.progress
        return SessionResult(seconds, progress.rows, progress.failed, ended, self._exhausted)

    def _once(self, phase: str, rows: Callable[[], Iterable[OnceRow]]) -> None:
        """Measures what a session measures once; if the file has a kernel, it is complete."""
        self._phase(phase)
        before, session = self.file.before, self.file.session.id
        if any(row.session == session for row in before.kernels):
            return
        failed = given_up(row for row in before.failed if row.session == session)
        done = {
            _subject(row)
            for kind in (before.hosts, before.collectives, failed)
            for row in kind
            if row.session == session
        }
        end = self.clock() + ONCE_SHARE * self.budget_s
        for row in rows():
            if _subject(row) not in done:
                self._append(msgspec.structs.replace(row, session=session, at=row.at or utc_now()))
            if self.clock() > end:
                return

    def _kernels(self, end: float) -> None:
        """Measures one kernel after the other until ``end``."""
        chooser = self.tools.chooser
        if chooser is None:
            return
        self._phase("kernels")
        self._tell_known(chooser)
        self._check_reference()
        while (kernel := chooser.next(end - self.clock())) is not None:
            row = self._measured(kernel)
            if isinstance(row, KernelRow):
                chooser.tell(kernel, row.latency_us)
            else:
                chooser.failed(kernel, row.reason)
            self._check_stop()
        self._exhausted = chooser.next(math.inf) is None

    def _tell_known(self, chooser: Chooser) -> None:
        """Tells the chooser what the file holds of this machine already."""
        before, own_session = self.file.before, self.file.session
        sessions = {
            session.id for session in before.sessions if session.device == own_session.device
        }
        for row in before.kernels:
            if row.session in sessions:
                with suppress(SilicastError):  # imported: of no family that is measured here
                    chooser.tell(row.kernel, row.latency_us)
            if (
                row.session == own_session.id
                and row.name == REFERENCE
                and not self._first_reference_us
            ):
                self._first_reference_us = row.latency_us
        for failed in given_up(row for row in before.failed if row.session in sessions):
            if "op" in failed.what:
                with suppress(SilicastError):  # a collective, which is no kernel
                    chooser.failed(failed.what, failed.reason)

    def _measured(self, kernel: Columns) -> KernelRow | FailedRow:
        """Measures a kernel and writes its row."""
        self.progress.op = str(kernel.get("op", ""))
        self.watch(self.progress)
        if self.clock() - self._reference_at > REFERENCE_EVERY_S:
            self._check_reference()
        row = self._timed(kernel)
        if isinstance(row, KernelRow) and self._reference is not None:
            flags = list(row.flags)
            if abs(self._reference - 1.0) > REFERENCE_DRIFT and "drift" not in flags:
                flags.append("drift")
            conditions = msgspec.structs.replace(
                row.conditions or MachineConditions(), reference=self._reference
            )
            row = msgspec.structs.replace(row, conditions=conditions, flags=flags)
        self._append(row)
        return row

    def _timed(self, kernel: Columns) -> KernelRow | FailedRow:
        """Measures a kernel; any error becomes a failed row."""
        session, at = self.file.session.id, utc_now()
        try:
            row = self.tools.measure(kernel)
        except Exception as error:  # the sweep continues
            reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
            message = " ".join(str(error).split())[:500]
            return FailedRow(session, kernel, reason, f"{type(error).__name__}: {message}", at)
        return msgspec.structs.replace(row, session=session, at=row.at or at)

    def _check_reference(self) -> None:
        """Measures the reference kernel, whose time shows changes of the machine."""
        self._reference_at = self.clock()
        if self.tools.reference is None:
            return
        row = self._timed(self.tools.reference)
        if isinstance(row, KernelRow):
            self._first_reference_us = self._first_reference_us or row.latency_us
            self._reference = row.latency_us / self._first_reference_us
            row = msgspec.structs.replace(row, name=REFERENCE)
        self._append(row)

    def _append(self, row: Row) -> None:
        self.file.append(row)
        self._shown(row)

    def _shown(self, row: Row) -> None:
        """Counts a row that was written; ends the session on request or if the device is lost."""
        self.progress.failed += isinstance(row, FailedRow)
        self.progress.rows += not isinstance(row, FailedRow)
        self.watch(self.progress)
        if is_fatal(row):
            raise _EndedError(DEVICE_LOST)
        if self.progress.phase != "kernels":
            self._check_stop()

    def _phase(self, name: str) -> None:
        self._check_stop()
        self.progress.phase, self.progress.op = name, ""
        self.watch(self.progress)

    def _check_stop(self) -> None:
        if self.stop():
            raise _EndedError(self.stop())


def _subject(row: OnceRow) -> str:
    """Hash of what a row measured."""
    match row:
        case HostRow():
            return content_hash(["host", row.quantity, row.engine, row.states])
        case CollectiveRow():
            return content_hash(["collective", row.collective])
        case FailedRow():
            return content_hash(["failed", row.what])


def new_session_id() -> str:
    """A session's id: its start and random letters.

    >>> len(new_session_id())
    24
    """
    moment = datetime.now(UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{content_hash([utc_now(), time.perf_counter_ns()])[:7]}"


UNSUPPORTED = (
    "not implemented", "not supported", "unsupported", "only supports", "not available",
    "no available kernel", "not compiled", "is not currently", "expected", "must be", "requires",
    "capturing", "capture", "out of resource", "could not create a primitive", "no kernel image",
)  # fmt: skip
"""Parts of PyTorch's errors about what it does not implement."""
NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate")
FATAL = (
    "illegal memory access",
    "device-side assert triggered",
    "unspecified launch failure",
    "misaligned address",
    "an illegal instruction",
    "device lost",
    "ecc error",
    "fallen off the bus",
    "uncorrectable",
)
"""Parts of errors after which a process can compute nothing more on its GPU. PyTorch adds a hint to
every error of CUDA on how to "enable device-side assertions", which none of these may match."""
ATTEMPTS = 2
"""Attempts at what failed with a fatal error: a second failure shows that it caused the first."""
LONGEST = 400

DEVICE_LOST = "the GPU can compute nothing more in this process: run the command again to continue"


def reason_of(error: BaseException) -> tuple[str, str]:
    """Reason of a failure, as :class:`FailedRow` names it, and the error's text.

    >>> reason_of(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))[0]
    'out_of_memory'
    >>> reason_of(NotImplementedError("aten::_scaled_mm"))[0], reason_of(ValueError("odd"))[0]
    ('unsupported', 'error')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = f"{type(error).__name__}: {' '.join(lines)[:LONGEST] if lines else 'no message'}"
    text = str(error).casefold()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory", message
    if any(words in text for words in NO_MEMORY):
        return "out_of_memory", message
    if isinstance(error, (NotImplementedError, ImportError, AttributeError)):
        return "unsupported", message
    if isinstance(error, SilicastError):
        return "unsupported" if error.kind == "unsupported" else "error", str(error)
    if isinstance(error, RuntimeError) and any(words in text for words in UNSUPPORTED):
        return "unsupported", message
    return "error", message


def is_fatal(row: object) -> bool:
    """Whether a row reports that the GPU is lost.

    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: misaligned address"))
    True
    >>> is_fatal(FailedRow("", {}, "error", "CUDA error: invalid argument"))
    False
    """
    if not isinstance(row, FailedRow):
        return False
    message = row.message.casefold()
    return any(words in message for words in FATAL)


def given_up(rows: Iterable[FailedRow]) -> list[FailedRow]:
    """Failures that are not tried again, one row for each kernel or model.

    After a fatal error, which another kernel may have caused, a kernel gets a second attempt, so
    that a continued file gets past one that always fails this way.
    """
    table: dict[str, FailedRow] = {}
    fatal: Counter[str] = Counter()
    for row in rows:
        key = content_hash(row.what)
        fatal[key] += is_fatal(row)
        if not is_fatal(row) or fatal[key] >= ATTEMPTS:
            table.setdefault(key, row)
    return list(table.values())
