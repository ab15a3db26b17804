"""A store of answers: a folder of Parquet shards, each written once, and what swept them.

    manifest.json           what the folder is
    sweeps/<identity>.json  a space that was swept: its axes, and who answered
    rows/<hash>.parquet     answers, named by their keys

Every file appears whole or not at all, under a name that its content gives, so that processes that
know nothing of each other may write into one store, on one machine or on many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import msgspec

import silicast
from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded, write_atomically, write_errors, writing
from silicast.exploration.scenario_space import ScenarioSpace
from silicast.formats.table_writer import pyarrow_for
from silicast.runner.points import PointCase
from silicast.scenario.answer import Belief, Problem
from silicast.scenario.run import package_hash

KIND, FORMAT = "silicast store", 1
MANIFEST, SWEEPS, ROWS = "manifest.json", "sweeps", "rows"
PAGE = "docs/how-to/sweep-a-space.md"
MOST_BYTES = 64 << 20
FIELD = "field."
"""Before the name of a column of a scenario's field."""
FIXED = (
    "key",
    "version",
    "package",
    "ok",
    "tier",
    "domain",
    "error_kind",
    "error_field",
    "error_message",
    "memory_excess_gb",
    "scenario",
    "answer",
)
"""Columns of every shard beside fields and metrics."""
LONG = ("scenario", "answer")
"""Columns that are read only where they are wanted."""


class StoreManifest(Strict, frozen=True):
    """``manifest.json``."""

    kind: str
    format: int


class SweepRecord(Strict, frozen=True):
    """``sweeps/<identity>.json``: a space that was swept into the store.

    Attributes:
        axes: field -> its values.
        base: fields that all its scenarios have; folder: where relative paths start.
    """

    identity: str
    version: str
    points: int
    axes: dict[str, list[Any]]
    base: dict[str, Any]
    folder: str


class _StoredMemory(msgspec.Struct, frozen=True):
    excess: float | None = None


class _StoredReasons(msgspec.Struct, frozen=True):
    memory_gb: _StoredMemory = _StoredMemory()


class _Stored(msgspec.Struct, frozen=True):
    """What of an answer goes into columns."""

    ok: bool
    metrics: dict[str, Belief] = {}
    tier: str = ""
    domain: str = ""
    error: Problem | None = None
    why: _StoredReasons = _StoredReasons()


@final
@dataclass(frozen=True)
class AnswerStore:
    """A folder of answers.

    Attributes:
        folder: where it is.
    """

    folder: Path

    @staticmethod
    def begun(folder: Path) -> AnswerStore:
        """The store of a folder; a new one where it is empty or missing.

        Raises:
            SilicastError: the folder holds something else, or cannot be written.
        """
        store = AnswerStore(folder)
        if not (folder / MANIFEST).exists():
            with write_errors(folder):
                if folder.exists() and any(folder.iterdir()):
                    raise SilicastError(
                        "is not empty and no store",
                        kind="io",
                        file=str(folder),
                        hint="name a new folder",
                    )
                (folder / ROWS).mkdir(parents=True, exist_ok=True)
                (folder / SWEEPS).mkdir(exist_ok=True)
            manifest = StoreManifest(KIND, FORMAT)
            write_atomically(folder / MANIFEST, msgspec.json.encode(manifest) + b"\n")
        return store.checked()

    def checked(self) -> AnswerStore:
        """The same store, once its manifest was read.

        Raises:
            SilicastError: there is none, or it is of another format.
        """
        path = self.folder / MANIFEST
        if not path.exists():
            raise SilicastError(
                "is no store: it has no manifest.json",
                kind="io",
                file=str(self.folder),
                hint="silicast sweep SPACE.toml -o STORE makes one",
            )
        content = read_bounded(path, MOST_BYTES, "the manifest of a store")
        manifest = decode_json(content, StoreManifest, file=str(path), page=PAGE)
        if (manifest.kind, manifest.format) != (KIND, FORMAT):
            raise SilicastError(
                f"is of {manifest.kind[:40]!r}, format {manifest.format}: this version reads "
                f"{KIND!r}, format {FORMAT}",
                kind="io",
                file=str(path),
                hint="name another folder",
            )
        return self

    def note(self, space: ScenarioSpace, folder: Path) -> None:
        """Notes that a space is swept into the store."""
        path = self.folder / SWEEPS / f"{space.identity}.json"
        if path.exists():
            return
        axes = {name: list(space.levels(name)) for name in space.fields}
        record = SweepRecord(
            space.identity,
            silicast.__version__,
            space.counts()[0],
            axes,
            dict(space.base),
            str(folder.absolute()),
        )
        write_atomically(path, msgspec.json.format(msgspec.json.encode(record)) + b"\n")

    def sweeps(self) -> list[SweepRecord]:
        """All spaces that were swept, by their identities.

        Raises:
            SilicastError: a file is none.
        """
        return [
            decode_json(
                read_bounded(path, MOST_BYTES, "the record of a sweep"),
                SweepRecord,
                file=str(path),
                page=PAGE,
            )
            for path in sorted((self.folder / SWEEPS).glob("*.json"))
        ]

    def shards(self) -> list[Path]:
        """Files of answers, by name."""
        return sorted((self.folder / ROWS).glob("*.parquet"))

    def keys(self, part: str = "") -> set[str]:
        """Of all answers, of this version or another.

        Args:
            part: of a space, see :func:`part_name`: answers of its other parts are left out, which
                have other points.

        Raises:
            SilicastError: a shard is none, or cut off.
        """
        keys = set[str]()
        for path in self.shards():
            if not _other_part(path, part):
                keys.update(_column(read_shard(path, ["key"]), "key"))
        return keys

    def add(
        self, rows: Sequence[tuple[PointCase, bytes]], types: Mapping[str, str], part: str = ""
    ) -> Path:
        """Writes answers as one shard.

        Args:
            rows: cases and their answers, a line of JSON each.
            types: field -> kind of its column, see :func:`column_types`.
            part: of a space that they are, see :func:`part_name`.

        Raises:
            SilicastError: it cannot be written; nothing of it stays then.
        """
        arrow = pyarrow_for("--output")
        ordered = sorted(rows, key=lambda row: row[0].key)
        name = hashlib.blake2b(
            "".join(case.key for case, _ in ordered).encode(), digest_size=12
        ).hexdigest()
        table = arrow.table(_columns(ordered, types, arrow))
        path = self.folder / ROWS / f"{name}{part and '.'}{part}.parquet"
        with writing(path) as file:
            arrow.parquet.write_table(table, file, compression="zstd")
        return path


