"""Timelines in the Trace Event Format: what viewers read, and what adds up in them."""

from __future__ import annotations

import json
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.timeline.trace_events import (
    Arrow,
    CounterSample,
    PredictedTimeline,
    Slice,
    TraceSpan,
    Track,
    in_layers,
)
from silicast.core.errors import SilicastError
from silicast.report.drawing.trace import trace_document
from silicast.scenario.answerer import answerer_for
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from tests.unit.report.trace_format import check_trace

TRACK = Track("device", "stream 0")
SCENARIOS: dict[str, dict[str, Any]] = {
    "inference": {
        "task": "inference", "model": "Qwen3-8B", "device": "h100",
        "workload": {"batch": 4, "input_len": 128, "output_len": 4},
    },
    "tensor_parallel": {
        "task": "inference", "model": "Qwen3-8B", "device": "h100", "parallel": {"tp": 2},
        "workload": {"batch": 4, "input_len": 128, "output_len": 3},
    },
    "pipeline": {
        "task": "inference", "model": "Qwen3-8B", "device": "h100", "parallel": {"pp": 2},
        "workload": {"batch": 1, "input_len": 128, "output_len": 3},
    },
    "experts": {
        "task": "inference", "model": "DeepSeek-V3", "device": "h200", "parallel": {"tp": 8},
        "workload": {"batch": 4, "input_len": 128, "output_len": 3},
    },
    "host_bound": {
        "task": "inference", "model": "Qwen3-8B", "device": "h100", "engine": "torch-eager",
        "workload": {"batch": 1, "input_len": 16, "output_len": 3},
    },
    "graph": {
        "task": "graph", "model": "GPT2-Large", "device": "a100",
        "workload": {"mode": "inference", "batch": 1, "seq_len": 128},
    },
}  # fmt: skip


@cache
def traced(name: str) -> tuple[dict[str, Any], Any]:
    """The document of a scenario, and its answer."""
    scenario = decode({**SCENARIOS[name], "why": "full"})
    trace = answerer_for(scenario.raw.task).trace(scenario)
    document = json.loads(json.dumps(trace_document(trace)))
    return document, run(scenario)


@pytest.mark.parametrize("name", SCENARIOS)
def test_documents_hold_the_format_and_last_as_long_as_predicted(name: str) -> None:
    document, answer = traced(name)
    check_trace(document)
    predicted = answer.metrics["total_ms" if "total_ms" in answer.metrics else "e2e_ms"].estimate
    last = max(e["ts"] + e["dur"] for e in document["traceEvents"] if e["ph"] == "X")
    assert last == pytest.approx(predicted * 1e3, abs=2e-3)  # two nanoseconds
    total = document["otherData"]["total_ps"]
    assert total == pytest.approx(predicted * 1e9, abs=100)  # parts are rounded one by one
    assert last == pytest.approx(total / 1e6, abs=1e-3)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_kernel_begins_before_its_launch(name: str) -> None:
    document, _ = traced(name)
    ends: dict[int, dict[str, float]] = {}
    for event in document["traceEvents"]:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], {})[event["ph"]] = event["ts"]
    assert ends
    assert all(pair["s"] <= pair["f"] for pair in ends.values())


PROGRAM = """{"format": 1, "name": "mlp", "nodes": [
{"name": "up", "op": "gemm", "dims": {"m": 4096, "n": 4096, "k": 1024, "batch": 1},
 "output_bytes": 33554432, "parameter_bytes": 8388608},
{"name": "gelu", "op": "elementwise", "dims": {"elements": 16777216, "inputs": 1},
 "inputs": ["up"], "output_bytes": 33554432},
{"name": "side", "op": "gemm", "dims": {"m": 512, "n": 512, "k": 512, "batch": 1}, "stream": 1,
 "output_bytes": 524288},
{"name": "odd", "op": "data_movement", "source": "aten.foo", "flags": {"unmodelled": true},
 "dims": {"read_bytes": 8388608, "written_bytes": 8388608, "operations": 0},
 "inputs": ["gelu", "side"], "output_bytes": 8388608}]}"""


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_program_is_drawn_as_it_was_composed(mode: str, tmp_path: Path) -> None:
    (tmp_path / "mlp.json").write_text(PROGRAM)
    ask = {"task": "graph", "device": "h100", "workload": {"graph": "mlp.json", "mode": mode}}
    scenario = decode({**ask, "why": "full"}, folder=tmp_path)
    document = trace_document(answerer_for("graph").trace(scenario))
    check_trace(document)
    events = document["traceEvents"]
    last = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert last == pytest.approx(run(scenario).metrics["e2e_ms"].estimate * 1e3, abs=2e-3)
    streams = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"launches", "stream 0", "stream 1", "engine"} <= streams
    odd = next(e for e in events if e["name"] == "odd")
    assert odd["args"]["source"] == "aten.foo"
    held = [e["args"]["results"] for e in events if e["name"] == "memory (GB)"]
    assert max(held) >= 2 * 33554432 / 1e9


