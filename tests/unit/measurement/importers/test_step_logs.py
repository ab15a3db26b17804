"""Steps that engines log: which are decode steps of a batch, and their medians by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.importers.importer import FileReading
from silicast.measurement.records.records import RunRow, UnreadRow
from silicast.scenario.decode import decode
from tests.unit.measurement.importers import samples as s
from tests.unit.measurement.importers.test_runs import MODEL, VLLM, read

NAME = "engine-steps"


def runs(reading: FileReading) -> dict[tuple[int, int], dict[str, float]]:
    """(batch, tokens before) -> metrics, in the order of the file."""
    rows = [row for row in reading.records if isinstance(row, RunRow)]
    for row in rows:
        assert row.scenario["task"] == "inference"
        decode(row.scenario)
    works = [row.scenario["workload"] for row in rows]
    return {(w["batch"], w["input_len"]): row.metrics for w, row in zip(works, rows, strict=True)}


def mixed(reading: FileReading) -> int:
    return sum(row.count for row in reading.records if isinstance(row, UnreadRow))


def sglang(batch: int, held: int, rate: float, more: str = "") -> str:
    return (
        f"[2026-03-01 12:00:00] Decode batch, #running-req: {batch}, #token: {held}, token usage: "
        f"0.05, {more}cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0, "
    )


PREFILL = "[x] Prefill batch, #new-seq: 1, #new-token: 1024, #cached-token: 0, token usage: 0.00"


def test_sglang_counts_batches_that_stayed(tmp_path: Path) -> None:
    lines = [
        sglang(8, 8000, 400.0),  # no line before it
        sglang(8, 8320, 800.0),
        sglang(8, 8400, 640.0),
        PREFILL,
        sglang(8, 8500, 100.0),  # prompts ran between
        sglang(4, 4000, 500.0),  # another batch
        sglang(4, 4000, 250.0, "accept len: 2.50, accept rate: 0.50, "),  # several tokens a step
    ]
    reading = read(s.written(tmp_path, "x", "\n".join(lines)), NAME, "h100", **MODEL)
    assert runs(reading) == {(8, 1045): {"decode_step_ms": (10.0 + 12.5) / 2}}
    assert mixed(reading) == 3
    (row,) = [row for row in reading.records if isinstance(row, RunRow)]
    assert row.spread["decode_step_ms"].repeats == 2
    assert row.scenario["engine"] == {"name": "sglang"}


def test_contexts_that_differ_are_rows_of_their_own(tmp_path: Path) -> None:
    lines = [sglang(2, held, 100.0) for held in (2000, 2000, 16000, 16000)]
    reading = read(s.written(tmp_path, "x", "\n".join(lines)), NAME, "h100", **MODEL)
    assert set(runs(reading)) == {(2, 1000), (2, 8000)}


def test_means_of_vllm_take_the_context_from_the_cache(tmp_path: Path) -> None:
    def means(prompt: float, rate: float, used: float) -> str:
        return (
            f"(APIServer pid=1) INFO [loggers.py:1] Engine 000: Avg prompt throughput: {prompt} "
            f"tokens/s, Avg generation throughput: {rate} tokens/s, Running: 16 reqs, Waiting: 0 "
            f"reqs, GPU KV cache usage: {used}%, Prefix cache hit rate: 0.0%"
        )

    lines = [
        "INFO [kv_cache_utils.py:1] GPU KV cache size: 400,000 tokens",
        means(3000.0, 500.0, 4.0),
        means(0.0, 1000.0, 8.0),  # the mean of an interval that began with prompts
        means(0.0, 1600.0, 8.0),
    ]
    reading = read(s.written(tmp_path, "x", "\n".join(lines)), NAME, "h100", **MODEL)
    assert runs(reading) == {(16, 2000): {"decode_step_ms": 10.0}}
    assert mixed(reading) == 2


VLLM_STEP = (
    "INFO [core.py:1] Iteration({n}): {p} context requests, {t} context tokens, {d} generation "
    "requests, {d} generation tokens, iteration elapsed time: {ms} ms"
)
TRTLLM_STEP = (
    "[TRT-LLM] [RANK 0] [I] iter = {n}, global_rank = 0, rank = 0, currank_total_requests = 8/8, "
    "host_step_time = {ms}ms, prev_device_step_time = 1.0ms, timestamp = 2026, "
    "num_scheduled_requests: 8, states = {{'num_ctx_requests': {p}, 'num_ctx_tokens': {t}, "
    "'num_generation_tokens': {d}}}"
)


@pytest.mark.parametrize("form", [VLLM_STEP, TRTLLM_STEP], ids=["vllm", "trtllm"])
def test_iterations_one_by_one(tmp_path: Path, form: str) -> None:
    steps = [(0, 0, 8, 7.0), (0, 0, 8, 9.0), (2, 2048, 0, 50.0), (1, 512, 8, 30.0)]
    lines = [form.format(n=n, p=p, t=t, d=d, ms=ms) for n, (p, t, d, ms) in enumerate(steps)]
    path = s.written(tmp_path, "x", "\n".join(lines))
    with pytest.raises(SilicastError, match=r"workload\.input_len.*is not in the log"):
        read(path, NAME, "h100", **MODEL)
    path = s.written(tmp_path, "y", "\n".join(lines[:2] + lines[3:]))
    reading = read(path, NAME, "h100", **MODEL, workload__input_len=700)
    assert runs(reading) == {(8, 700): {"decode_step_ms": 8.0}}
    assert mixed(reading) == 1
    path = s.written(tmp_path, "z", lines[2])
    assert runs(read(path, NAME, "h100", **MODEL)) == {(2, 1024): {"prefill_ms": 50.0}}


def test_forward_pass_metrics_of_dynamo(tmp_path: Path) -> None:
    def step(wall: float, **counts: int) -> dict[str, Any]:
        return {"worker_id": "a", "dp_rank": 0, "wall_time": wall, "scheduled_requests": counts}

    steps = [
        step(0.010, num_decode_requests=4, sum_decode_kv_tokens=8000, num_prefill_requests=0),
        step(0.012, num_decode_requests=4, sum_decode_kv_tokens=8000, num_prefill_requests=0),
        step(0.100, num_decode_requests=0, num_prefill_requests=2, sum_prefill_tokens=3000),
        step(0.130, num_decode_requests=1, num_prefill_requests=2, sum_prefill_tokens=3000),
    ]
    text = "\n".join(json.dumps(each) for each in steps)
    path = s.written(tmp_path, "x", text)
    with pytest.raises(SilicastError, match=r"engine: is not in the log"):
        read(path, NAME, "h100", **MODEL)
    reading = read(path, NAME, "h100", **MODEL, **VLLM)
    assert runs(reading) == {(4, 2000): {"decode_step_ms": 11.0}, (2, 1500): {"prefill_ms": 100.0}}
    assert mixed(reading) == 1


def test_a_log_without_steps_of_one_kind_says_so(tmp_path: Path) -> None:
    path = s.written(tmp_path, "x", sglang(8, 8000, 400.0))
    with pytest.raises(SilicastError, match="holds no step that a scenario describes"):
        read(path, NAME, "h100", **MODEL)
