"""What an importer is given and gives, and the one that understands a file."""

from __future__ import annotations

import abc
import functools
import importlib
import math
import pkgutil
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, final

from silicast.core.catalog import catalog_files
from silicast.core.decode import read_table
from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near, normalise
from silicast.formats.source import CUT_OFF, Source
from silicast.formats.tables import NAME, column_names
from silicast.hardware.catalog import find_device
from silicast.measurement.records.records import Columns, Protocol, Record, Session, UnreadRow
from silicast.scenario.schema import RawScenario

if TYPE_CHECKING:
    from silicast.measurement.importers.operator_spans import DeviceTimes

T = TypeVar("T")
SERVERS = re.compile(
    r"\bvllm\s+serve\b|\bvllm\.entrypoints\.[\w.]*api_server\b|\bsglang\.launch_server\b"
    r"|\btrtllm-serve\b"
)
"""Commands that start servers."""
TABLES = ("kernel", "collective", *RawScenario.__struct_fields__)
"""What stated fields may start with: tables of rows, and those of a scenario."""


@final
@dataclass(frozen=True)
class Options:
    """What a user states of a file beside its content.

    Attributes:
        device: catalog name or path of a device file; "" = as the file states.
        fields: dotted field of a scenario -> its value; they win over those of the file.
        session: name of the session.

    Raises:
        SilicastError: a field starts with the name of no table.

    >>> Options(fields={"kernel.cache": "cold", "model": "x"}).under("kernel")
    {'cache': 'cold'}
    """

    device: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    session: str = "import"

    def __post_init__(self) -> None:
        """Rejects fields that no file has."""
        for name in self.fields:
            table = name.partition(".")[0]
            if table not in TABLES:
                raise unknown_name(f"no field {name!r}", "--set", near(table, TABLES))

    def under(self, prefix: str) -> dict[str, Any]:
        """Fields below a prefix, without it."""
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in self.fields.items() if k.startswith(start)}


@final
@dataclass(frozen=True)
class FileReading:
    """The content of a file.

    Attributes:
        session: where and how it was measured, as far as the file or the options hold it.
        records: all but the session.
        total_us: measured time in the file; understood_us: the part in rows that can be predicted;
            the rest is in rejected rows. Both 0 where a file holds no times that add up (runs
            under load).
        notes: what a reader must know.
        idle_us: time from the first kernel to the last in which none ran, None where the file has
            no times of day; busy_us: the time in which at least one ran: less than ``total_us``
            where streams overlap.
        overlap_us: kernels ran beside others of their own stream; overlap: the rows of the longest
            such time, "" = there is none, or streams are not recorded.
    """

    session: Session
    records: tuple[Record, ...]
    total_us: float = 0.0
    understood_us: float = 0.0
    notes: tuple[str, ...] = ()
    idle_us: float | None = None
    busy_us: float | None = None
    overlap_us: float = 0.0
    overlap: str = ""

    def at(self, times: DeviceTimes | None) -> FileReading:
        """With when its device worked."""
        if times is None:
            return self
        return replace(
            self,
            idle_us=times.idle_us,
            busy_us=times.busy_us,
            overlap_us=times.overlap_us,
            overlap=times.overlap,
        )

    @property
    def rejected(self) -> tuple[UnreadRow, ...]:
        """Rows that could not be understood, the longest first."""
        rows = [record for record in self.records if isinstance(record, UnreadRow)]
        return tuple(sorted(rows, key=lambda row: (-row.total_us, row.name)))


class Importer(abc.ABC):
    """Reads the files of one tool.

    Attributes:
        name: of its ``--format``; reads: its files, in a few words.
    """

    name: str
    reads: str

    @classmethod
    def instances(cls) -> Iterable[Importer]:
        """The importers of this kind: one, or one for each tool that data describe."""
        return [cls()]

    @abc.abstractmethod
    def recognises(self, source: Source) -> bool:
        """Whether the file is of this tool, by its content alone."""

    @abc.abstractmethod
    def read(self, source: Source, options: Options) -> FileReading:
        """Everything in the file.

        Raises:
            SilicastError: names the file, the field and what was expected.
        """


