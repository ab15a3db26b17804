"""Scores of submissions on the same cases, with ranks no surer than the cases allow.

Errors are of whole metrics; what is not answered is 100 % off. Ranks are those of 90 % of drawn
sets of cases (bootstrap over cases, the same for all tools); tools whose ranks overlap tie.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, final

import msgspec
import numpy as np

from silicast.core.decode import Strict, decode_json
from silicast.core.errors import SilicastError, over_limit
from silicast.core.files import read_bounded, write_atomically
from silicast.core.metrics import metric_of
from silicast.core.naming import normalise
from silicast.core.plain_data import check_keys, shown
from silicast.scenario.answer import Belief
from silicast.validation.submissions import MOST_BYTES, PAGE, Submission

UNANSWERED = 100.0
DRAWS = 400
LEVEL = 0.90
WEEK = timedelta(days=7)
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
SUITE = "suite "
SETS = ("all", "seen", "unseen board", "unseen model", "unseen engine release")


@final
class TruthLine(Strict, frozen=True):
    """What was measured of a case.

    Attributes:
        labels: ``suite``, ``device``, ``model``, ``engine`` (with its release) and ``choice``: of
            cases among which a user would choose the best.
    """

    id: str
    metrics: dict[str, Annotated[float, msgspec.Meta(gt=0)]]
    labels: dict[str, str] = {}


@final
class TruthHead(Strict, frozen=True):
    """First line of a file of truths; ``salt`` makes its hash say nothing of what is in it."""

    salt: str
    date: str = ""


@final
@dataclass(frozen=True)
class SetScore:
    """A tool on a set of cases.

    Attributes:
        rows: values that were measured; answered: of them.
        mean, median, bias: errors in percent; coverage: percent inside the interval.
        interval: mean interval score of logs at 90 %, None = the tool states no intervals.
        regret: percent by which the tool's choices are worse than the best, None = no choices.
        best_rank, worst_rank: from 1, of 90 % of drawn sets.
    """

    tool: str
    version: str
    rows: int
    answered: int
    mean: float
    median: float
    bias: float | None
    coverage: float | None
    interval: float | None
    regret: float | None
    seconds: float | None
    best_rank: int = 1
    worst_rank: int = 1


def commitment_of(path: Path) -> str:
    """The hash of a file of truths, to be published before anybody submits."""
    return hashlib.sha256(read_bounded(path, MOST_BYTES, "a file of truths")).hexdigest()


def read_truths(path: Path, cases: Collection[str], commitment: str = "") -> list[TruthLine]:
    """Truths, whose hash was published beforehand.

    Args:
        cases: ids that may stand there.

    Raises:
        SilicastError: unreadable, of another hash, of no case, or with an id that is unknown or
            stands twice.
    """
    if commitment and commitment_of(path) != commitment:
        raise SilicastError(
            f"has the hash {commitment_of(path)[:16]}..., not the one that was published",
            file=str(path),
            field="commitment",
            hint="use the file of that commitment",
        )
    truths = dict[str, TruthLine]()
    lines = read_bounded(path, MOST_BYTES, "a file of truths").split(b"\n")
    for number, line in enumerate(lines, 1):
        check_keys(line, f"{path}: line {number}")
        if number == 1:
            decode_json(line, TruthHead, file=str(path), page=PAGE, line=number)
        elif line.strip():
            truth = decode_json(line, TruthLine, file=str(path), page=PAGE, line=number)
            if truth.id not in cases or truth.id in truths:
                fault = "stands twice" if truth.id in truths else "is of no case"
                hint = "use the cases that these truths were written with"
                where = f"line {number}"
                raise SilicastError(
                    f"the id {shown(truth.id)} {fault}", file=str(path), field=where, hint=hint
                )
            truths[truth.id] = truth
    if not truths:
        raise SilicastError("has no truths", file=str(path), hint=f"{PAGE} says what makes them")
    return list(truths.values())


def leaderboard(
    submissions: Sequence[Submission], truths: Sequence[TruthLine]
) -> dict[str, list[SetScore]]:
    """Set of cases -> tools, the best first."""
    boards: dict[str, list[SetScore]] = {}
    suites = sorted({row.labels.get("suite", "") for row in truths} - {""})
    for name in (*SETS, *(f"{SUITE}{suite}" for suite in suites)):
        chosen = [
            [row for row in truths if _belongs(name, row, submission)] for submission in submissions
        ]
        pairs = [
            (submission, rows)
            for submission, rows in zip(submissions, chosen, strict=True)
            if rows and (not name.startswith(SUITE) or _answers_some(submission, rows))
        ]
        if not pairs:
            continue
        scores = [score(submission, rows) for submission, rows in pairs]
        errors = [
            {row.id: [*_errors(submission, row)] for row in rows} for submission, rows in pairs
        ]
        boards[name] = _ranked(scores, errors)
    return boards


def _answers_some(submission: Submission, rows: Sequence[TruthLine]) -> bool:
    """Whether a tool is for cases of this kind at all."""
    return any((row.id, metric) in submission.values for row in rows for metric in row.metrics)


def _belongs(name: str, row: TruthLine, submission: Submission) -> bool:
    """Whether a case is of a set, for a tool, whose card states on which ones it was fitted."""
    card = submission.card
    if name.startswith(SUITE):
        return row.labels.get("suite") == name.removeprefix(SUITE)
    if name == "all":
        return True
    labels = {
        "unseen board": (row.labels.get("device", ""), card.devices_seen),
        "unseen model": (row.labels.get("model", ""), card.models_seen),
        "unseen engine release": (row.labels.get("engine", ""), card.releases_seen),
    }
    if name == "seen":
        return all(seen is not None and _named(label, seen) for label, seen in labels.values())
    label, seen = labels[name]
    return seen is not None and not _named(label, seen)


def _named(name: str, seen: Sequence[str]) -> bool:
    return normalise(name) in {normalise(other) for other in seen}


def score(submission: Submission, truths: Sequence[TruthLine]) -> SetScore:
    """One tool on some cases."""
    pairs = [
        (submission.values.get((row.id, metric)), value)
        for row in truths
        for metric, value in row.metrics.items()
    ]
    answered = [(belief, value) for belief, value in pairs if belief is not None]
    errors = [_error(belief, value) for belief, value in pairs]
    signed = [100.0 * (belief.estimate / value - 1.0) for belief, value in answered]
    has_intervals = any(belief.p05 < belief.p95 for belief, _ in answered)
    inside = [belief.p05 <= value <= belief.p95 for belief, value in pairs if belief is not None]
    return SetScore(
        tool=submission.card.tool,
        version=submission.card.version,
        rows=len(pairs),
        answered=len(answered),
        mean=fmean(errors),
        median=median(errors),
        bias=fmean(signed) if signed else None,
        coverage=100.0 * sum(inside) / len(pairs) if has_intervals else None,
        interval=fmean(map(interval_score, *zip(*answered, strict=True)))
        if has_intervals
        else None,
        regret=_regret(submission, truths),
        seconds=submission.card.seconds,
    )


def interval_score(belief: Belief, value: float) -> float:
    """Width of the log interval, and 2 / alpha times what it misses by (Gneiting, Raftery 2007).

    >>> round(interval_score(Belief(1.0, 1.0, math.e), 1.5), 6)
    1.0
    """
    low, high, true = math.log(belief.p05), math.log(belief.p95), math.log(value)
    missed = max(low - true, 0.0) + max(true - high, 0.0)
    return high - low + 2.0 / (1.0 - LEVEL) * missed


def _error(belief: Belief | None, value: float) -> float:
    return UNANSWERED if belief is None else 100.0 * abs(belief.estimate / value - 1.0)


def _errors(submission: Submission, row: TruthLine) -> Iterator[float]:
    for metric, value in row.metrics.items():
        yield _error(submission.values.get((row.id, metric)), value)


def _regret(submission: Submission, truths: Sequence[TruthLine]) -> float | None:
    """By how much the option that a tool calls best is worse than the best, percent.

    Options that it does not answer can be the best all the same; where it answers none, it is
    taken to choose the worst.
    """
    choices: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in truths:
        for metric, value in row.metrics.items():
            meaning = metric_of(metric)
            if row.labels.get("choice") and meaning is not None and meaning.per_time:
                belief = submission.values.get((row.id, metric))
                told = math.inf if belief is None else belief.estimate**meaning.per_time
                option = told, value**meaning.per_time
                choices.setdefault((row.labels["choice"], metric), []).append(option)
    losses = [
        100.0 * (_chosen(options) / min(value for _, value in options) - 1.0)
        for options in choices.values()
        if len(options) > 1
    ]
    return fmean(losses) if losses else None


def _chosen(options: Sequence[tuple[float, float]]) -> float:
    """The truth of the option of the least prediction; the worst where nothing is predicted.

    >>> _chosen([(2.0, 5.0), (1.0, 7.0)]), _chosen([(math.inf, 5.0), (math.inf, 7.0)])
    (7.0, 7.0)
    """
    told, value = min(options)
    return value if math.isfinite(told) else max(truth for _, truth in options)


def _ranked(
    scores: Sequence[SetScore], errors: Sequence[Mapping[str, Sequence[float]]]
) -> list[SetScore]:
    """Tools in order of their mean error, with the ranks that drawn cases give them.

    Cases are drawn, not values: the values of a case err together. All tools meet the same draw,
    so that two that err alike on each case are not told apart by luck, nor held equal by it.

    Args:
        errors: of each tool, case -> errors of its metrics.
    """
    ids = {name: at for at, name in enumerate(sorted({name for table in errors for name in table}))}
    sums, counts = np.zeros((2, len(errors), len(ids)))
    for tool, table in enumerate(errors):
        for name, case_errors in table.items():
            sums[tool, ids[name]], counts[tool, ids[name]] = sum(case_errors), len(case_errors)
    random = np.random.default_rng(0)
    ranks = np.empty((DRAWS, len(errors)))
    for at in range(DRAWS):
        drawn = np.bincount(random.integers(0, len(ids), len(ids)), minlength=len(ids))
        number = counts @ drawn
        mean = np.where(number > 0, sums @ drawn, sums.sum(1)) / np.where(
            number > 0, number, counts.sum(1)
        )
        ranks[at] = 1 + (mean[None, :] < mean[:, None]).sum(1)
    low, high = np.quantile(ranks, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0], axis=0).astype(int)
    ranged = [
        replace(tool_score, best_rank=int(best), worst_rank=int(worst))
        for tool_score, best, worst in zip(scores, low, high, strict=True)
    ]
    return sorted(ranged, key=lambda ranked: ranked.mean)


def enter(ledger: Path, tools: Sequence[str], now: datetime) -> None:
    """Notes that tools are scored against hidden truths: each once a week, so that nobody finds
    truths by asking.

    Raises:
        SilicastError: one was scored within a week or stands twice here; the file is no ledger.
    """
    lines = read_bounded(ledger, MOST_BYTES, "a ledger").splitlines() if ledger.exists() else []
    entries = [
        decode_json(line, tuple[str, Moment], file=str(ledger), line=number)
        for number, line in enumerate(lines, 1)
    ]
    for at, tool in enumerate(tools):
        if tool in tools[:at]:
            raise _too_often(ledger, f"{tool} stands in several submissions", ": choose one")
        for name, scored_at in entries:
            if name == tool and now - scored_at < WEEK:
                raise _too_often(ledger, f"{tool} was scored on {scored_at:%Y-%m-%d}")
    added = [msgspec.json.encode((tool, now.isoformat())) for tool in tools]
    write_atomically(ledger, b"\n".join([*lines, *added]) + b"\n")


def _too_often(ledger: Path, message: str, choice: str = "") -> SilicastError:
    """Refuses a second scored submission of a tool within a week."""
    return over_limit(message, "tool", f"one scored submission a week{choice}", file=str(ledger))


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def board_rows(scores: Sequence[SetScore]) -> list[dict[str, Any]]:
    """Scores as plain tables, ranks as a range."""
    rows = []
    for tool_score in scores:
        table = {name: getattr(tool_score, name) for name in tool_score.__dataclass_fields__}
        rank = (
            f"{tool_score.best_rank}"
            if tool_score.best_rank == tool_score.worst_rank
            else (f"{tool_score.best_rank}-{tool_score.worst_rank}")
        )
        rows.append({"rank": rank, **table})
    return rows


def totals(boards: Mapping[str, Sequence[SetScore]]) -> dict[str, list[dict[str, Any]]]:
    """All sets as plain tables."""
    return {name: board_rows(scores) for name, scores in boards.items()}
