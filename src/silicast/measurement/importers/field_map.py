"""Field maps: which field of a benchmark tool's result file is which of ours.

A map is one TOML file of ``catalog/field_maps``. A path names tables in tables ("engine.model");
"*" stands for each member of a list, or of a table by name; of several paths the first with a value
counts. CSV and printed text are read as tables first: a row of statistics as a table with the
row's title as its name, a printed line as a field with its label.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, final

from silicast.core.decode import Strict
from silicast.formats.engine_log import without_labels
from silicast.formats.source import Source

Field = Literal[
    "model", "engine", "version", "name", "tp", "pp", "ep", "attention_dp", "requests", "sent",
    "failed", "failed_counts", "errors", "incomplete", "cancelled", "duration_s", "duration_ms",
    "rate_per_s", "even_rate_per_s",
    "burstiness", "concurrency", "mean_concurrency", "range_ratio", "most_input", "most_output",
    "input_lens", "output_lens", "start_times", "input_tokens", "output_tokens", "input_len",
    "output_len", "output_tokens_per_s", "requests_per_s",
]  # fmt: skip
Latency = Literal["ttft", "tpot", "itl", "e2e"]
Paths = str | list[str]

STATISTICS = {
    "mean": "mean",
    "avg": "mean",
    "average": "mean",
    "median": "p50",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
}
"""Statistics as tools call them -> as answers do; others no answer has."""
MS_PER = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
_PRINTED = re.compile(r"^(?:\[[^\]]*\]\s*)*(?P<label>[^:\n]+?)\s*:\s+(?P<value>\S.*)$")
_HEADINGS = ("Metric", "Statistic")
"""First cells of the rows that name statistics."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULES = re.compile("[┃│]")
_COMMAND = re.compile(r"CLI Command:\s*(.*)")
_FLAG = re.compile(r"--(?P<name>[a-z][\w-]*)[ =](?P<value>'[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)")
_NAMESPACE = re.compile(r"\bNamespace\((.*)")
_PIECE = re.compile(r"""'[^']*'|"[^"]*"|[()\[\]{},'"]|[^()\[\]{},'"]+""")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
DECIMAL_POINT = "write numbers with a decimal point: 46,213 may be either"
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_ARGUMENT = re.compile(
    r"\s*(?P<name>[a-z]\w{0,63})=(?:(?P<quote>['\"])(?P<text>.*)(?P=quote)|(?P<bare>[\w.+-]+))"
)
_SEVERAL = re.compile(r"(?P<value>[\d.,]*\d) (?P<unit>[a-z ]+/s)(?:,|$)")
"""Values of one line, each with its unit."""
_STATISTIC = re.compile(r"\[(?P<name>\w+)\]\s+(?P<statistic>[A-Z0-9]+)\s*:\s*(?P<value>\S+)")


@final
class ResultFile(Strict, frozen=True):
    """How a result file of a tool is recognised by its first 64 KiB.

    Attributes:
        holds, lacks: words of it, of JSON the names of fields; starts: its first line's start.
    """

    kind: Literal["json", "csv", "text"]
    holds: list[str] = []
    lacks: list[str] = []
    starts: str = ""

    def recognises(self, source: Source) -> bool:
        """Whether a file is such a one."""
        if source.is_json != (self.kind == "json"):
            return False
        quote = '"' if self.kind == "json" else ""
        first = source.first_lines[0] if source.first_lines else ""
        return (
            first.startswith(self.starts)
            and source.holds(*(f"{quote}{word}{quote}" for word in self.holds))
            and not any(source.holds(f"{quote}{word}{quote}") for word in self.lacks)
        )