def session_of(
    source: Source,
    options: Options,
    tool: str,
    protocol: Protocol,
    *,
    reported: Collection[str] = (),
    devices: int = 1,
    stack: Mapping[str, str] | None = None,
    machine: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Session:
    """A session of one file.

    Args:
        tool: what measured.
        reported: names of the devices in the file; devices: how many took part.

    Raises:
        SilicastError: the devices differ from each other, or from the one that the user names.
    """
    names = sorted({name for name in reported if name})
    catalog_names = {name: _catalog_name(name) for name in names}
    if len({device or name for name, device in catalog_names.items()}) > 1:
        different = f"holds kernels of different devices: {', '.join(names)}"
        raise source.error(different, "device", "record one kind of device a file")
    device = next(iter(catalog_names.values()), "")
    if options.device:
        wanted = find_device(options.device).name
        if device and device != wanted:
            text = f"was measured on {names[0]} ({device}), not on {wanted}"
            raise source.error(text, "--device", "leave --device out")
        device = options.device if options.device.endswith(".toml") else wanted
    if names and not device:
        notes = (*notes, f"{names[0]} is in no catalog: name it with --device")
    return Session(
        id=options.session,
        started="",
        device=device,
        device_reported=names[0] if names else "",
        devices=max(devices, 1),
        stack=dict(stack or {}),
        machine=dict(machine or {}),
        protocol=protocol,
        source=tool,
        notes=list(notes),
    )


def gpus_of(scenario: Columns) -> int:
    """Devices of a deployment."""
    degrees = scenario.get("parallel", {})
    return math.prod(int(degrees.get(name, 1)) for name in ("tp", "pp", "attention_dp"))


def _catalog_name(reported: str) -> str:
    """The catalog's name of what a driver reports; "" if it has none. No path is followed."""
    try:
        return "" if reported.endswith(".toml") else find_device(reported).name
    except SilicastError:
        return ""


def from_catalog(folder: str, kind: type[T]) -> dict[str, T]:
    """Data files of a folder of the catalog by name, those of a user's own folder last.

    Raises:
        SilicastError: a file has another form.
    """
    catalog: dict[str, T] = {}
    for path in catalog_files(folder, ".toml"):
        catalog[path.stem] = read_table(path, kind, "docs/how-to/add-an-importer.md")
    return catalog


@functools.cache
def importers() -> Mapping[str, Importer]:
    """All importers by name, those of exact formats before the plain table."""
    import silicast.measurement.importers as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    instances = [each for kind in Importer.__subclasses__() for each in kind.instances()]
    return {
        each.name: each for each in sorted(instances, key=lambda x: (x.name == "table", x.name))
    }


def importer_of(source: Source, name: str = "") -> Importer:
    """The importer of that name or, without a name, the one that recognises the file.

    Raises:
        SilicastError: there is none; describes what the file looks like.
    """
    formats = importers()
    named = {normalise(each): reader for each, reader in formats.items()}.get(normalise(name))
    if name and named is None:
        raise unknown_name(f"unknown format {name!r}", "--format", f"one of {', '.join(formats)}")
    if not source.head:
        empty = "is a damaged gzip file" if source.is_packed else "is empty"
        raise source.error(empty, hint=CUT_OFF)
    importer = named or next((each for each in formats.values() if each.recognises(source)), None)
    if importer is None:
        if source.path.suffix.casefold() in (".yaml", ".yml"):
            _ = source.table  # raises what is wrong with its YAML
        raise source.error(
            f"is of no format that is known: it looks like {look(source)}",
            hint=_starts_server(source)
            or f"one of {', '.join(formats)}; a training configuration becomes a scenario with -o "
            "FILE.json; docs/how-to/import-measurements.md",
        )
    return importer


def _starts_server(source: Source) -> str:
    """What to do with a script that starts a server; "" = it starts none."""
    text = source.head.decode(errors="replace")
    started = SERVERS.search("" if source.is_json else text)
    if started is None:
        return ""
    return (
        f"it starts a server ({' '.join(started[0].split())}), of which none becomes a scenario: "
        "state model and degrees to `silicast serve`, its limits as --option NAME=VALUE, or give "
        "the server's log: --from-log"
    )


def look(source: Source) -> str:
    """What a file looks like, for errors."""
    looks = {
        "an SQLite database of another tool than Nsight Systems": source.is_database,
        "a Parquet file without the columns of a kernel": source.is_parquet,
        "a file of measurements, which needs no import": source.holds('"record":"session"'),
        "a zip archive: unpack it first": source.head.startswith(b"PK"),
        "binary data (a report of Nsight itself? export it as CSV or SQLite)": (
            b"\0" in source.head[:4096]
        ),
    }
    for name, holds in looks.items():
        if holds:
            return name
    if source.is_json:
        text = source.head.decode(errors="replace")
        keys = sorted(set(re.findall(r'^\s{0,4}[{\[]?\s*"([\w ]{1,40})"\s*:', text, re.MULTILINE)))
        return f"JSON with {', '.join(keys[:8])}" if keys else "JSON"
    first = next((line for line in source.first_lines if line.strip()), "")
    cells = [cell.strip() for cell in first.split(",")]
    if len(cells) > 1 and all(NAME.fullmatch(cell) for cell in cells):
        return f"a table with the columns {column_names(cells)}"
    return f"text of {len(source.first_lines)} lines"  # which is nobody's but its owner's
