"""What files of measurements and plain tables give a calibration or a score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from silicast.core.calibration import Scope
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.measurement.records import (
    CollectiveRow,
    HostRow,
    KernelRow,
    RunRow,
    Session,
    Spread,
)
from silicast.measurement.references import one_a_session
from silicast.measurement.store import read_measurements
from silicast.measurement.tables import read_table
from silicast.scenario.resolve import find_any_device

LEFT_OUT = ("throttled", "busy", "unsteady", "profiled", "waits")
"""Flags of rows that were timed under other conditions than others, or with a profiler's or a
waiting rank's time in them."""
HEAD = b'"record":"session"'
"""A line that makes a file one of measurements."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Numbered(Generic[T]):
    """A row and where it stands.

    Attributes:
        number: from 1, among the rows of its kind in its file.
        session: None in a plain table.
    """

    row: T
    number: int
    file: Path
    session: Session | None = None


@final
@dataclass(frozen=True)
class KernelGiven:
    """A kernel as it was given.

    Attributes:
        values: columns of a ``kernel`` table and of its time.
        noise: log sd of its repeats, None = not known.
    """

    values: Mapping[str, Any]
    noise: float | None = None


@final
@dataclass(frozen=True)
class Given:
    """All rows of some files.

    Attributes:
        flagged: flag -> rows left out for it; doubtful: flag -> rows that were kept.
        unread: rows that another tool measured and nobody understood, or that failed.
        notes: what a reader should know of the files.
    """

    files: tuple[Path, ...]
    sessions: tuple[Session, ...]
    kernels: tuple[Numbered[KernelGiven], ...]
    hosts: tuple[Numbered[HostRow], ...] = ()
    collectives: tuple[Numbered[CollectiveRow], ...] = ()
    runs: tuple[Numbered[RunRow], ...] = ()
    flagged: Mapping[str, int] | None = None
    doubtful: Mapping[str, int] | None = None
    unread: int = 0
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Rows in all."""
        return len(self.kernels) + len(self.hosts) + len(self.collectives) + len(self.runs)

    def lines(self) -> list[str]:
        """What was left out, kept with doubt, or not understood."""
        said = [
            f"{_rows(count)} flagged {flag!r}: left out"
            for flag, count in (self.flagged or {}).items()
        ]
        said += [
            f"{_rows(count)} flagged {flag!r}: kept"
            for flag, count in (self.doubtful or {}).items()
        ]
        if self.unread:
            said.append(f"{_rows(self.unread)} failed or were not understood when they were taken")
        return [*said, *self.notes]


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def read_given(paths: Sequence[Path], *, keep_flagged: bool = False) -> Given:
    """All rows of files of measurements and of plain tables of kernels.

    Args:
        keep_flagged: rows that were flagged too.

    Raises:
        SilicastError: a file cannot be read, or is neither; names it.
    """
    left_out = () if keep_flagged else LEFT_OUT
    parts = [
        _measurements(path, left_out) if is_measurements(path) else _table(path) for path in paths
    ]
    flagged: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()
    for part in parts:
        flagged.update(part.flagged or {})
        doubtful.update(part.doubtful or {})
    return Given(
        files=tuple(paths),
        sessions=tuple(each for part in parts for each in part.sessions),
        kernels=tuple(each for part in parts for each in part.kernels),
        hosts=tuple(each for part in parts for each in part.hosts),
        collectives=tuple(each for part in parts for each in part.collectives),
        runs=tuple(each for part in parts for each in part.runs),
        flagged=flagged,
        doubtful=doubtful,
        unread=sum(part.unread for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
    )


def is_measurements(path: Path) -> bool:
    """Whether a file's first line is a session, as in files of measurements."""
    if path.suffix.casefold() in (".csv", ".parquet"):
        return False
    try:
        with path.open("rb") as file:
            return HEAD in file.readline(1 << 20).replace(b" ", b"")
    except OSError as error:
        raise SilicastError(
            f"cannot read: {error.strerror or error}", kind="io", file=str(path)
        ) from None


def _table(path: Path) -> Given:
    rows = tuple(Numbered(KernelGiven(row.values), row.number, path) for row in read_table(path))
    return Given((path,), (), rows)


def _measurements(path: Path, left_out: Sequence[str]) -> Given:
    found = read_measurements(path)
    sessions = {session.id: session for session in found.sessions}
    flagged: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()

    def kept(rows: Iterable[Any]) -> list[Numbered[Any]]:
        said = []
        for number, row in enumerate(rows, 1):
            bad = next((flag for flag in row.flags if flag in left_out), "")
            if bad:
                flagged[bad] += 1
                continue
            doubtful.update(row.flags)
            said.append(Numbered(row, number, path, sessions[row.session]))
        return said

    every: list[Numbered[KernelRow]] = kept(found.kernels)
    kernels, merged = one_a_session(every)
    notes = [f"{path.name}: {note}" for note in found.notes]
    if merged:
        notes.append(f"{path.name}: times of the reference kernel count once a session")
    return Given(
        files=(path,),
        sessions=found.sessions,
        kernels=tuple(_as_table(each) for each in kernels),
        hosts=tuple(kept(found.hosts)),
        collectives=tuple(kept(found.collectives)),
        runs=tuple(kept(found.runs)),
        flagged=flagged,
        doubtful=doubtful,
        unread=len(found.failed) + len(found.unread),
        notes=tuple(notes),
    )


def _as_table(each: Numbered[KernelRow]) -> Numbered[KernelGiven]:
    row, session = each.row, each.session
    values = {**row.kernel, "latency_us": row.latency_us, "id": f"{row.session} {row.at}"}
    if session is not None and session.device:
        values["device"] = session.device
    given = KernelGiven(values, noise_of(row.spread))
    return Numbered(given, each.number, each.file, session)


def noise_of(spread: Spread | None) -> float | None:
    """Log standard deviation of repeats, None where it is not known."""
    if spread is None or spread.repeats < 2 or not 0.0 < spread.p05 <= spread.p95:
        return None
    return math.log(spread.p95 / spread.p05) / (2.0 * Z90)


def device_given(given: Given, name: str) -> tuple[Device, str]:
    """The device that the rows are of, and what it is called.

    Args:
        name: as the user says, a catalog name or path; "" = as the sessions, or a column
            ``device``, say.

    Raises:
        SilicastError: nobody says, several do, or it is not known.
    """
    if name:
        return find_any_device(name, Path()), name
    said: dict[str, tuple[str, Path]] = {}
    counts: Counter[str] = Counter()
    rows: list[Numbered[Any]] = [*given.kernels, *given.hosts, *given.collectives, *given.runs]
    for each in rows:
        called, folder = called_by(each)
        if not called:
            raise SilicastError(
                f"no device is named, and row {each.number} says none",
                field="device",
                file=str(each.file),
                hint="--device with a catalog name or the path of a device file",
            )
        found = find_any_device(called, folder)
        said.setdefault(found.name, (called, folder))
        counts[found.name] += 1
    if len(said) > 1:
        listed = ", ".join(f"{device} ({_rows(count)})" for device, count in counts.most_common())
        raise SilicastError(
            f"rows of several devices: {listed}",
            field="device",
            file=str(given.files[0]),
            hint="one calibration is of one device: name it with --device, and --skip-bad leaves "
            "out the others",
        )
    if not said:
        flagged = sum((given.flagged or {}).values())
        raise SilicastError(
            f"all {_rows(flagged)} are flagged" if flagged else "has no rows",
            file=str(given.files[0]),
            field="rows",
            hint="measure again on a quiet machine, or take them with --keep-flagged"
            if flagged
            else "silicast measure -o FILE writes some",
        )
    ((called, folder),) = said.values()
    device = find_any_device(called, folder)
    return device, str(folder / called) if called.endswith(".toml") else device.name


def called_by(each: Numbered[Any]) -> tuple[str, Path]:
    """What a row says that its device is called, and where a path in that starts."""
    if each.session is not None:
        called = each.session.device
        beside = called.endswith(".toml") and (each.file.parent / called).is_file()
        return called, each.file.parent if beside else Path()
    values = each.row.values if isinstance(each.row, KernelGiven) else {}
    return str(values.get("device", "")), Path()


def is_of(each: Numbered[Any], device: Device) -> bool:
    """Whether a row is of a device, or says nothing else."""
    called, folder = called_by(each)
    if not called:
        return True
    try:
        return find_any_device(called, folder).name == device.name
    except SilicastError:
        return False


def scope_of(given: Given, device: Device) -> tuple[Scope, list[str]]:
    """Where a calibration holds, and what differed between sessions."""
    said = []
    hosts = {session.host for session in given.sessions if session.host}
    if len(hosts) > 1:
        said.append(f"measured on several hosts: {', '.join(sorted(hosts))}")
    versions: dict[str, set[str]] = {}
    for session in given.sessions:
        for software, version in session.stack.items():
            versions.setdefault(software, set()).add(version)
    for software, found in sorted(versions.items()):
        if len(found) > 1:
            said.append(f"measured with several versions of {software}: {', '.join(sorted(found))}")
    stack = {software: sorted(found)[-1] for software, found in sorted(versions.items())}
    return Scope(device.name, hosts.pop() if len(hosts) == 1 else "", stack), said
