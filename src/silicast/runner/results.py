"""Rows of a store: chosen by their fields and metrics, in an order that their content gives."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

import msgspec

from silicast.core.errors import SilicastError, errors_located, unknown_name
from silicast.core.files import writing
from silicast.core.naming import near
from silicast.core.plain_data import value_of_word
from silicast.formats.table_writer import check_ending, pyarrow_for
from silicast.runner.points import PointCase
from silicast.runner.replies import replies
from silicast.runner.store import FIELD, FIXED, LONG, AnswerStore, read_shard
from silicast.scenario.answer import Reply, reply_of
from silicast.scenario.run import package_hash

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_CONDITION = re.compile(r"\s*([\w.\[\]-]+)\s*(<=|>=|!=|<|>|=)\s*(.+?)\s*")
Versions = Literal["current", "all"]


@final
@dataclass(frozen=True)
class Condition:
    """What a row must keep: a column against a value."""

    column: str
    comparison: str
    value: Any

    @staticmethod
    def parse(text: str) -> Condition:
        """From words such as ``device=h100`` and ``ttft_p99_ms<=200``.

        Raises:
            SilicastError: it has none of the comparisons.

        >>> Condition.parse("ttft_p99_ms<=200")
        Condition(column='ttft_p99_ms', comparison='<=', value=200)
        """
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise SilicastError(
                f"expected NAME=VALUE, found {text[:60]!r}",
                field="--where",
                hint=f"for example device=h100; comparisons are {', '.join(COMPARISONS)}",
            )
        name, comparison, value = match.groups()
        return Condition(name, comparison, value_of_word(value))

    def keeps(self, value: Any) -> bool:
        """Whether a value keeps it; one of another kind does not."""
        if isinstance(value, str) != isinstance(self.value, str):
            return self.comparison == "!="
        return value is not None and COMPARISONS[self.comparison](value, self.value)


@final
@dataclass(frozen=True)
class StoredRows:
    """Rows of a store, without their scenarios and answers.

    Attributes:
        rows: column -> value; fields by their dotted names.
        fields, metrics: names of columns.
        others: rows of other versions, which are left out.
    """

    rows: Sequence[Mapping[str, Any]]
    fields: tuple[str, ...]
    metrics: tuple[str, ...]
    others: int

    @property
    def fitting(self) -> StoredRows:
        """Rows that do not need more memory than their device has."""
        rows = [row for row in self.rows if not row.get("memory_excess_gb")]
        return StoredRows(rows, self.fields, self.metrics, self.others)

    @property
    def over_memory(self) -> int:
        """How many rows need more memory than their device has."""
        return len(self.rows) - len(self.fitting.rows)

    @property
    def varying(self) -> tuple[str, ...]:
        """Fields that differ among the rows."""
        return tuple(
            name for name in self.fields if len({repr(row.get(name)) for row in self.rows}) > 1
        )

    def column(self, name: str) -> str:
        """A column's name, once it is one.

        Raises:
            SilicastError: it is none.
        """
        names = (*self.fields, *self.metrics, *FIXED)
        if name not in names:
            raise unknown_name(
                f"no column {name!r:.60}", hint=near(name, [*self.fields, *self.metrics])
            )
        return name

    def where(self, conditions: Sequence[Condition]) -> StoredRows:
        """Rows that keep all conditions; raises as :meth:`column`."""
        for each in conditions:
            with errors_located(field="--where"):
                self.column(each.column)
            if isinstance(each.value, str) and self._is_number(each.column):
                raise SilicastError(
                    f"{each.column} is a number, found {each.value[:40]!r}",
                    field="--where",
                    hint=f"for example {each.column}{each.comparison}5, without a unit",
                )
        rows = [row for row in self.rows if all(c.keeps(row.get(c.column)) for c in conditions)]
        return StoredRows(rows, self.fields, self.metrics, self.others)

    def _is_number(self, column: str) -> bool:
        values = [row.get(column) for row in self.rows]
        return any(isinstance(value, int | float) for value in values)

    def by(self, name: str) -> StoredRows:
        """Rows in order of a column, those without a value last; "-name" = the largest first."""
        falls = name.startswith("-")
        with errors_located(field="--sort"):
            column = self.column(name.removeprefix("-"))
        having = [row for row in self.rows if row.get(column) is not None]
        without = [row for row in self.rows if row.get(column) is None]
        having.sort(key=lambda row: _order(row[column]), reverse=falls)
        return StoredRows([*having, *without], self.fields, self.metrics, self.others)


def stored_rows(store: AnswerStore, versions: Versions = "current") -> StoredRows:
    """All rows of a store, each key once, by their fields.

    Args:
        versions: "current" = of this version and its numbers; "all" = of others too.

    Raises:
        SilicastError: a shard is none, or cut off.
    """
    table: dict[str, dict[str, Any]] = {}
    fields, metrics = set[str](), dict[str, None]()
    for path in store.shards():
        shard = read_shard(path, _short(path))
        names = shard.schema.names
        fields |= {name.removeprefix(FIELD) for name in names if name.startswith(FIELD)}
        metrics |= dict.fromkeys(n for n in names if not n.startswith(FIELD) and n not in FIXED)
        for row in shard.to_pylist():
            named = {name.removeprefix(FIELD): value for name, value in row.items()}
            table.setdefault(named["key"], named)
    here = package_hash()
    chosen = [row for row in table.values() if versions == "all" or row["package"] == here]
    ordered = tuple(sorted(fields))
    chosen.sort(key=lambda row: (*(_order(row.get(name)) for name in ordered), row["key"]))
    return StoredRows(chosen, ordered, tuple(sorted(metrics)), len(table) - len(chosen))


def export(store: AnswerStore, rows: StoredRows, path: Path) -> None:
    """Writes rows: as answers of a batch (.jsonl), or as a table (.csv, .parquet).

    Raises:
        SilicastError: the ending names no format, or the file cannot be written.
    """
    check_ending(path, "--output")
    if path.suffix == ".jsonl":
        answers = _long(store, "answer", {row["key"] for row in rows.rows})
        with writing(path) as file:
            file.writelines(answers[row["key"]].encode() + b"\n" for row in rows.rows)
        return
    arrow = pyarrow_for("--output")
    names = [*rows.fields, *(n for n in FIXED if n not in LONG), *rows.metrics]
    table = arrow.table({n: arrow.array([row.get(n) for row in rows.rows]) for n in names})
    with writing(path) as file:
        if path.suffix == ".parquet":
            arrow.parquet.write_table(table, file)
        else:
            arrow.csv.write_csv(table, file)


def answers_of(
    store: AnswerStore, cases: Iterable[PointCase]
) -> Iterator[tuple[Mapping[str, Any], Reply]]:
    """The varying fields and the stored answer of each case that the store has, in order."""
    chosen = list(cases)
    answers = _long(store, "answer", {case.key for case in chosen})
    for case in chosen:
        if case.key in answers:
            yield case.fields, reply_of(answers[case.key])


def write_cases(store: AnswerStore, rows: StoredRows, path: Path) -> None:
    """Writes the scenarios of rows as the cases of a batch, in the same order.

    Raises:
        SilicastError: it cannot be written.
    """
    cases = _long(store, "scenario", {row["key"] for row in rows.rows})
    with writing(path) as file:
        file.writelines(cases[row["key"]].encode() + b"\n" for row in rows.rows)


@final
class Reproduced(msgspec.Struct, frozen=True):
    """A stored answer beside the answer of now.

    Attributes:
        version, package: that answered; stored, anew: answers as lines of JSON.
    """

    key: str
    version: str
    package: str
    scenario: str
    stored: str
    anew: str

    @property
    def same(self) -> bool:
        """Whether they are the same bytes."""
        return self.stored == self.anew


def reproduced(
    store: AnswerStore, start: str, folder: Path, calibrations: Sequence[Path] = ()
) -> Reproduced:
    """Answers a stored question again.

    Args:
        start: of its key, as far as that is the only one.
        folder: where relative paths of the scenario start.

    Raises:
        SilicastError: no key starts so, or several do.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for path in store.shards():
        shard = read_shard(path, ["key", "version", "package", *LONG])
        for row in shard.to_pylist():
            if row["key"].startswith(start):
                rows.setdefault(row["key"], row)
    if len(rows) != 1:
        few = ", ".join(sorted(rows)[:4])
        raise SilicastError(
            f"{len(rows)} keys start with {start[:40]!r}" if rows else f"no key {start[:40]!r}",
            field="HASH",
            file=str(store.folder),
            hint=f"give more of it: {few}" if rows else "`silicast results --metrics key` has them",
        )
    ((key, row),) = rows.items()
    (anew,) = replies([(1, row["scenario"].encode())], folder, calibrations).rows
    return Reproduced(
        key,
        row["version"],
        row["package"],
        row["scenario"],
        row["answer"],
        anew.line.decode().rstrip("\n"),
    )


def _short(path: Path) -> list[str]:
    arrow = pyarrow_for("STORE")
    try:
        names: list[str] = arrow.parquet.read_schema(path).names
    except (arrow.ArrowException, OSError):
        return ["key"]  # read_shard says what is wrong with it
    return [name for name in names if name not in LONG]


def _long(store: AnswerStore, name: str, keys: set[str]) -> dict[str, str]:
    """A long column of rows, by their keys."""
    table: dict[str, str] = {}
    for path in store.shards():
        shard = read_shard(path, ["key", name])
        for row in shard.to_pylist():
            if row["key"] in keys:
                table.setdefault(row["key"], row[name])
    return table


def _order(value: Any) -> tuple[int, Any]:
    """A key by which values of any kind have an order: nothing, numbers, words."""
    if value is None:
        return 0, 0
    return (2, value) if isinstance(value, str) else (1, value)
