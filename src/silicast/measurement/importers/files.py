"""Files of other tools into a file of measurements."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError
from silicast.core.files import opened_file, read_errors, writing
from silicast.formats.source import MAX_BYTES, Source
from silicast.measurement.importers.importer import FileReading, Options, importer_of
from silicast.measurement.records.records import read_measurements
from silicast.measurement.records.store import MeasurementFile, missing_rows

_DIGITS = 10


@final
@dataclass(frozen=True)
class Imported:
    """One file that was read.

    Attributes:
        format: name of the importer that understood it.
    """

    path: Path
    format: str
    reading: FileReading


def import_files(
    paths: Sequence[Path],
    *,
    name: str = "",
    device: str = "",
    fields: Mapping[str, Any] | None = None,
) -> list[Imported]:
    """Reads files, each as a session of its own, named by the file and its content.

    Args:
        name: of the importer; "" = the one that recognises each file.
        device: what the files were measured on, where they do not hold it themselves.
        fields: dotted fields of scenarios that they do not hold.

    Raises:
        SilicastError: names the file, the field and what was expected.
    """
    table: dict[str, Imported] = {}
    for path in paths:
        options, source = Options(device, dict(fields or {}), _session_name(path)), Source(path)
        reader = importer_of(source, name)
        if same := table.get(options.session):
            raise source.error(f"holds the same as {same.path}", hint="give each file once")
        reading = reader.read(source, options)
        table[options.session] = Imported(path, reader.name, reading)
    return list(table.values())


def save(imported: Sequence[Imported], output: Path) -> None:
    """Writes what was read, all or nothing; a file of measurements that exists is continued.

    Rows lost when an import was interrupted are added by importing the same files again.

    Raises:
        SilicastError: it cannot be written, holds something else, or one of the files already.
    """
    readings = [(each.reading.session, each.reading.records) for each in imported]
    if _holds_something(output):
        before = read_measurements(output)
        for each, reading in zip(imported, readings, strict=True):
            if missing_rows(before, *reading) is None:
                raise SilicastError(
                    f"already holds {each.path}",
                    file=str(output),
                    field="session",
                    hint="was this imported before? Write to another file",
                )
        MeasurementFile.add(output, readings)
        return
    inputs = [each.path.stat() for each in imported]
    encoder = msgspec.json.Encoder()
    with writing(output, source=inputs[0] if inputs else None) as stream:
        for session, records in readings:
            for record in (session, *records):
                stream.write(encoder.encode(record) + b"\n")


def _holds_something(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False


def _session_name(path: Path) -> str:
    """The file's name with a digest of its content."""
    with opened_file(path, MAX_BYTES, "a file of measurements") as file, read_errors(path):
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{path.name[:200]} {digest[:_DIGITS]}"