@final
class FieldMap(Strict, frozen=True):
    """The result files of one tool.

    Attributes:
        tool: its name; reads: its files, in a few words.
        files: how they are recognised.
        fields: our field -> its paths.
        latencies: our latency -> paths with ``{statistic}`` in them, in the unit beside the value
            or in milliseconds. means_ms: paths of its mean in milliseconds; where this is given,
            the unit of the others follows from it.
        engines: the tool's name of an engine, possibly followed by "-", -> ours;
            assumed_engines: those that other engines may hide behind; engine: of tools of one.
        only_if: field -> paths and patterns of what else the file must hold for it to count.
        skipped: fields and patterns of members that "*" leaves out.
        at_once: all requests are sent at once.
        exact_rate: at a rate the last request is sent at requests / rate.
        results: the list of a file that holds its results; what else the file holds is in each of
            them under "file". "" = each object is one.
        seconds: latencies that are in seconds where no unit is beside them.
        title: of a printed table, of which a text may hold several; "" = all of it is one. What a
            launcher puts before each line goes.
        unstated: last path of a field -> its value where a printed table does not hold it.
        boundary: where its times begin and end: at a "client" of the HTTP server, or at the
            "engine", to which the tool hands requests in its own process.
    """

    tool: str
    reads: str
    files: list[ResultFile]
    fields: dict[Field, Paths]
    latencies: dict[Latency, Paths]
    means_ms: dict[Latency, Paths] = {}
    engines: dict[str, str] = {}
    assumed_engines: dict[str, str] = {}
    engine: str = ""
    only_if: dict[Field, dict[str, str]] = {}
    skipped: dict[str, str] = {}
    at_once: bool = False
    exact_rate: bool = False
    results: str = ""
    seconds: list[Latency] = []
    title: str = ""
    unstated: dict[str, str] = {}
    boundary: Literal["client", "engine"] = "client"

    def documents(self, source: Source) -> list[tuple[int, Mapping[str, Any]]]:
        """The results of a file with their row numbers.

        Raises:
            SilicastError: as :meth:`Source.objects`, or no CSV.
        """
        kinds = {file.kind for file in self.files}
        if source.is_json or kinds == {"json"}:
            objects = source.objects()
            return _members(objects, self.results, source) if self.results else list(objects)
        text = _COLOUR.sub("", source.text())
        printed = (file.holds[0] for file in self.files if file.kind == "text" and file.holds)
        if title := self.title or next(printed, ""):
            header = re.compile(f"=*[ \\t]*{re.escape(title)}")
            text = "\n".join(without_labels(text.splitlines(), header))
        boxed = list(boxed_rows(text))
        if any(row[0] in _HEADINGS for row in boxed):
            return [(1, {**_sure(_statistics(boxed), source), "command": _flags(text)})]
        if "csv" in kinds:
            try:
                return [(1, _sure(_statistics(csv.reader(text.splitlines())), source))]
            except csv.Error as error:
                raise source.error(f"is no CSV: {error}") from None
        blocks = _blocks(text, self.title)
        return [
            (n, {**self.unstated, **arguments_in(block), **_printed(block)})
            for n, block in enumerate(blocks, 1)
        ]


