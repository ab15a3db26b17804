"""Submissions and their scores."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Belief
from silicast.validation.leaderboard import (
    TruthLine,
    commitment_of,
    enter,
    interval_score,
    leaderboard,
    read_truths,
    score,
)
from silicast.validation.submissions import Submission, SubmissionCard, case_ids, read_submission

IDS = ["a", "b", "c"]


def _written(folder: Path, text: str, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text)
    path.with_suffix(".card.json").write_text('{"tool": "mine", "version": "1"}')
    return path


def test_answers_of_a_batch_and_tables_are_read_alike(tmp_path: Path) -> None:
    table = _written(tmp_path, "id,metric,estimate,p05,p95\na,latency_us,2,1,3\n")
    answer = {"id": "a", "ok": True, "metrics": {"latency_us": {"estimate": 2, "p05": 1, "p95": 3}}}
    refused = {"id": "b", "ok": False, "error": {"kind": "not_yet"}}
    lines = _written(tmp_path, "\n".join(map(json.dumps, (answer, refused))), "other.jsonl")
    one, other = read_submission(table, IDS), read_submission(lines, IDS)
    assert one.values == other.values == {("a", "latency_us"): Belief(2, 1, 3)}
    assert one.unanswered == other.unanswered == ("b", "c")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("z,latency_us,2,1,3", "no case has the id 'z'"),
        ("a,latency_us,2,1,3\na,latency_us,2,1,3", "has latency_us twice"),
        ("a,latency_parsecs,2,1,3", "is no metric"),
        ("a,latency_us,nan,1,3", "expected a number, found 'nan'"),
        ("a,latency_us,-2,-3,3", "is (-3.0, -2.0, 3.0)"),
        ("a,latency_us,2,3,1", "leaves 2 out"),
        ("a,latency_us,fast,1,3", "expected"),
    ],
)
def test_what_is_wrong_is_named(rows: str, message: str, tmp_path: Path) -> None:
    path = _written(tmp_path, f"id,metric,estimate,p05,p95\n{rows}\n")
    with pytest.raises(SilicastError) as caught:
        read_submission(path, IDS)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("id,metrik,estimate\na,latency_us,2\n", "metric"),
        ("id,metric,estimate,p05\na,latency_us,2,1\n", "p95"),
        ("id,metric,estimate\na,latency_us\n", "estimate"),
    ],
)
def test_a_column_that_is_missing_is_named(text: str, column: str, tmp_path: Path) -> None:
    with pytest.raises(SilicastError) as caught:
        read_submission(_written(tmp_path, text), IDS)
    assert caught.value.field == f"row 1, {column}"


def test_a_metric_that_reaches_zero_is_not_scored_and_refuses_nothing(tmp_path: Path) -> None:
    """`silicast batch` answers them too: no preemption, no queue."""
    rows = "a,preemptions,0,0,0\na,latency_us,2,1,3\nb,latency_us,2,0,3"
    one = read_submission(_written(tmp_path, f"id,metric,estimate,p05,p95\n{rows}\n"), IDS)
    assert one.values == {("a", "latency_us"): Belief(2, 1, 3)}
    assert one.unanswered == ("c",)
    assert "2 metrics reach zero" in one.remarks[1]


def test_fields_that_stand_twice_are_refused(tmp_path: Path) -> None:
    """Which of them counts is not said."""
    path = _written(tmp_path, '{"id": "a", "id": "b", "ok": false}\n', "lines.jsonl")
    with pytest.raises(SilicastError, match="line 1: the field 'id' stands twice"):
        read_submission(path, IDS)
    path.with_suffix(".card.json").write_text('{"tool": "x", "tool": "y", "version": "1"}')
    with pytest.raises(SilicastError, match=r"card.json: the field 'tool' stands twice"):
        read_submission(path, IDS)


def test_an_id_that_looks_like_a_number_is_text(tmp_path: Path) -> None:
    ids = ["59e1234567890123", "0012", "1e5", "-0", "nan", "true", "4.0"]
    rows = "".join(f"{each},latency_us,2\n" for each in ids)
    assert {
        name
        for name, _ in read_submission(
            _written(tmp_path, f"id,metric,estimate\n{rows}"), ids
        ).values
    } == {*ids}


@pytest.mark.parametrize("text", ["", "id,metric,estimate\n"])
def test_an_empty_submission_is_no_submission(text: str, tmp_path: Path) -> None:
    with pytest.raises(SilicastError, match="holds no row"):
        read_submission(_written(tmp_path, text), IDS)


def test_a_submission_needs_a_card(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("id,metric,estimate\n")
    with pytest.raises(SilicastError, match=r"mine.card.json"):
        read_submission(path, IDS)


def test_ids_stand_once(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "a"}\n{"id": "a"}\n')
    with pytest.raises(SilicastError, match="line 2"):
        case_ids(path)


def _tool(
    name: str, factor: float, *, answered: int = 40, seen: tuple[str, ...] = ()
) -> Submission:
    values = {
        (str(at), "latency_us"): Belief(factor * (1 + at), factor, 2 * factor * (1 + at))
        for at in range(answered)
    }
    card = SubmissionCard(name, "1", devices_seen=list(seen))
    return Submission(card, values, (), ())


def _of(name: str, values: dict[tuple[str, str], float]) -> Submission:
    beliefs = {key: Belief(value, value, value) for key, value in values.items()}
    return Submission(SubmissionCard(name, "1"), beliefs, (), ())


TRUTHS = [
    TruthLine(
        str(at),
        {"latency_us": 1.0 + at},
        {"device": "h100" if at % 2 else "l4", "choice": str(at // 2), "suite": "x"},
    )
    for at in range(40)
]


def test_what_is_not_answered_counts_as_100_percent() -> None:
    board = leaderboard([_tool("half", 1.0, answered=20), _tool("all", 1.5)], TRUTHS)["all"]
    assert [(each.tool, each.mean) for each in board] == [("half", 50.0), ("all", 50.0)]
    assert board[0].bias == 0.0
    assert board[1].bias == pytest.approx(50.0)


def test_ranks_are_ranges_and_equal_tools_tie() -> None:
    board = leaderboard([_tool("x", 1.1), _tool("y", 1.1), _tool("z", 3.0)], TRUTHS)["all"]
    ranks = {each.tool: (each.best_rank, each.worst_rank) for each in board}
    assert ranks["x"] == ranks["y"] == (1, 1)
    assert ranks["z"] == (3, 3)


def test_ranks_are_drawn_by_case_and_alike_for_all() -> None:
    """A tool that is a little better on each case is first, however much cases differ; one that
    wins by the many metrics of a single case is not.
    """
    cases = [TruthLine(str(at), {"latency_us": 1.0}) for at in range(40)]
    wide = {
        name: {(str(at), "latency_us"): 1.0 + 0.02 * at + more for at in range(40)}
        for name, more in (("better", 0.0), ("worse", 0.01))
    }
    board = leaderboard([_of(name, values) for name, values in wide.items()], cases)["all"]
    assert [(each.tool, each.best_rank, each.worst_rank) for each in board] == [
        ("better", 1, 1),
        ("worse", 2, 2),
    ]
    metrics = ("prefill_ms", "total_ms", "ttft_mean_ms", "tpot_mean_ms", "step_time_s")
    one = [TruthLine("0", dict.fromkeys(metrics, 1.0)), *cases[1:4]]
    keys = [(row.id, metric) for row in one for metric in row.metrics]
    lucky = {key: 1.0 if key[0] == "0" else 1.5 for key in keys}
    steady = {key: 1.2 if key[0] == "0" else 1.3 for key in keys}
    board = leaderboard([_of("lucky", lucky), _of("steady", steady)], one)["all"]
    assert {(each.best_rank, each.worst_rank) for each in board} == {(1, 2)}, "they tie"


def test_seen_and_unseen_boards_are_apart() -> None:
    boards = leaderboard([_tool("x", 1.1, seen=("H100",))], TRUTHS)
    assert boards["unseen board"][0].rows == 20
    assert not {"seen", "unseen model"} & boards.keys(), "the card does not say"
    pair = [_tool("x", 1.1, seen=("H100",)), Submission(SubmissionCard("y", "1"), {}, (), ())]
    boards = leaderboard(pair, TRUTHS)
    assert [each.tool for each in boards["unseen board"]] == ["x"]
    assert [each.tool for each in boards["suite x"]] == ["x"], "y answers nothing of that kind"
    assert [each.tool for each in boards["all"]] == ["x", "y"]
    assert leaderboard(pair[1:], TRUTHS).keys() == {"all"}
    assert boards["all"][0].rows == boards["suite x"][0].rows == 40


def test_regret_is_of_the_option_that_a_tool_calls_quickest() -> None:
    wrong = _tool("w", 1.0)
    swapped = {**wrong.values}
    swapped["0", "latency_us"], swapped["1", "latency_us"] = (
        swapped["1", "latency_us"],
        swapped["0", "latency_us"],
    )
    board = leaderboard([Submission(wrong.card, swapped, (), ())], TRUTHS)["all"]
    assert board[0].regret == pytest.approx(100.0 / 20)  # one choice of 20 takes twice as long


@pytest.mark.parametrize("metric", ["latency_us", "output_tokens_per_s"])
def test_regret_knows_what_is_better_and_what_is_not_answered(metric: str) -> None:
    """Of three boards the middle one is called best, or the best one left out, or nothing said."""
    values = (1.0, 2.0, 4.0) if metric == "latency_us" else (4.0, 2.0, 1.0)
    rows = [TruthLine(str(at), {metric: value}, {"choice": "c"}) for at, value in enumerate(values)]
    told = {(str(at), metric): value for at, value in enumerate(values)}
    assert score(_of("right", told), rows).regret == 0.0
    del told["0", metric]
    assert score(_of("evasive", told), rows).regret == pytest.approx(100.0)
    assert score(_of("silent", {}), rows).regret == pytest.approx(300.0)


def test_an_interval_that_misses_costs_twenty_times_the_miss() -> None:
    belief = Belief(1.0, 1.0, math.e)
    assert interval_score(belief, math.e**1.1) == pytest.approx(1.0 + 20.0 * 0.1)


def test_truths_of_another_hash_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "truths.jsonl"
    path.write_text('{"salt": "s"}\n{"id": "a", "metrics": {"latency_us": 1.0}}\n')
    assert read_truths(path, {"a"}, commitment_of(path))[0].id == "a"
    with pytest.raises(SilicastError, match="has the hash"):
        read_truths(path, {"a"}, "0" * 64)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no truths"),
        (['{"id": "a", "metrics": {"latency_us": 0}}'], "line 2"),
        (['{"id": "b", "metrics": {"latency_us": 1}}'], "the id 'b' is of no case"),
        (['{"id": "a", "metrics": {"latency_us": 1}}'] * 2, "the id 'a' stands twice"),
        (['{"id": "a", "id": "a", "metrics": {}}'], "the field 'id' stands twice"),
    ],
)
def test_truths_that_no_tool_could_meet_are_refused(
    lines: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "truths.jsonl"
    path.write_text("\n".join(['{"salt": "s"}', *lines]))
    with pytest.raises(SilicastError, match=message):
        read_truths(path, {"a"})


def test_a_tool_is_scored_once_a_week(tmp_path: Path) -> None:
    ledger, start = tmp_path / "ledger", datetime(2026, 11, 1, tzinfo=UTC)
    enter(ledger, ["x"], start)
    enter(ledger, ["y"], start + timedelta(days=6))
    with pytest.raises(SilicastError, match="was scored on 2026-11-01"):
        enter(ledger, ["x"], start + timedelta(days=6))
    enter(ledger, ["x"], start + timedelta(days=8))
    with pytest.raises(SilicastError, match="z stands in several submissions"):
        enter(ledger, ["z", "x", "z"], start + timedelta(days=30))
    for line in ('["x", "yesterday"]', '["x", "2026-11-01T00:00:00"]'):
        ledger.write_text(f"{line}\n")
        with pytest.raises(SilicastError, match=r"ledger: .*line 1"):
            enter(ledger, ["x"], start)
    ledger.write_text("a note of mine\n")
    with pytest.raises(SilicastError, match="ledger: line 1: not valid JSON"):
        enter(ledger, ["x"], start)
