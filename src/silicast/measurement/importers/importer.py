"""What an importer is, and the one that understands a file."""

from __future__ import annotations

import abc
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from silicast.core.errors import SilicastError
from silicast.core.naming import normalise
from silicast.measurement.importers.options import Options
from silicast.measurement.importers.source import Source
from silicast.measurement.records import Record, Session, UnreadRow


@final
@dataclass(frozen=True)
class Reading:
    """What a file held.

    Attributes:
        session: where and how it was measured, as far as the file or the options say.
        records: all but the session.
        total_us: measured time in the file; understood_us: that of it which became rows that can
            be predicted. The rest is in rows that are listed as unread. Both 0 where a file holds
            no times that add up (runs under load).
        notes: what a reader must know.
    """

    session: Session
    records: tuple[Record, ...]
    total_us: float = 0.0
    understood_us: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def unread(self) -> tuple[UnreadRow, ...]:
        """What could not be understood, the longest first."""
        rows = [record for record in self.records if isinstance(record, UnreadRow)]
        return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


class Importer(abc.ABC):
    """Reads the files of one tool.

    Attributes:
        name: what ``--format`` calls it; reads: its files, in a few words.
    """

    name: str
    reads: str

    @abc.abstractmethod
    def recognises(self, source: Source) -> bool:
        """Whether the file is of this tool, by its content alone."""

    @abc.abstractmethod
    def read(self, source: Source, options: Options) -> Reading:
        """Everything in the file.

        Raises:
            SilicastError: names the file, the field and what was expected.
        """


_FOUND: dict[str, Importer] = {}


def importer(kind: type[Importer]) -> type[Importer]:
    """Registers an importer: a decorator of its class."""
    if kind.name in _FOUND:
        raise ValueError(f"two importers are called {kind.name}")
    _FOUND[kind.name] = kind()
    return kind


@functools.cache
def importers() -> Mapping[str, Importer]:
    """All importers by name, those of exact formats before the plain table."""
    import silicast.measurement.importers as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    tools = {name: package.benchmark_runs.BenchmarkTool(name, each) for name, each in package.field_map.field_maps().items()}
    return dict(sorted({**_FOUND, **tools}.items(), key=lambda item: (item[0] == "table", item[0])))


def importer_of(source: Source, name: str = "") -> Importer:
    """The importer that is called so or, without a name, the one that recognises the file.

    Raises:
        SilicastError: there is none; says what the file looks like.
    """
    known = importers()
    if name:
        found = {normalise(each): reader for each, reader in known.items()}.get(normalise(name))
        if found is None:
            raise SilicastError(
                f"unknown format {name!r}", kind="unknown_name", field="--format",
                hint=f"one of {', '.join(known)}",
            )  # fmt: skip
        if not source.head:
            raise _nothing(source)
        return found
    if not source.head:
        raise _nothing(source)
    for reader in known.values():
        if reader.recognises(source):
            return reader
    raise SilicastError(
        f"is of no format that is known: it looks like {look(source)}",
        file=str(source.path), field="file",
        hint=f"one of {', '.join(known)}; docs/how-to/import-measurements.md says how to make them",
    )  # fmt: skip


def look(source: Source) -> str:
    """What a file looks like, for errors."""
    if source.is_database:
        return "an SQLite database of another tool than Nsight Systems"
    if source.is_parquet:
        return "a Parquet file without the columns of a kernel"
    if source.holds('"record":"session"'):
        return "a file of measurements, which needs no import"
    head = source.head
    if head.startswith(b"PK"):
        return "a zip archive: unpack it first"
    if b"\0" in head[:4096]:
        return "binary data (a report of Nsight itself? export it as CSV or SQLite)"
    if source.is_json:
        keys = sorted(_keys(source))
        return f"JSON with {', '.join(keys[:8])}" if keys else "JSON"
    first = next((line for line in source.first_lines if line.strip()), "")
    return f"text that starts with {first.strip()[:60]!r}"


def _keys(source: Source) -> set[str]:
    """Names of the outer fields of a JSON file, as far as its head shows them."""
    import re

    return set(re.findall(r'^\s{0,4}[{\[]?\s*"([\w ]{1,40})"\s*:', source.head.decode(
        errors="replace"), re.MULTILINE))  # fmt: skip


def _nothing(source: Source) -> SilicastError:
    packed = source.is_packed
    return SilicastError(
        "is a damaged gzip file" if packed else "is empty",
        file=str(source.path), field="file",
        hint="was it cut off while it was written or copied?",
    )  # fmt: skip
