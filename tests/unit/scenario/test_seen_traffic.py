"""Logs of other tools: what is read from each, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.formats.request_logs import read_request_log
from silicast.scenario.decode import load
from silicast.scenario.seen_traffic import seen_traffic


def span(start_s: float, end_s: float, tokens: tuple[int, int], session: str) -> dict[str, Any]:
    values = {
        "gen_ai.usage.input_tokens": {"intValue": str(tokens[0])},
        "gen_ai.usage.output_tokens": {"intValue": str(tokens[1])},
        "gen_ai.conversation.id": {"stringValue": session},
    }
    return {
        "startTimeUnixNano": str(int(start_s * 1e9)),
        "endTimeUnixNano": str(int(end_s * 1e9)),
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
    }


def test_spans_give_lengths_times_and_the_waits_within_conversations(tmp_path: Path) -> None:
    spans = [
        span(11.0, 12.0, (300, 30), "a"),
        span(0.0, 2.0, (100, 10), "a"),
        span(5.0, 6.0, (200, 20), "b"),
        span(13.5, 14.0, (400, 40), "a"),
        {"startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": []},  # no call of a model
    ]
    path = tmp_path / "spans.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    log = read_request_log(path)
    assert log is not None
    assert [each.input_tokens for each in log.requests] == [100, 200, 300, 400]
    assert log.tool_s() == pytest.approx([9.0, 1.5])
    seen = seen_traffic(path)
    assert seen.fitted.arrivals is not None
    assert seen.fitted.arrivals.fields["rate_per_s"] == pytest.approx(3 / 13.5)
    assert seen.fitted.tool_s is not None
    assert seen.fitted.tool_s.fields == {"think_time_s": 5.25}


def test_a_prompt_of_a_conversation_is_all_that_came_before(tmp_path: Path) -> None:
    turns = [("human", "x" * 40), ("gpt", "y" * 80), ("human", "x" * 20), ("gpt", "y" * 8)]
    rows = [{"id": "1", "conversations": [{"from": who, "value": text} for who, text in turns]}]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(rows))
    log = read_request_log(path)
    assert log is not None
    assert [(each.input_tokens, each.output_tokens) for each in log.requests] == [(10, 20), (35, 2)]
    assert any("no rate is known" in each for each in seen_traffic(path).remarks)


METRICS = """# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
vllm:request_prompt_tokens_bucket{le="100.0",model_name="m"} 2.0
vllm:request_prompt_tokens_bucket{le="200.0",model_name="m"} 3.0
vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 4.0
vllm:request_generation_tokens_bucket{le="10.0",model_name="m"} 4.0
vllm:request_generation_tokens_bucket{le="+Inf",model_name="m"} 4.0
vllm:prefix_cache_queries_total{model_name="m"} 1000.0
vllm:prefix_cache_hits_total{model_name="m"} 250.0
"""


def test_histograms_give_lengths_in_their_buckets_and_the_hit_rate(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS)
    log = read_request_log(path)
    assert log is not None
    assert sorted(each.input_tokens for each in log.requests) == [25, 75, 150, 200]
    assert log.prefix_share == 0.25
    assert seen_traffic(path).fitted.workload()["prefix"] == {"hit_ratio": 0.25}
    path.write_text("vllm:num_requests_running 0.0\n")
    with pytest.raises(SilicastError, match="no request is counted"):
        read_request_log(path)


@pytest.mark.parametrize(
    "text",
    [
        '[{"conversations": [{"from": "human", "value": "x"}, 7]}]',
        '[{"conversations": []}, 7]',
        '{"resourceSpans": [{"scopeSpans": 5}]}',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": "x"}]}]}]}',
    ],
)
def test_lists_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(SilicastError, match="expected a list of tables"):
        read_request_log(path)


def test_a_conversation_without_turns_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    turns = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]
    path.write_text(json.dumps([{"conversations": turns}, {"conversations": None}]))
    log = read_request_log(path)
    assert log is not None
    assert len(log.requests) == 1


def test_a_server_of_years_is_read_as_one_of_hours(tmp_path: Path) -> None:
    """A thousand million requests in the same shares: lengths are the same, and no more are held
    than stand for them."""
    path = tmp_path / "metrics.txt"
    text = METRICS
    for count in ("2.0", "3.0", "4.0"):
        text = text.replace(f"}} {count}\n", f"}} {float(count) * 1e9}\n")
    path.write_text(text)
    log = read_request_log(path)
    assert log is not None
    assert len(log.requests) == 100_000
    lengths = [each.input_tokens for each in log.requests]
    assert sum(length <= 100 for length in lengths) == pytest.approx(50_000, rel=0.01)
    assert sum(100 < length < 200 for length in lengths) == pytest.approx(25_000, rel=0.01)
    assert any("stand for all" in line for line in log.remarks)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [('le="200.0"', 'le="many"', "an edge from 0"), ("} 3.0", "} 1.0", "counts of its buckets")],
)
def test_buckets_that_are_none_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS.replace(old, new))
    with pytest.raises(SilicastError, match=said):
        read_request_log(path)


def test_the_written_scenario_is_one(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"{i * 0.5},{100 + i % 7},{10 + i % 3}" for i in range(40)]
    trace.write_text("arrival_s,input_len,output_len\n" + "\n".join(rows))
    out = tmp_path / "serve.toml"
    words = ["traffic", str(trace), "--model", "Llama-3.1-8B", "--device", "h100", "-o", str(out)]
    assert main(words) == 0
    scenario = load(out)
    assert scenario.raw.workload is not None
    assert scenario.raw.workload["arrival"]["kind"] == "gamma"


@pytest.mark.parametrize("flags", [["--device", "nosuch"], ["--model", "nosuch"]])
def test_a_name_that_is_none_writes_no_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "serve.toml"
    trace.write_text("arrival_s,input_len,output_len\n0,100,10\n1,110,12\n2,120,9\n")
    assert main(["traffic", str(trace), "-o", str(out), *flags]) == 2
    assert f"error: {flags[0][2:]}: unknown" in capsys.readouterr().err
    assert not out.exists()


def call(t: float, tokens: tuple[int, int], blocks: list[int], api: float) -> dict[str, Any]:
    lengths = {"in": tokens[0], "out": tokens[1]}
    return {"t": t, "type": "s", "model": "m", **lengths, "hash_ids": blocks, "api_time": api}


def agent_trace(name: str, *inner: dict[str, Any]) -> dict[str, Any]:
    """Two calls of a conversation, between which an agent makes those of ``inner``."""
    agent = {"t": 10.0, "type": "subagent", "agent_id": "a", "requests": list(inner)}
    outer = [call(0.0, (128, 10), [1, 2], 2.0), agent, call(20.0, (200, 20), [1, 2, 3], 4.0)]
    return {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": outer}


def test_traces_of_agents_give_waits_and_shared_blocks_of_each_conversation(tmp_path: Path) -> None:
    inner = [call(11.0, (64, 5), [1], 1.0), call(15.0, (70, 5), [1], 1.0)]
    relative = [call(1.0, (64, 5), [1], 1.0), call(5.0, (70, 5), [1], 1.0)]
    path = tmp_path / "agents.jsonl"
    rows = [agent_trace("x", *inner), agent_trace("y", *relative)]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    log = read_request_log(path)
    assert log is not None
    assert sorted(log.tool_s()) == pytest.approx([3.0, 3.0, 18.0, 18.0])
    assert {each.session for each in log.requests} == {"x", "x / a", "y", "y / a"}
    seen = seen_traffic(path)
    # of a trace: 128 tokens are new, 64 + 64 of the agent and 128 of the last call are not;
    # 6 and 72 tokens behind known blocks are new. Another trace has other blocks.
    assert seen.fitted.prefix_share == pytest.approx(2 * 256 / (2 * (128 + 64 + 70 + 200)))
    assert seen.fitted.arrivals is None
    assert seen.fitted.tool_s is not None
    assert seen.fitted.tool_s.fields == {"think_time_s": 10.5}
    folder = tmp_path / "traces"
    folder.mkdir()
    for row in rows:
        (folder / f"{row['id']}.json").write_text(json.dumps(row))
    assert seen_traffic(folder) == seen


@pytest.mark.parametrize("text", ["{", "", "[1]", '{"requests": []}'])
def test_a_broken_file_among_traces_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(agent_trace("x")))
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(SilicastError, match="expected a trace of an agent") as refused:
        read_request_log(tmp_path)
    assert refused.value.file == str(tmp_path / "b.json")


def test_blocks_behind_the_last_token_are_left_out_and_remarked(tmp_path: Path) -> None:
    """100 tokens are two blocks of 64; a call with two is as it should be."""
    path = tmp_path / "agents.json"
    calls = [
        {"type": "n", "t": float(n), "in": 100, "out": 5, "hash_ids": list(range(n))}
        for n in (2, 8)
    ]
    path.write_text(json.dumps([{"id": "x", "block_size": 64, "requests": calls}]))
    log = read_request_log(path)
    assert log is not None
    assert [each.blocks for each in log.requests] == [(("x 0", 64), ("x 1", 36))] * 2
    assert [each for each in log.remarks if each.startswith("1 calls have more hash_ids")]


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"block_size": 0}, "traces[0].block_size", "whole number from 1"),
        ({"requests": 5}, "traces[0].requests", "expected a list"),
        ({"requests": [{"type": "x"}]}, "traces[0].requests[0].type", "expected one of n, s"),
        ({"requests": [{"type": "n", "in": -1}]}, "traces[0].requests[0].in", "whole number"),
        (
            {"requests": [{"type": "n", "in": 1, "out": 1, "t": float("1e300")}]},
            "traces[0].requests[0].t",
            "at most 1e\\+09",
        ),
        (
            {"requests": [{"type": "n", "in": 0, "out": 0, "t": 0}, {"type": "n"}]},
            "traces[0].requests[1].in",
            "whole number",
        ),
        ({"requests": []}, "", "no trace has a call"),
    ],
)
def test_wrong_traces_of_agents_are_refused_by_field(
    change: dict[str, Any], field: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "agents.json"
    path.write_text(json.dumps([agent_trace("x") | change]))
    with pytest.raises(SilicastError, match=message) as refused:
        read_request_log(path)
    assert refused.value.field == field
    assert refused.value.file == str(path)