@final
@dataclass(frozen=True)
class Result:
    """One result of a file, asked by our names."""

    map: FieldMap
    document: Mapping[str, Any]

    def value(self, name: Field) -> Any:
        """A number, a text or a truth value; None where the file does not hold just one."""
        conditions = self.map.only_if.get(name, {})
        if not all(fnmatchcase(str(self._one(p)), wanted) for p, wanted in conditions.items()):
            return None
        return self._one(self.map.fields.get(name, []))

    def text(self, name: Field) -> str:
        """A text, "" where there is none."""
        return str(self.value(name) or "")

    def number(self, name: Field) -> float:
        """A number, 0 where there is none."""
        return number(self.value(name)) or 0.0

    def is_assumed(self, name: Field) -> bool:
        """Whether only the map says what it means that the file does not hold a field."""
        paths = _listed(self.map.fields.get(name, []))
        stating = [path for path in paths if path not in self.map.unstated]
        return self._one(stating) is None and self._one(paths) is not None

    def count(self, name: Field) -> int:
        """A whole number, 0 where there is none."""
        result = self.number(name)
        return round(result) if math.isfinite(result) else 0

    def members(self, name: Field) -> list[Any]:
        """Members of a list."""
        return self._all(self.map.fields.get(name, []))

    def latencies_ms(self, source: Source) -> dict[str, float]:
        """Latencies by their names of the answer.

        Raises:
            SilicastError: one in an unknown unit.
        """
        latencies_ms: dict[str, float] = {}
        for name, paths in self.map.latencies.items():
            mean = number(self._one(self.map.means_ms.get(name, []))) or 0.0
            if mean > 0:
                latencies_ms[f"{name}_mean_ms"] = mean
            for path in _listed(paths):
                unit = self._unit_ms(path, mean if name in self.map.means_ms else None, source)
                unit *= 1e3 if name in self.map.seconds else 1.0
                for statistic, ours in STATISTICS.items():
                    value = number(self._one(path.format(statistic=statistic))) or 0.0
                    if unit and 0 < value < math.inf:
                        latencies_ms.setdefault(f"{name}_{ours}_ms", value * unit)
        return latencies_ms

    def _unit_ms(self, path: str, mean: float | None, source: Source) -> float:
        """Milliseconds of the unit of a latency, 0 where it cannot be told."""
        table = path.rpartition(".")[0]
        unit = self._one(f"{table}.unit") if table else None
        if unit is not None and unit not in MS_PER:
            raise source.error(f"has the unit {unit!r}, expected a time", table)
        if unit is not None or mean is None:
            return 1.0 if unit is None else MS_PER[unit]
        average = number(self._one(path.format(statistic="average"))) or 0.0
        near = (u for u in (1.0, 1e-3, 1e-6, 1e3) if math.isclose(mean, average * u, rel_tol=0.05))
        return next(near, 0.0) if average > 0 else 0.0

    def _one(self, paths: Paths) -> Any:
        result = self._all(paths)
        return result[0] if len(result) == 1 else None

    def _all(self, paths: Paths) -> list[Any]:
        """Values of the first path that has any."""
        result = (list(self._at(self.document, path.split("."))) for path in _listed(paths))
        return next((values for values in result if values), [])

    def _at(self, position: Any, names: Sequence[str]) -> Iterator[Any]:
        if not names:
            members = position if isinstance(position, list) else [position]
            yield from (x for x in members if x is not None and not isinstance(x, dict | list))
        elif names[0] != "*":
            if isinstance(position, dict):
                yield from self._at(position.get(names[0]), names[1:])
        else:
            if isinstance(position, dict):
                position = [
                    {"name": n, **each} for n, each in position.items() if isinstance(each, dict)
                ]
            for each in position if isinstance(position, list) else []:
                skipped = self.map.skipped.items()
                if isinstance(each, dict) and not any(
                    fnmatchcase(str(each.get(name)), pattern) for name, pattern in skipped
                ):
                    yield from self._at(each, names[1:])


def _members(
    objects: list[tuple[int, dict[str, Any]]], name: str, source: Source
) -> list[tuple[int, Mapping[str, Any]]]:
    """The results in lists of a file's objects, counted over the file.

    Raises:
        SilicastError: there is no such list of objects.
    """
    mappings: list[Mapping[str, Any]] = []
    for _, each in objects:
        members = each.get(name)
        if not isinstance(members, list) or not all(isinstance(x, dict) for x in members):
            raise source.error("is no list of results", name)
        whole = {key: value for key, value in each.items() if key != name}
        mappings += [{**member, "file": whole} for member in members]
    return list(enumerate(mappings, 1))


def _sure(
    tables: Iterable[tuple[str, Mapping[str, Any]]], source: Source
) -> dict[str, Mapping[str, Any]]:
    """Tables of statistics by title.

    Raises:
        SilicastError: a comma is the decimal point in one cell, so that nobody knows what it is in
            another.
    """
    by_title = dict(tables)
    cells = [(title, cell) for title, table in by_title.items() for cell in table.values()]
    if decimal := next((pair for pair in cells if is_decimal_comma(pair[1])), None):
        title, cell = decimal
        raise source.error(f"has a decimal comma, {str(cell)[:40]!r}", title, DECIMAL_POINT)
    return by_title


def _listed(paths: Paths) -> list[str]:
    return [paths] if isinstance(paths, str) else paths


def is_decimal_comma(value: Any) -> bool:
    """Whether a text is a number whose comma can only be the decimal point.

    >>> is_decimal_comma("0,125"), is_decimal_comma("12,5"), is_decimal_comma("46,213")
    (True, True, False)
    """
    text = value.strip() if isinstance(value, str) else ""
    return bool(_DECIMAL_COMMA.fullmatch(text)) and not _THOUSANDS.fullmatch(text)