def part_name(space: ScenarioSpace, number: int, count: int) -> str:
    """Name of one of several parts of a space; "" for the whole."""
    return f"{space.identity}-{count}-{number}" if count > 1 else ""


def _other_part(path: Path, part: str) -> bool:
    """Whether a shard is of another part of the same space, divided in the same way."""
    of = path.name.removesuffix(".parquet").partition(".")[2]
    return of != part and of.rpartition("-")[0] == part.rpartition("-")[0] != ""


def column_types(space: ScenarioSpace) -> dict[str, str]:
    """Field that varies -> the kind of its column: "int", "float", "bool" or "text".

    What is none of them, or several, is text: words as they are, all else as JSON.
    """
    return {name: _type_of(space.levels(name)) for name in space.fields}


def _type_of(values: Sequence[Any]) -> str:
    if all(isinstance(value, bool) for value in values):
        return "bool"
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return "text"
    return "int" if all(isinstance(value, int) for value in values) else "float"


def _columns(
    rows: Sequence[tuple[PointCase, bytes]], types: Mapping[str, str], arrow: Any
) -> dict[str, Any]:
    decoder = msgspec.json.Decoder(_Stored)
    stored = [decoder.decode(line) for _, line in rows]
    empty = Problem("internal", "", "", "")
    errors = [each.error or empty for each in stored]
    fixed: dict[str, list[Any]] = {
        "key": [case.key for case, _ in rows],
        "version": [silicast.__version__] * len(rows),
        "package": [package_hash()] * len(rows),
        "ok": [each.ok for each in stored],
        "tier": [each.tier for each in stored],
        "domain": [each.domain for each in stored],
        "error_kind": [
            "" if each.ok else error.kind for each, error in zip(stored, errors, strict=True)
        ],
        "error_field": [error.field for error in errors],
        "error_message": [error.message for error in errors],
    }
    columns = {name: arrow.array(values) for name, values in fixed.items()}
    excess = [each.why.memory_gb.excess for each in stored]
    columns["memory_excess_gb"] = arrow.array(excess, arrow.float64())
    kinds = {"int": arrow.int64(), "float": arrow.float64(), "bool": arrow.bool_()}
    for name, kind in types.items():
        values = [case.fields.get(name) for case, _ in rows]
        if kind == "text":
            values = [None if value is None else _text(value) for value in values]
        columns[f"{FIELD}{name}"] = arrow.array(values, kinds.get(kind, arrow.string()))
    metrics = sorted({name for each in stored for name in each.metrics})
    for name in metrics:
        beliefs = [each.metrics.get(name) for each in stored]
        for ending, part in (("", "estimate"), ("_p05", "p05"), ("_p95", "p95")):
            numbers = [None if belief is None else getattr(belief, part) for belief in beliefs]
            columns[f"{name}{ending}"] = arrow.array(numbers, arrow.float64())
    columns["scenario"] = arrow.array([case.case.decode() for case, _ in rows], arrow.string())
    columns["answer"] = arrow.array([line.decode() for _, line in rows], arrow.string())
    return columns


def read_shard(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A shard as a table of pyarrow; columns that it has not are left out.

    Raises:
        SilicastError: it is none, or cut off.
    """
    arrow = pyarrow_for("STORE")
    try:
        with arrow.parquet.ParquetFile(path) as file:
            present = file.schema_arrow.names
            chosen = None if columns is None else [name for name in columns if name in present]
            return file.read(columns=chosen)
    except (arrow.ArrowException, OSError) as error:
        raise SilicastError(
            f"is no whole shard: {str(error).splitlines()[0][:120]}",
            kind="io",
            file=str(path),
            hint="remove it: a further sweep answers its points again",
        ) from None


def _column(table: Any, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return values


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