def test_passes_and_training_steps_end_when_they_are_predicted_to() -> None:
    ask = {
        "task": "training", "model": "Llama-3.2-1B", "device": "h100",
        "workload": {"seq_len": 128, "micro_batch": 1, "global_batch": 2},
    }  # fmt: skip
    scenario = decode(ask)
    document = trace_document(answerer_for("training").trace(scenario))
    check_trace(document)
    last = max(e["ts"] + e["dur"] for e in document["traceEvents"] if e["ph"] == "X")
    predicted = run(scenario).metrics["step_time_s"].estimate
    assert last == pytest.approx(predicted * 1e6, abs=2e-3)
    names = {e["name"] for e in document["traceEvents"]}
    assert {"forward", "backward", "optimizer", "launch"} <= names


def test_kernels_say_their_sizes_their_bound_and_what_they_wait_for() -> None:
    document, answer = traced("inference")
    events = document["traceEvents"]
    gate_up = next(e for e in events if e["name"] == "gate_up")
    assert gate_up["args"]["sizes"]["m"] == 4 * 128
    assert gate_up["args"]["bound_by"] in ("tensor", "dram")
    assert sum(gate_up["args"]["waits_for_us"].values()) == pytest.approx(gate_up["dur"], abs=2e-3)
    assert gate_up["args"]["duration_ps"] == pytest.approx(gate_up["dur"] * 1e6, abs=1001)
    attention = next(e for e in events if e["name"] == "attention_decode")
    assert attention["args"]["sizes"]["kv_len"] == [128, 128, 128, 128]
    prefill = next(e for e in events if e["name"] == "prefill")
    assert prefill["dur"] == pytest.approx(answer.metrics["prefill_ms"].estimate * 1e3, abs=2e-3)


def test_counters_of_memory_and_power_are_within_the_device() -> None:
    document, answer = traced("inference")
    counters = [e for e in document["traceEvents"] if e["ph"] == "C"]
    memory = [sum(e["args"].values()) for e in counters if e["name"] == "memory (GB)"]
    assert len(memory) == 4
    assert memory == sorted(memory)
    assert memory[-1] == pytest.approx(answer.metrics["memory_gb"].estimate, rel=1e-3)
    watts = [e["args"]["board"] for e in counters if e["name"] == "power (W)"]
    assert all(50.0 < value <= 700.0 for value in watts)


def test_decode_steps_are_as_many_as_there_are_and_at_most_four() -> None:
    few, _ = traced("inference")
    steps = {e["name"] for e in few["traceEvents"] if e["name"].startswith("decode step")}
    assert len(steps) == 3
    many = decode(
        {**SCENARIOS["inference"], "workload": {"batch": 1, "input_len": 8, "output_len": 50}}
    )
    document = trace_document(answerer_for("inference").trace(many))
    assert document["otherData"]["shown"] == "the first 4 of 49 decode steps"


def test_a_task_without_a_timeline_says_so() -> None:
    gemm = {"op": "gemm", "m": 8, "n": 8, "k": 8}
    scenario = decode({"task": "kernel", "device": "h100", "kernel": gemm})
    with pytest.raises(SilicastError, match="a timeline of task kernel"):
        answerer_for("kernel").trace(scenario)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(0, 10**15))
