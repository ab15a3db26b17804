"""Reading files of measurements and plain tables of kernels, one or several together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypeVar, final

import msgspec

from silicast.core.calibration import Scope
from silicast.core.errors import SilicastError
from silicast.core.files import opened_file, read_errors
from silicast.core.prediction import Z90
from silicast.formats.tables import read_table
from silicast.hardware.device import Device
from silicast.measurement.records.records import (
    MAX_BYTES,
    CollectiveRow,
    HostRow,
    KernelRow,
    RepeatSpread,
    RunRow,
    Session,
    read_measurements,
)
from silicast.scenario.resolve import find_any_device

EXCLUDED_FLAGS = (
    "throttled", "busy", "unsteady", "profiled", "waits", "cancelled", "many_failed",
    "wrong_results",
)  # fmt: skip
"""Flags of rows that were timed under unusual conditions, or whose time includes a profiler's
overhead or a rank's waiting; such rows are left out."""
REFERENCE = "reference"
"""Name of the rows of a session's reference kernel, which is timed again and again."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class DatasetRow(Generic[T]):
    """A row with its place.

    Attributes:
        number: from 1, among the rows of its kind in its file.
        session: None in a plain table.
    """

    row: T
    number: int
    file: Path
    session: Session | None = None

    @property
    def device(self) -> tuple[str, Path]:
        """The device that the row states, "" = none, and the folder that a path in it starts in."""
        if self.session is not None:
            name = self.session.device
        else:
            name = str(getattr(self.row, "values", {}).get("device", ""))
        beside = name.endswith(".toml") and (self.file.parent / name).is_file()
        return name, self.file.parent if beside else Path()

    def is_measured_on(self, device: Device) -> bool:
        """Whether the row states this device, or none."""
        name, folder = self.device
        if name in ("", device.name):
            return True
        try:
            return find_any_device(name, folder).name == device.name
        except SilicastError:
            return False


@final
@dataclass(frozen=True)
class TableKernel:
    """A measured kernel as columns of a table.

    Attributes:
        values: columns of a ``kernel`` table and of its time.
        noise: log standard deviation of its repeats, None = unknown.
    """

    values: Mapping[str, Any]
    noise: float | None = None


@final
@dataclass(frozen=True)
class Dataset:
    """Rows of several files.

    Attributes:
        excluded: flag -> rows left out for it; doubtful: flag -> flagged rows that were kept.
        unread: rows that failed, or that were imported and not understood.
        notes: what a reader should know of the files.
    """

    files: tuple[Path, ...]
    sessions: tuple[Session, ...] = ()
    kernels: tuple[DatasetRow[TableKernel], ...] = ()
    hosts: tuple[DatasetRow[HostRow], ...] = ()
    collectives: tuple[DatasetRow[CollectiveRow], ...] = ()
    runs: tuple[DatasetRow[RunRow], ...] = ()
    excluded: Counter[str] = field(default_factory=Counter)
    doubtful: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Dataset) -> Dataset:
        """The rows of both datasets."""
        both = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(Dataset)
        }
        return Dataset(**both)

    def lines(self) -> list[str]:
        """What was left out, kept although doubtful, or not understood."""
        lines = [f"{_rows(n)} flagged {flag!r}: left out" for flag, n in self.excluded.items()]
        lines += [f"{_rows(n)} flagged {flag!r}: kept" for flag, n in self.doubtful.items()]
        if self.unread:
            lines.append(f"{_rows(self.unread)} without a time: failed or not understood")
        return [*lines, *self.notes]


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def read_dataset(paths: Sequence[Path], *, keep_flagged: bool = False) -> Dataset:
    """Rows of files of measurements and of plain tables of kernels.

    Args:
        keep_flagged: also rows with one of :data:`EXCLUDED_FLAGS`.

    Raises:
        SilicastError: a file cannot be read, or is neither; names it.
    """
    excluded = () if keep_flagged else EXCLUDED_FLAGS
    parts = [_file(path, excluded) if _has_sessions(path) else _table(path) for path in paths]
    return sum(parts, Dataset(()))


def _has_sessions(path: Path) -> bool:
    """Whether the first line is a session, as in files of measurements."""
    if path.suffix.casefold() in (".csv", ".parquet"):
        return False
    with opened_file(path, MAX_BYTES, "a file of measurements") as file, read_errors(path):
        return b'"record":"session"' in file.readline(1 << 20).replace(b" ", b"")


def _table(path: Path) -> Dataset:
    rows = (DatasetRow(TableKernel(row.values), row.number, path) for row in read_table(path))
    return Dataset((path,), kernels=tuple(rows))


def _file(path: Path, excluded_flags: Sequence[str]) -> Dataset:
    measurements = read_measurements(path)
    sessions = {session.id: session for session in measurements.sessions}
    excluded: Counter[str] = Counter()
    doubtful: Counter[str] = Counter()

    def usable(rows: Iterable[Any]) -> tuple[DatasetRow[Any], ...]:
        numbered = []
        for number, row in enumerate(rows, 1):
            bad = next((flag for flag in row.flags if flag in excluded_flags), "")
            if bad:
                excluded[bad] += 1
            else:
                doubtful.update(row.flags)
                numbered.append(DatasetRow(row, number, path, sessions[row.session]))
        return tuple(numbered)

    every = usable(measurements.kernels)
    kernels = _one_reference(every)
    notes = [f"{path.name}: {note}" for note in measurements.notes]
    if len(kernels) < len(every):
        notes.append(f"{path.name}: the reference kernel counts once per session")
    return Dataset(
        (path,),
        measurements.sessions,
        tuple(map(_as_table, kernels)),
        usable(measurements.hosts),
        usable(measurements.collectives),
        usable(measurements.runs),
        excluded,
        doubtful,
        len(measurements.failed) + len(measurements.unread),
        tuple(notes),
    )


def _one_reference(rows: Sequence[DatasetRow[KernelRow]]) -> list[DatasetRow[KernelRow]]:
    """Rows with one of each session's reference kernel: its first, with the median of all times.

    A session times it every few seconds and each other kernel once.
    """
    times: dict[str, list[float]] = {}
    for each in rows:
        if each.row.name == REFERENCE:
            times.setdefault(each.row.session, []).append(each.row.latency_us)
    scaled: list[DatasetRow[KernelRow]] = []
    for each in rows:
        if each.row.name != REFERENCE:
            scaled.append(each)
        elif session_times := times.pop(each.row.session, None):
            row = msgspec.structs.replace(each.row, latency_us=median(session_times))
            scaled.append(replace(each, row=row))
    return scaled


def _as_table(each: DatasetRow[KernelRow]) -> DatasetRow[TableKernel]:
    row, session = each.row, each.session
    values = {**row.kernel, "latency_us": row.latency_us, "id": f"{row.session} {row.at}"}
    if session is not None and session.device:
        values["device"] = session.device
    return DatasetRow(TableKernel(values, noise_of(row.spread)), each.number, each.file, session)


def noise_of(spread: RepeatSpread | None) -> float | None:
    """Log standard deviation of repeats, None where it is unknown."""
    if spread is None or spread.repeats < 2 or not 0.0 < spread.p05 <= spread.p95:
        return None
    return math.log(spread.p95 / spread.p05) / (2.0 * Z90)


def dataset_device(dataset: Dataset, name: str) -> tuple[Device, str]:
    """The device that was measured, and how a scenario names it.

    Args:
        name: as the user gives it, a catalog name or path; "" = as the sessions, or a column
            ``device``, state.

    Raises:
        SilicastError: none is stated, several are, or it is unknown.
    """
    if name:
        return find_any_device(name, Path()), name
    devices: dict[str, tuple[str, Path]] = {}
    counts: Counter[str] = Counter()
    kinds: tuple[tuple[DatasetRow[Any], ...], ...] = (
        dataset.kernels,
        dataset.hosts,
        dataset.collectives,
        dataset.runs,
    )
    for each in (each for rows in kinds for each in rows):
        if not each.device[0]:
            raise SilicastError(
                f"no device is named, and row {each.number} states none",
                field="device",
                file=str(each.file),
                hint="--device with a catalog name or the path of a device file",
            )
        any_device = find_any_device(*each.device)
        devices.setdefault(any_device.name, each.device)
        counts[any_device.name] += 1
    if len(devices) > 1:
        listed = ", ".join(f"{device} ({_rows(count)})" for device, count in counts.most_common())
        raise SilicastError(
            f"rows of several devices: {listed}",
            field="device",
            file=str(dataset.files[0]),
            hint="a calibration is of one device: name it with --device and leave out the others "
            "with --skip-bad",
        )
    if not devices:
        flagged = dataset.excluded.total()
        raise SilicastError(
            f"all {_rows(flagged)} are flagged" if flagged else "has no rows",
            file=str(dataset.files[0]),
            field="rows",
            hint="measure again on a quiet machine, or keep them with --keep-flagged"
            if flagged
            else "silicast measure -o FILE writes some",
        )
    ((called, folder),) = devices.values()
    device = find_any_device(called, folder)
    return device, str(folder / called) if called.endswith(".toml") else device.name


def calibration_scope(dataset: Dataset, device: Device) -> tuple[Scope, list[str]]:
    """Device, host and software of a calibration, and what differed between sessions."""
    notes = []
    hosts = sorted({session.host for session in dataset.sessions if session.host})
    if len(hosts) > 1:
        notes.append(f"measured on several hosts: {', '.join(hosts)}")
    versions: dict[str, set[str]] = {}
    for session in dataset.sessions:
        for software, version in session.stack.items():
            versions.setdefault(software, set()).add(version)
    for software, item in sorted(versions.items()):
        if len(item) > 1:
            notes.append(f"measured with several versions of {software}: {', '.join(sorted(item))}")
    stack = {software: max(item) for software, item in sorted(versions.items())}
    return Scope(device.name, hosts[0] if len(hosts) == 1 else "", stack), notes


SINGULAR = {"are": "is", "have": "has", "repeat": "repeats", "contradict": "contradicts"}
SHOWN = 20
"""Runs of row numbers that a line lists."""


@final
@dataclass(frozen=True)
class RejectedRows:
    """Rows that were not used.

    Attributes:
        numbers: (reason, file) -> row numbers. A reason is a predicate ("are of another device").
        several_files: whether lines name the file.
    """

    several_files: bool = False
    numbers: dict[tuple[str, Path | None], list[int]] = field(default_factory=dict)

    def add(self, reason: str, number: int, file: Path | None = None) -> None:
        self.numbers.setdefault((reason, file), []).append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self.numbers.values()))

    def lines(self) -> list[str]:
        """One line for each reason and file, with the count and the first row numbers."""
        lines = []
        for (reason, file), numbers in self.numbers.items():
            runs = _runs(sorted(numbers))
            first = ", ".join(runs[:SHOWN]) + (", ..." if len(runs) > SHOWN else "")
            where = f" of {file.name}" if self.several_files and file is not None else ""
            verb, _, remainder = reason.partition(" ")
            if len(numbers) == 1:
                lines.append(f"1 row {SINGULAR.get(verb, verb)} {remainder} (row {first}{where})")
            else:
                lines.append(f"{len(numbers)} rows {reason} (rows {first}{where})")
        return lines


def _runs(numbers: list[int]) -> list[str]:
    """Row numbers, consecutive ones as a range.

    >>> _runs([3, 5, 6, 7])
    ['3', '5-7']
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
