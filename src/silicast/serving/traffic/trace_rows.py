"""Rows of a trace to requests: which columns are read, and what makes a row bad.

A row is bad if its time is missing, no number, not finite, below zero or before that of the row
above it; if a length is missing, no whole number, below 1 or beyond what is modelled; or if what
it shares with other prompts is longer than its prompt. A trace with a bad row is refused, or, where
the user says so, read without its bad rows. Either way they are counted.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, final

import numpy as np

from silicast.core.errors import SilicastError, over_limit
from silicast.core.numerics import I64
from silicast.formats.tables import column_names
from silicast.serving.traffic.lengths import MOST_TOKENS
from silicast.serving.traffic.requests import SECOND_NS, Content, Requests
from silicast.serving.traffic.traffic import Traffic

MOST_ROWS = 20_000_000
BLOCK_TOKENS = 512
"""Tokens of a prompt that one of ``hash_ids`` stands for; of the last, what is left."""
_LAST_NS = 1 << 62
_DATE = 0

_TIMES = {
    "arrival_s": SECOND_NS,
    "arrival_ms": 1_000_000,
    "arrival_ns": 1,
    "arrived_at": SECOND_NS,
    "arrival_time_ns": 1,
}
"""Column -> nanoseconds of its unit."""
_LENGTHS = {
    ("input_len", "output_len"): None,
    ("input_tokens", "output_tokens"): None,
    ("input_toks", "output_toks"): None,
    ("num_prefill_tokens", "num_decode_tokens"): None,
    ("input_length", "output_length"): 1_000_000,
    ("contexttokens", "generatedtokens"): _DATE,
    ("request tokens", "response tokens"): SECOND_NS,
}
"""Columns of lengths -> nanoseconds of the ``timestamp`` beside them; None = unknown."""

Row = tuple[Any, ...] | None
"""Values of the columns that were asked for; None = the line holds no row."""


class UntimedError(SilicastError):
    """A trace whose requests have no times of a known unit."""


@final
@dataclass(frozen=True)
class TraceFields:
    """Which columns hold what.

    Attributes:
        time: "" = times are not read.
        unit_ns: of the time; 0 = it is a date.
    """

    time: str
    unit_ns: int
    input: str
    output: str

    @property
    def names(self) -> tuple[str, ...]:
        """Columns to read of each row, those that it need not have last."""
        return (self.time, self.input, self.output, "hash_ids", "prefix", "prefix_len")

    @staticmethod
    def among(names: Iterable[str], *, timed: bool = True) -> TraceFields:
        """The columns of a trace that has ``names``.

        Args:
            timed: times are wanted.

        Raises:
            SilicastError: no known column for lengths or times, or times of an unknown unit.

        >>> TraceFields.among(["timestamp", "input_length", "output_length"])
        TraceFields(time='timestamp', unit_ns=1000000, input='input_length', output='output_length')
        """
        present = set(names)
        value = column_names(sorted(present))
        pair = next((pair for pair in _LENGTHS if present.issuperset(pair)), None)
        if pair is None:
            raise SilicastError(
                f"no columns of lengths; found {value}",
                hint="name them input_len and output_len (tokens)",
            )
        if not timed:
            return TraceFields("", 1, *pair)
        time = next((name for name in _TIMES if name in present), "")
        unit = _LENGTHS[pair] if not time and "timestamp" in present else _TIMES.get(time)
        if unit is None:
            raise UntimedError(
                f"no column of times whose unit is known; found {value}",
                hint=f"name it {', '.join(list(_TIMES)[:3])}",
            )
        return TraceFields(time or "timestamp", unit, *pair)


@final
@dataclass(frozen=True)
class TraceRule:
    """How a trace is read.

    Attributes:
        first: rows to read; None = all.
        skip: bad rows are left out, and remarked, rather than refused.
        prefix_tokens: of a row that names its prefix without a length; 0 = unknown.
        file: named in errors and remarks; "" = the trace stands in the scenario.
        place: of a row and a column, as errors name it.
    """

    first: int | None = None
    skip: bool = False
    prefix_tokens: int = 0
    file: str = ""
    place: Callable[[int, str], str] = lambda row, column: f"line {row}, {column}"


class _BadRowError(Exception):
    """Why a row is not used: the column, what is wrong in general, and what was found."""

    def __init__(self, column: str, wrong: str, result: object = None) -> None:
        super().__init__(column, wrong, result)
        self.column, self.wrong, self.found = column, wrong, result


def read_rows(rows: Iterable[tuple[int, Row]], columns: TraceFields, rule: TraceRule) -> Traffic:
    """Requests of a trace, which starts with its first row; without times all come at 0.

    Args:
        rows: (number of the row, values of ``columns.names``).

    Raises:
        SilicastError: a bad row, no good one, or more than :data:`MOST_ROWS`.
    """
    trace = _Trace(columns, rule)
    for number, row in rows:
        if rule.first is not None and len(trace.times) >= rule.first:
            break
        trace.add(number, row)
    return trace.finish()


@final
class _Trace:
    """What was read so far."""

    def __init__(self, columns: TraceFields, rule: TraceRule) -> None:
        self.columns, self.rule = columns, rule
        self.times, self.inputs, self.outputs = (array("q") for _ in range(3))
        self.segments, self.tokens, self.ends = array("q"), array("q"), array("q", [0])
        self.prefixes: dict[str, int] = {}
        self.rows = 0
        self.bad: Counter[str] = Counter()
        self.first_bad: tuple[int, _BadRowError] | None = None

    def add(self, number: int, row: Row) -> None:
        """Takes one row, or notes why not."""
        self.rows += 1
        if self.rows > MOST_ROWS:
            raise over_limit(
                f"has more than {MOST_ROWS} rows",
                hint="`requests` says how many of them to read",
                file=self.rule.file,
            )
        try:
            self._take(row)
        except _BadRowError as bad:
            self.bad[f"{bad.column} {bad.wrong}"] += 1
            if self.first_bad is None:
                self.first_bad = number, bad

    def _take(self, row: Row) -> None:
        if row is None:
            raise _BadRowError("row", "is not readable")
        columns = self.columns
        time, input_cell, output_cell, blocks, prefix, prefix_len = row
        at = _time_ns(time, columns) if columns.time else 0
        if self.times and at < self.times[-1]:
            raise _BadRowError(columns.time, "is before that of the row above", time)
        tokens = _tokens(input_cell, columns.input)
        output = _tokens(output_cell, columns.output)
        shared = self._blocks(blocks, tokens) if blocks is not None else 0
        if not shared and prefix not in (None, ""):
            self._prefix(str(prefix), prefix_len, tokens)
        self.times.append(at)
        self.inputs.append(tokens)
        self.outputs.append(output)
        self.ends.append(len(self.segments))

    def _blocks(self, blocks: Any, prompt: int) -> int:
        """Adds the blocks of a prompt; how many there are."""
        try:
            names = array("q", blocks if isinstance(blocks, list) else [blocks])
        except (TypeError, OverflowError):
            raise _BadRowError(
                "hash_ids", "is no list of whole numbers of 63 bits", blocks
            ) from None
        missing = prompt - BLOCK_TOKENS * (len(names) - 1)  # what the last one may hold
        if names and missing < 1:
            raise _BadRowError(
                "hash_ids",
                f"names more blocks of {BLOCK_TOKENS} tokens than the prompt has",
                f"{len(names)} blocks in a prompt of {prompt} tokens",
            )
        if names:
            self.segments.extend(names)
            self.tokens.extend([BLOCK_TOKENS] * (len(names) - 1))
            self.tokens.append(min(missing, BLOCK_TOKENS))
        return len(names)

    def _prefix(self, name: str, given: Any, prompt: int) -> None:
        if given in (None, ""):
            if not self.rule.prefix_tokens:
                raise _BadRowError(
                    "prefix", "has no length (neither prefix_len nor workload.prefix.length)", name
                )
            tokens = min(self.rule.prefix_tokens, prompt)
        else:
            tokens = _tokens(given, "prefix_len")
        if tokens > prompt:
            raise _BadRowError("prefix_len", "is above the tokens of the prompt", given)
        self.segments.append(self.prefixes.setdefault(name, len(self.prefixes)))
        self.tokens.append(tokens)

    def finish(self) -> Traffic:
        """All requests.

        Raises:
            SilicastError: a bad row, or no good one.
        """
        remarks: tuple[str, ...] = ()
        if self.first_bad is not None:
            number, bad = self.first_bad
            if not self.rule.skip or not self.times:
                self._refuse(number, bad)
            subject = f"{self.rule.file or 'trace'}: {self._counted('left out')}"
            remarks = (f"{subject}; the first is {self.rule.place(number, bad.column)}",)
        if not self.times:
            raise SilicastError("has no rows", file=self.rule.file)
        times = _array(self.times)
        content = None
        if self.segments:
            unnamed = np.full(len(times), -1, dtype=np.int64)
            ends = _array(self.ends)
            content = Content(_array(self.segments), _array(self.tokens), ends, unnamed)
        inputs, outputs = _array(self.inputs), _array(self.outputs)
        return Traffic(
            Requests.from_arrays(times - times[0], inputs, outputs, content=content), remarks
        )

    def _refuse(self, number: int, bad: _BadRowError) -> NoReturn:
        value = "" if bad.found is None else f", found {str(bad.found)[:80]!r}"
        leave = (
            ""
            if self.rule.skip
            else '; mend them, or skip them (bad_rows = "skip", --skip-bad-rows)'
        )
        raise SilicastError(
            f"{bad.wrong}{value}",
            field=self.rule.place(number, bad.column),
            file=self.rule.file,
            hint=self._counted("bad") + leave,
        )

    def _counted(self, what: str) -> str:
        """How many rows are bad, and why."""
        each = ", ".join(f"{count} {wrong}" for wrong, count in self.bad.most_common(6))
        return f"{self.bad.total()} of {self.rows} rows are {what} ({each})"


def _array(values: array[int]) -> I64:
    return np.frombuffer(values, dtype=np.int64)


def _time_ns(value: Any, columns: TraceFields) -> int:
    at = value
    if type(at) is not int and type(at) is not float:
        if at is None or at == "":
            raise _BadRowError(columns.time, "is missing")
        if isinstance(at, str) and columns.unit_ns == _DATE:
            at = _date(at, columns.time)
        if isinstance(at, datetime):
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            at = at - datetime(1970, 1, 1, tzinfo=UTC)
        if isinstance(at, timedelta):
            return int(at / timedelta(microseconds=1)) * 1000
        at = _number(at, columns.time)
    if not math.isfinite(at):
        raise _BadRowError(columns.time, "is not finite", value)
    if at < 0:
        raise _BadRowError(columns.time, "is below zero", value)
    if columns.unit_ns == _DATE:
        raise _BadRowError(columns.time, "is no date", value)
    if at * columns.unit_ns >= _LAST_NS:
        raise _BadRowError(columns.time, "is more than a century away", value)
    nanoseconds: int = round(at * columns.unit_ns)
    return nanoseconds


def _date(text: str, column: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise _BadRowError(column, "is no date", text) from None


def _number(value: Any, column: str) -> float:
    """A number that is no int or float yet: text of a CSV file."""
    if isinstance(value, str):
        try:
            return int(value) if value.isdecimal() and len(value) < 19 else float(value)
        except ValueError:
            pass
    raise _BadRowError(column, "is no number", value)


def _tokens(value: Any, column: str) -> int:
    if type(value) is int and 1 <= value <= MOST_TOKENS:
        return value
    if value is None or value == "":
        raise _BadRowError(column, "is missing")
    number = value if type(value) in (int, float) else _number(value, column)
    if not math.isfinite(number) or number != int(number):
        raise _BadRowError(column, "is no whole number", value)
    if number < 1:
        raise _BadRowError(column, "is below 1 token", value)
    if number > MOST_TOKENS:
        raise _BadRowError(column, f"is above {MOST_TOKENS} tokens", value)
    return int(number)


def inline_rows(rows: Sequence[tuple[Any, ...]]) -> Iterable[tuple[int, Row]]:
    """Rows that stand in the scenario: (time, input, output, prefix, its length)."""
    return ((i, (*row[:3], None, *row[3:])) for i, row in enumerate(rows))