def test_neighbours_in_picoseconds_are_neighbours_in_any_viewer(
    lengths: list[int], start: int
) -> None:
    bounds = list(accumulate(lengths, initial=start))
    pieces = [Slice(TRACK, "k", a, b) for a, b in pairwise(bounds)]
    events = json.loads(json.dumps(_document(*pieces)))["traceEvents"]
    slices = [(e["ts"] * 1000, e["dur"] * 1000) for e in events if e["ph"] == "X"]
    for read in (int, round):
        seen = [(read(ts), read(ts) + read(dur)) for ts, dur in slices]
        assert all(end == begin for (_, end), (begin, _) in pairwise(seen))
    exact = [e["args"]["duration_ps"] for e in events if e["ph"] == "X"]
    assert exact == lengths


def _document(*slices: Slice, arrows: tuple[Arrow, ...] = ()) -> dict[str, Any]:
    samples = (CounterSample("device", "power (W)", 0, {"board": 1.0}),)
    return trace_document(
        PredictedTimeline("t", slices, arrows, samples, max(s.end_ps for s in slices))
    )


def test_the_check_finds_overlaps_arrows_without_ends_and_wrong_types() -> None:
    inside = (
        Slice(TRACK, "a", 0, 10_000), Slice(TRACK, "b", 2_000, 8_000),
        Slice(TRACK, "c", 10_000, 12_000),
    )  # fmt: skip
    check_trace(_document(*inside, arrows=(Arrow(inside[0], inside[1]),)))
    with pytest.raises(SilicastError, match="overlap"):
        check_trace(_document(Slice(TRACK, "a", 0, 10_000), Slice(TRACK, "b", 5_000, 15_000)))
    with pytest.raises(SilicastError, match="no two ends in time"):
        check_trace(_document(*inside, arrows=(Arrow(inside[1], inside[0]),)))
    document = _document(*inside)
    for field, value in (("ts", "0"), ("pid", None), ("dur", -1.0), ("ph", "Q"), ("tid", True)):
        broken = [{**e, field: value} if e["ph"] == "X" else e for e in document["traceEvents"]]
        with pytest.raises(SilicastError):
            check_trace({"traceEvents": broken})
    with pytest.raises(SilicastError, match="has no events"):
        check_trace({})


def test_neighbours_of_one_layer_are_one_slice() -> None:
    pieces = [("a", 0, 2), ("a", 2, 5), ("b", 4, 7), ("a", 7, 8)]
    items = [(s.name, s.start_ps, s.end_ps) for s in in_layers(TRACK, pieces)]
    assert items == [("a", 0, 5), ("b", 5, 7), ("a", 7, 8)]


@given(st.lists(st.tuples(*(st.integers(0, 5) for _ in range(4))), max_size=12))
def test_spans_of_requests_nest_at_any_length(cuts: list[tuple[int, ...]]) -> None:
    """Also parts without a length, and requests at the same moment."""
    spans: list[TraceSpan] = []
    for number, each in enumerate(cuts):
        sent, begun, first, done = (1000 * ns for ns in accumulate(each))
        spans.append(TraceSpan("replica 0", "requests", number, "request", sent, done))
        parts = {"queue": (sent, begun), "prefill": (begun, first), "decode": (first, done)}
        for name, (start, end) in parts.items():
            if end > start:
                spans.append(TraceSpan("replica 0", "requests", number, name, start, end))
    document = trace_document(
        PredictedTimeline("t", (Slice(TRACK, "s", 0, 1),), (), (), 1, {}, tuple(spans))
    )
    check_trace(document)
    assert sum(event["ph"] == "b" for event in document["traceEvents"]) == len(spans)


def test_a_span_without_its_end_is_found() -> None:
    span = TraceSpan("replica 0", "requests", 1, "request", 0, 5000)
    document = trace_document(
        PredictedTimeline("t", (Slice(TRACK, "s", 0, 1),), (), (), 1, {}, (span,))
    )
    document["traceEvents"] = [e for e in document["traceEvents"] if e["ph"] != "e"]
    with pytest.raises(SilicastError, match="no end"):
        check_trace(document)