def number(value: Any) -> float | None:
    """A number, possibly written with commas between thousands; None = no number. A comma that
    stands elsewhere, as where it is the decimal point, makes none.

    >>> number("1,050.5"), number(True), number("none"), number("12,5"), number("0,125")
    (1050.5, None, None, None, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
        value = value.replace(",", "")
    try:
        result = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(result) else result


def _statistics(rows: Iterable[Sequence[str]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tables of a CSV file: rows of statistics, then rows of one value, which is the mean.

    "Time To First Token (ms)" becomes ``time_to_first_token`` with the unit "ms".
    """
    header: Sequence[str] = ()
    for cells in rows:
        if cells and cells[0] in _HEADINGS:
            header = ["avg" if name == "Value" else name for name in cells[1:]]
        elif not any(cells):
            header = ()
        elif header and len(cells) >= 2:
            title, _, unit = cells[0].partition("(")
            values = dict(zip(header, cells[1:], strict=False))
            unit = unit.rstrip(") ").strip()
            tag = title.strip().casefold().replace(" ", "_")
            yield tag, {**values, "unit": unit} if unit else values


def boxed_rows(text: str) -> Iterator[list[str]]:
    r"""Rows of the tables that tools print with lines around them; a title that is broken over
    several lines is one.

    >>> list(boxed_rows("┃ Metric ┃ avg ┃\n│ Output │ 7.5 │\n│ Tokens │     │"))
    [['Metric', 'avg'], ['Output Tokens', '7.5']]
    """
    row: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in _RULES.split(line)[1:-1]]
        if len(cells) < 2:
            continue
        if row and cells[0] and not any(cells[1:]):
            row[0] = f"{row[0]} {cells[0]}"
            continue
        if row:
            yield row
        row = cells
    if row:
        yield row


def _flags(text: str) -> dict[str, str]:
    """Options of the command that a tool prints behind its table."""
    command = next((m[1] for line in text.splitlines() if (m := _COMMAND.search(line))), "")
    return {m["name"].replace("-", "_"): m["value"].strip("'\"") for m in _FLAG.finditer(command)}


def arguments_in(text: str) -> dict[str, str]:
    """Arguments that a Python program prints as ``Namespace(...)``; of several the last counts, and
    of arguments that are objects nothing.

    >>> arguments_in("benchmark_args=Namespace(model='Qwen/Qwen3-8B', rate=inf, seed=None)")
    {'model': 'Qwen/Qwen3-8B', 'rate': 'inf'}
    >>> arguments_in("Namespace(tp=8, drafter=Config(model='small', tp=1))")
    {'tp': '8'}
    """
    printed = [match[1] for match in map(_NAMESPACE.search, text.splitlines()) if match]
    values = map(_ARGUMENT.fullmatch, _parts_of_call(printed[-1]) if printed else ())
    arguments = {m["name"]: m["text"] if m["bare"] is None else m["bare"] for m in values if m}
    return {name: value for name, value in arguments.items() if value != "None"}


def _parts_of_call(text: str) -> Iterator[str]:
    """What stands between the commas of a call, up to its end."""
    depth, parts = 0, list[str]()
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if depth < 0 or (piece == "," and not depth):
            yield "".join(parts)
            parts.clear()
        else:
            parts.append(piece)
        if depth < 0:
            return


def _blocks(text: str, title: str) -> list[str]:
    """Parts of a text that hold a title each; a line of signs alone ends one."""
    if not title:
        return [text]
    blocks = re.split(r"^[=-]{8,}[ \t]*$", text, flags=re.MULTILINE)
    return [block for block in blocks if title in block]


def _printed(text: str) -> dict[str, Any]:
    """Labels of printed lines, as they stand and in lower case, with their values, of several of a
    line with their units too; "[TTFT] P50: 3.5" is in a table in milliseconds.

    >>> _printed("[TTFT] P50 : 3.5")["TTFT"]
    {'unit': 'ms', 'p50': '3.5'}
    >>> _printed("Rate: 2.5 requests/s, 90.1 tokens/s")["rate (tokens/s)"]
    '90.1'
    """
    printed: dict[str, Any] = {}
    for line in text.splitlines():
        for each in _STATISTIC.finditer(line):
            table = printed.setdefault(each["name"], {"unit": "ms"})
            if isinstance(table, dict):
                table[each["statistic"].casefold()] = each["value"]
        if label := _PRINTED.match(line.strip()):
            for name in (label["label"].strip(), label["label"].strip().casefold()):
                printed.setdefault(name, label["value"].strip())
                for each in _SEVERAL.finditer(label["value"].strip()):
                    printed.setdefault(f"{name} ({each['unit']})", each["value"])
    return printed
