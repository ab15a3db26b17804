"""Submissions to the scorecard: what a tool predicts for cases whose truth it does not see."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import msgspec
from msgspec import Meta

from silicast.core.decode import Strict, decode, decode_json
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.core.metrics import metric_of
from silicast.core.plain_data import check_keys, parse_json, shown
from silicast.formats.tables import open_table
from silicast.scenario.answer import Belief

MOST_BYTES = 256 << 20
PAGE = "docs/how-to/enter-the-scorecard.md"
LINES = (".jsonl", ".ndjson")
COLUMNS = "id, metric, estimate, and p05 and p95 together"
LISTED = 5
Key = tuple[str, str]
"""Id of a case, and a metric of its answer."""


@final
class SubmissionCard(Strict, frozen=True):
    """What a tool says of itself, in a file beside its submission (``NAME.card.json``).

    Attributes:
        devices_seen, models_seen, releases_seen: names in the cases that the tool was fitted on;
            None = it does not say, and is on no board of what was seen or not.
        data_seen: tables it was fitted on; hardware, seconds: what it ran on, and how long.
    """

    tool: Annotated[str, Meta(min_length=1, max_length=80)]
    version: Annotated[str, Meta(min_length=1, max_length=80)]
    data_seen: list[str] = []
    devices_seen: list[str] | None = None
    models_seen: list[str] | None = None
    releases_seen: list[str] | None = None
    hardware: str = ""
    seconds: Annotated[float, Meta(gt=0)] | None = None


class AnswerLine(msgspec.Struct, frozen=True):
    """What is read of a line that ``silicast batch`` writes."""

    id: str | int
    ok: bool = True
    metrics: dict[str, Belief] = {}


@final
@dataclass(frozen=True)
class Submission:
    """Predictions of one tool.

    Attributes:
        values: what it predicts; unanswered: ids that it refuses or leaves out.
        remarks: what was left out of account.
    """

    card: SubmissionCard
    values: Mapping[Key, Belief]
    unanswered: tuple[str, ...]
    remarks: tuple[str, ...]


def case_ids(path: Path) -> list[str]:
    """The ids of a file of cases.

    Raises:
        SilicastError: unreadable, a case without an id, or one that stands twice.
    """
    ids: dict[str, None] = {}
    for number, line in _lines(path, "a file of cases"):
        identity = parse_json(line).get("id")
        if not isinstance(identity, str | int) or str(identity) in ids:
            raise SilicastError(
                f"line {number}: no id, or one that stands twice", file=str(path), field="id"
            )
        ids[str(identity)] = None
    return list(ids)


def read_submission(path: Path, cases: list[str]) -> Submission:
    """A submission with its card.

    Args:
        cases: ids that may be answered.

    Raises:
        SilicastError: the file, the line and what is wrong with it: no card, no row, an id that is
            unknown or stands twice, a metric that is none, a number that is none or below zero, an
            interval that does not hold its estimate.
    """
    card_path = path.with_suffix(".card.json")
    content = read_bounded(card_path, 1 << 20, "a card", f"{PAGE} says what stands in it")
    check_keys(content, str(card_path))
    card = decode_json(content, SubmissionCard, file=str(card_path), page=PAGE)
    identities, values, refused = set(cases), dict[Key, Belief](), set[str]()
    answered, zeros = set[str](), set[Key]()
    is_lines = path.suffix.casefold() in LINES
    rows = _answers(path) if is_lines else _cells(path)
    for number, identity, metrics in rows:
        where = f"{'line' if is_lines else 'row'} {number}"
        if identity not in identities:
            raise _wrong(path, where, f"no case has the id {shown(identity)}", "copy ids as given")
        if not metrics:
            refused.add(identity)
        for metric, belief in metrics.items():
            if (identity, metric) in values or (identity, metric) in zeros:
                raise _wrong(path, where, f"{shown(identity)} has {metric} twice", "keep one")
            _check(path, where, metric, belief)
            answered.add(identity)
            if belief.p05 > 0.0:
                values[identity, metric] = belief
            else:
                zeros.add((identity, metric))
    if not answered and not refused:
        raise SilicastError("holds no row", file=str(path), hint=f"{PAGE} says what stands in it")
    missing = tuple(name for name in cases if name not in answered)
    remarks = list[str]()
    if missing:
        listed = ", ".join(missing[:LISTED])
        remarks.append(f"{len(missing)} of {len(cases)} cases count as 100 % off: {listed}")
    if zeros:
        listed = ", ".join(sorted({metric for _, metric in zeros})[:LISTED])
        remarks.append(f"{len(zeros)} metrics reach zero and count as not answered: {listed}")
    return Submission(card, values, missing, tuple(remarks))


def _check(path: Path, where: str, metric: str, belief: Belief) -> None:
    if metric_of(metric) is None:
        hint = "the unit is in the name: tpot_mean_ms, step_time_s"
        raise _wrong(path, where, f"{shown(metric)} is no metric", hint)
    numbers = (belief.p05, belief.estimate, belief.p95)
    if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
        raise _wrong(path, where, f"{metric} is {numbers}", "numbers are finite and not negative")
    if not belief.p05 <= belief.estimate <= belief.p95:
        message = f"{metric}: {belief.p05:g} to {belief.p95:g} leaves {belief.estimate:g} out"
        raise _wrong(path, where, message, "p05 <= estimate <= p95")


def _answers(path: Path) -> Iterator[tuple[int, str, Mapping[str, Belief]]]:
    for number, line in _lines(path, "a submission"):
        check_keys(line, f"{path}: line {number}")
        answer = decode_json(line, AnswerLine, file=str(path), page=PAGE, line=number)
        yield number, str(answer.id), answer.metrics if answer.ok else {}


def _cells(path: Path) -> Iterator[tuple[int, str, Mapping[str, Belief]]]:
    """Rows of a table: id, metric, estimate, p05 and p95; without these two, the estimate alone.

    Ids are read as they stand: the hash 59e12345 looks like a number, and like an infinite one.
    """
    table = open_table(path)
    columns = [name for name in table.columns if name.strip().casefold() == "id"]
    read = zip(table.records(), table.rows(columns), strict=True)
    for number, (row, (_, ids)) in enumerate(read, 1):
        wanted = ("id", "metric", "estimate", *(("p05", "p95") if {"p05", "p95"} & {*row} else ()))
        for name in wanted:
            if name not in row:
                where = f"row {number}, {name}"
                raise _wrong(path, where, "nothing stands there", f"the columns are {COLUMNS}")
        cells = _Cells(row, number, path)
        estimate = cells.number("estimate")
        low = cells.number("p05") if "p05" in row else estimate
        high = cells.number("p95") if "p95" in row else estimate
        identity = str(ids[0]) if ids else ""
        yield number, identity, {str(row.get("metric")): Belief(estimate, low, high)}


@final
@dataclass(frozen=True)
class _Cells:
    row: Mapping[str, Any]
    line: int
    path: Path

    def number(self, name: str) -> float:
        value: Any = self.row.get(name)
        return decode(value, float, file=str(self.path), field=f"row {self.line}, {name}")


def _lines(path: Path, what: str) -> Iterator[tuple[int, bytes]]:
    content = read_bounded(path, MOST_BYTES, what)
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield number, line


def _wrong(path: Path, where: str, message: str, hint: str) -> SilicastError:
    return SilicastError(message, file=str(path), field=where, hint=hint)
