"""A serving workload as requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.decode import decode
from silicast.scenario.resolving.traffic import traffic_of
from silicast.serving.traffic.traffic import Traffic

CLOSED = {"kind": "closed", "concurrency": 4}
POISSON = {"kind": "poisson", "rate_per_s": 2.0}
ROWS = [[1.0, 30, 3], {"arrival_s": 1.5, "input_len": 40, "output_len": 4}]
LENGTHS = {"input_len": 100, "output_len": 10}


def traffic(workload: dict[str, Any], folder: Path | None = None) -> Traffic:
    tree = {"task": "serving", "device": "H100", "model": "Llama-3.1-8B", "workload": workload}
    scenario: Any = decode(tree)
    return traffic_of(scenario.workload, 0, folder)


def error_of(workload: dict[str, Any], folder: Path | None = None) -> SilicastError:
    with pytest.raises(SilicastError) as caught:
        traffic(workload, folder)
    return caught.value


def test_clients_start_together_and_send_ten_requests_each_and_a_thousand_at_least() -> None:
    requests = traffic({"arrival": CLOSED, **LENGTHS}).requests
    assert (len(requests), requests.concurrency) == (1000, 4)
    many = traffic({"arrival": {**CLOSED, "concurrency": 128}, **LENGTHS}).requests
    assert (len(many), many.concurrency) == (1280, 128)
    assert (requests.arrival_ns.max(), requests.after.max()) == (0, -1)
    assert set(requests.input_tokens.tolist()) == {100}


def test_open_traffic_has_a_thousand_requests_unless_it_says_so() -> None:
    assert len(traffic({"arrival": POISSON, **LENGTHS}).requests) == 1000
    limited = traffic({"arrival": {**POISSON, "concurrency": 3}, **LENGTHS}).requests
    assert (len(limited), limited.concurrency) == (1000, 3)


def test_the_rate_counts_turns() -> None:
    sessions = {"turns": 5, "think_time_s": 2.0}
    requests = traffic({"arrival": POISSON, **LENGTHS, "requests": 20_000, "sessions": sessions})
    arrival = requests.requests.arrival_ns
    assert 20_000 / (arrival[-1] / 1e9) == pytest.approx(2.0, rel=0.1)
    assert (arrival[::5] == arrival[4::5]).all()
    assert requests.requests.pause_ns.max() == 2_000_000_000


def test_users_hold_their_place_between_turns() -> None:
    requests = traffic({"arrival": CLOSED, **LENGTHS, "sessions": {"turns": 2}}).requests
    assert (requests.concurrency, int((requests.after == -1).sum())) == (0, 4)


def test_an_engine_may_keep_no_prefix() -> None:
    sessions = {"arrival": CLOSED, **LENGTHS, "sessions": {"turns": 2}}
    assert traffic(sessions).requests.content is not None
    assert traffic({**sessions, "prefix": {"cache": False}}).requests.content is None
    assert error_of({**sessions, "prefix": {}}).field == "workload.prefix"


STAGE = {"rate_per_s": 5.0, "duration_s": 2.0}


def test_stages_follow_each_other_at_their_rates() -> None:
    stages = [STAGE, {"rate_per_s": 40.0, "duration_s": 0.5}]
    workload = {"arrival": {"kind": "poisson", "stages": stages}, "input_len": 10, "output_len": 2}
    requests = traffic(workload).requests
    at_s = requests.arrival_ns / 1e9
    assert len(requests) == 10 + 20
    assert (int((at_s <= 2.0).sum()), at_s[9], at_s[-1]) == (10, 2.0, 2.5)
    assert not requests.steady, "a run, not traffic that goes on"
    assert (at_s[1:] > at_s[:-1]).all()
    two_turns = traffic({**workload, "sessions": {"turns": 2}}).requests
    assert len(two_turns) == 30, "the rate counts turns"
    assert (two_turns.arrival_ns[::2] == two_turns.arrival_ns[1::2]).all()


def test_a_ramp_and_a_burst_are_read() -> None:
    arrival = {**POISSON, "ramp_to_per_s": 200.0, "ramp": "exponential", "burst": 2}
    times = traffic({"arrival": arrival, **LENGTHS}).requests.arrival_ns
    assert (times[::2] == times[1::2]).all()
    assert times[-1] - times[900] < times[100] - times[0]


def test_rows_of_a_scenario_are_a_trace() -> None:
    requests = traffic({"arrival": {"kind": "trace", "rows": ROWS}}).requests
    assert requests.arrival_ns.tolist() == [0, 500_000_000]
    assert (requests.input_tokens.tolist(), requests.output_tokens.tolist()) == ([30, 40], [3, 4])


def test_lengths_of_a_trace_serve_any_arrival_and_may_be_replaced() -> None:
    requests = traffic({"arrival": {**CLOSED, "rows": ROWS}}).requests
    assert (requests.concurrency, requests.input_tokens.tolist()) == (4, [30, 40])
    requests = traffic({"arrival": {"kind": "trace", "rows": ROWS}, "output_len": 77}).requests
    assert (requests.input_tokens.tolist(), requests.output_tokens.tolist()) == ([30, 40], [77, 77])


def test_a_trace_shorter_than_asked_for_is_remarked() -> None:
    result = traffic({"arrival": {"kind": "trace", "rows": ROWS}, "requests": 5})
    assert result.remarks == ("the trace has 2 requests, 5 were asked for",)
    assert traffic({"arrival": {"kind": "trace", "rows": ROWS}, "requests": 1}).remarks == ()


def test_a_named_prefix_is_shared(tmp_path: Path) -> None:
    rows = [{"arrival_s": 0, "input_len": 30, "output_len": 3, "prefix": "p"}] * 2
    arrival = {"kind": "trace", "rows": rows}
    content = traffic({"arrival": arrival, "prefix": {"length": 12}}).requests.content
    assert content is not None
    assert content.prompt(0) == content.prompt(1) == [(0, 12)]
    none = {"length": 12, "cache": False}
    assert traffic({"arrival": arrival, "prefix": none}).requests.content is None
    error = error_of({"arrival": arrival})
    assert error.field == "workload.arrival.rows[0].prefix"


def test_trace_files_start_at_the_folder_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,input_len,output_len\n0,1,1\n-1,1,1\n")
    arrival = {"kind": "trace", "path": "t.csv"}
    error = error_of({"arrival": arrival}, tmp_path)
    assert (error.file, error.field) == (str(tmp_path / "t.csv"), "line 3, arrival_s")
    result = traffic({"arrival": {**arrival, "bad_rows": "skip"}}, tmp_path)
    assert (len(result.requests), len(result.remarks)) == (1, 1)


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        (
            {"arrival": {"kind": "trace", "rows": [[2, 1, 1], [1, 1, 1]]}},
            "arrival.rows[1].arrival_s",
        ),
        ({"arrival": {**POISSON, "rate_per_s": 1e-9}}, "arrival.rate_per_s"),
        ({"arrival": {**POISSON, "ramp": "linear"}}, "arrival.ramp"),
        ({"arrival": {**POISSON, "ramp_to_per_s": 9, "exact_rate": True}}, "arrival.exact_rate"),
        ({"arrival": {**CLOSED, "burst": 2}}, "arrival.burst"),
        ({"arrival": {**POISSON, "stages": [STAGE]}}, "arrival.rate_per_s"),
        ({"arrival": {**CLOSED, "stages": [STAGE]}}, "arrival.stages"),
        ({"arrival": {"kind": "poisson", "stages": [STAGE]}, "requests": 4}, "requests"),
        ({"arrival": {**POISSON, "bad_rows": "skip"}}, "arrival.bad_rows"),
        ({"arrival": {**CLOSED, "rows": ROWS, "path": "x"}}, "arrival"),
        ({"arrival": {"kind": "trace"}}, "arrival"),
        ({"arrival": POISSON, "prefix": {"length": 101}}, "prefix.length"),
        (
            {"arrival": POISSON, "prefix": {"hit_ratio": 0.5}, "sessions": {"turns": 2}},
            "prefix.hit_ratio",
        ),
        ({"arrival": {**CLOSED, "rows": ROWS}, "sessions": {"turns": 2}}, "sessions"),
        (
            {
                "arrival": POISSON,
                "input_len": {"kind": "zipf", "min": 1, "max": 9_000_000, "exponent": 1.0},
            },
            "input_len.max",
        ),
    ],
)
def test_errors_name_their_field(workload: dict[str, Any], field: str) -> None:
    assert error_of({**LENGTHS, **workload}).field == f"workload.{field}"


def test_an_answer_warns_of_what_was_left_out() -> None:
    from silicast.scenario.answers.serving.answerer import ServingAnswerer

    rows = [[0.0, 100, 10], [0.5, 200, 20], [0.4, 100, 10]]
    tree = {
        "task": "serving", "device": "H100", "model": "Llama-3.1-8B", "engine": "vllm",
        "workload": {"arrival": {"kind": "trace", "rows": rows, "bad_rows": "skip"}},
    }  # fmt: skip
    answer = ServingAnswerer().answer(decode(tree))
    assert any("1 of 3 rows are left out" in warning for warning in answer.warnings)
