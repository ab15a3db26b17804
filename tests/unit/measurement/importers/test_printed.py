"""What benchmark tools print: boxed tables, labels of launchers, lists of what failed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.source import Source
from silicast.measurement.importers.field_map import arguments_in
from silicast.measurement.importers.importer import Options, importer_of
from silicast.measurement.records.records import RunRow, UnreadRow
from tests.unit.measurement.importers import samples as s
from tests.unit.measurement.importers.test_runs import MODEL, VLLM, read, run

BOXED = """\
               NVIDIA {tool} | LLM Metrics
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┓
┃                        {statistic} ┃      avg ┃      p99 ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━┩
│          Time To First Token (ms) │    46.21 │   110.00 │
│              Request Latency (ms) │ 1,291.55 │ 1,400.10 │
│          Inter Token Latency (ms) │     9.81 │    10.80 │
│  Output Token Throughput Per User │   101.94 │   109.50 │
│                 (tokens/sec/user) │          │          │
│   Output Sequence Length (tokens) │   128.00 │   128.00 │
│    Input Sequence Length (tokens) │   512.00 │   512.00 │
│           Output Token Throughput │   790.20 │      N/A │
│                      (tokens/sec) │          │          │
│      Request Throughput (per sec) │     6.17 │      N/A │
│             Request Count (count) │   100.00 │      N/A │
└───────────────────────────────────┴──────────┴──────────┘
"""
METRICS = {
    "ttft_mean_ms": 46.21,
    "ttft_p99_ms": 110.0,
    "tpot_mean_ms": 9.81,
    "tpot_p99_ms": 10.8,
    "e2e_mean_ms": 1291.55,
    "e2e_p99_ms": 1400.1,
    "output_tokens_per_s": 790.2,
    "requests_per_s": 6.17,
}
LENGTHS = {"requests": 100, "input_len": 512, "output_len": 128}


@pytest.mark.parametrize("label", ["", "(client pid=7) ", "[rank0]: "])
def test_the_table_of_genai_perf(tmp_path: Path, label: str) -> None:
    lines = BOXED.format(tool="GenAI-Perf", statistic="Statistic").splitlines()
    text = "\n".join(label + line for line in lines)
    load = {"workload__arrival__concurrency": 8}
    path = s.written(tmp_path, "x", text)
    row = run(read(path, "genai-perf", "h100", **VLLM, **MODEL, **load))
    assert row.metrics == METRICS
    arrival = {"kind": "closed", "concurrency": 8}
    assert row.scenario["workload"] == {"arrival": arrival, **LENGTHS}


def test_the_table_of_aiperf_with_its_command(tmp_path: Path) -> None:
    text = BOXED.format(tool="AIPerf", statistic="Metric")
    text += "CLI Command: aiperf profile --model 'Qwen/Qwen3-0.6B' --streaming --concurrency 16\n"
    row = run(read(s.written(tmp_path, "x", text), "aiperf", "h100", **VLLM))
    assert row.metrics == METRICS
    assert row.scenario["model"] == "Qwen/Qwen3-0.6B"
    arrival = {"kind": "closed", "concurrency": 16}
    assert row.scenario["workload"] == {"arrival": arrival, **LENGTHS}


@pytest.mark.parametrize(
    "label", ["(APIServer pid=12) ", "[0]: ", "client-1  | ", "\x1b[32m", "\x1b[36mc-1 |\x1b[0m "]
)
def test_labels_before_the_table_of_vllm(tmp_path: Path, label: str) -> None:
    text = "\n".join(label + line for line in s.VLLM_PRINT.splitlines())
    path = s.written(tmp_path, "x", text)
    row = run(read(path, "vllm-bench", "h100", **VLLM, **MODEL))
    assert (row.metrics["ttft_mean_ms"], row.metrics["output_tokens_per_s"]) == (62.5, 409.6)


def test_labels_before_what_trtllm_bench_prints(tmp_path: Path) -> None:
    row = run(read(s.written(tmp_path, "x", s.TRTLLM_PRINT), "trtllm-bench", "h100"))
    text = "\n".join(f"3: {line}" for line in s.TRTLLM_PRINT.splitlines())
    labelled = run(read(s.written(tmp_path, "y", text), "trtllm-bench", "h100"))
    assert labelled.metrics == row.metrics
    assert labelled.scenario == row.scenario


def test_a_box_of_something_else_beside_the_table(tmp_path: Path) -> None:
    text = "│ Model │ Qwen │ 8B │\n" + s.VLLM_PRINT
    path = s.written(tmp_path, "x", text)
    assert run(read(path, "vllm-bench", "h100", **VLLM, **MODEL)).metrics["ttft_mean_ms"] == 62.5


@pytest.mark.parametrize(
    ("tool", "result", "failed"),
    [
        ("vllm-bench", {**s.VLLM, "errors": [""] * 60 + ["timed out"] * 20}, "20 of"),
        ("sglang-bench", {**s.SGLANG, "num_prompts": 200}, "40 of 200"),
        ("sglang-bench", {**s.SGLANG, "errors": ["", "500", "500"]}, "2 of"),
        (
            "aiperf",
            {**s.AIPERF, "error_summary": [{"count": 3}, {"count": 4, "error_details": {}}]},
            "7 of",
        ),
    ],
)
def test_failures_that_a_file_lists(
    tmp_path: Path, tool: str, result: dict[str, Any], failed: str
) -> None:
    stated = VLLM if tool == "aiperf" else {}
    reading = read(s.written(tmp_path, "x", result), tool, "h100", **stated)
    assert "failed_requests" in run(reading).flags
    assert any(f"{failed}" in note and "failed" in note for note in reading.session.notes)


@pytest.mark.parametrize("tool", s.OFFLINE)
@pytest.mark.parametrize("label", ["", "bench-1  | "])
def test_engines_without_a_server(tmp_path: Path, tool: str, label: str) -> None:
    """vLLM prints no count of requests: 128,000 tokens at 20 a second of 2,560 are 1,000."""
    text = "\n".join(label + line for line in s.OFFLINE[tool].splitlines())
    row = run(read(s.written(tmp_path, "x", text), tool, "h100", **MODEL))
    assert row.metrics == {"output_tokens_per_s": 2560.0, "requests_per_s": 20.0}
    work = {"requests": 1000, "input_len": 512, "output_len": 128}
    arrival = {"kind": "closed", "concurrency": 1000}
    assert row.scenario["workload"] == {"arrival": arrival, **work}
    assert row.scenario["engine"]["options"] == {"http_server": False}


def test_the_file_of_a_throughput_test(tmp_path: Path) -> None:
    text = '{"elapsed_time": 50.0, "num_requests": 1000, "requests_per_second": 20.0}'
    lengths = {"workload__input_len": 512, "workload__output_len": 128}
    reading = read(
        s.written(tmp_path, "x.json", text), "vllm-throughput", "h100", **MODEL, **lengths
    )
    assert run(reading).metrics == {"requests_per_s": 20.0}
    assert run(reading).scenario["workload"]["arrival"]["concurrency"] == 1000


ARGUMENTS = (
    "Namespace(backend='{backend}', dataset_name='random', model='Qwen/Qwen3-0.6B', "
    "tokenizer=None, num_prompts=400, request_rate={rate}, max_concurrency={limit})"
)
RESULT = """\
============ Serving Benchmark Result ============
{backend}Successful requests:                     300
Benchmark duration (s):                  30.00
Total input tokens:                      153600
Total generated tokens:                  38400
Request throughput (req/s):              10.00
Output token throughput (tok/s):         1280.00
Mean TTFT (ms):                          40.00
Mean TPOT (ms):                          9.00
==================================================
"""


@pytest.mark.parametrize("tool", ["vllm-bench", "sglang-bench"])
def test_the_arguments_that_a_benchmark_prints(tmp_path: Path, tool: str) -> None:
    backend = tool.partition("-")[0]
    block = RESULT.format(backend="Backend: sglang\n" if backend == "sglang" else "")
    first = ARGUMENTS.format(backend=backend, rate="inf", limit=16)
    second = ARGUMENTS.format(backend=backend, rate=4.0, limit=None)
    path = s.written(tmp_path, "x", f"{first}\n{block}benchmark_args={second}\n{block}")
    closed, sent = read(path, tool, "h100").records
    assert isinstance(closed, RunRow)
    assert isinstance(sent, RunRow)
    assert closed.scenario["model"] == "Qwen/Qwen3-0.6B"
    assert closed.scenario["workload"]["arrival"] == {"kind": "closed", "concurrency": 16}
    arrival = sent.scenario["workload"]["arrival"]
    assert (arrival["kind"], arrival["rate_per_s"]) == ("poisson", 4.0)
    assert "many_failed" in closed.flags  # 100 of 400


def test_the_arguments_of_tests_without_a_server(tmp_path: Path) -> None:
    sizes = "input_len=1024, output_len=64, batch_size=16"
    more = "num_prompts=50, model='Qwen/Qwen3-0.6B', tensor_parallel_size=2)"
    text = f"Namespace(subparser='bench', {sizes}, {more}\n"
    path = s.written(tmp_path, "x", text + s.BATCH_LATENCY)
    reading = read(path, "vllm-latency", "h100")
    row = run(reading)
    assert row.scenario["workload"] == {"batch": 16, "input_len": 1024, "output_len": 64}
    assert row.scenario["parallel"] == {"tp": 2}
    assert (reading.session.devices, reading.session.notes) == (2, [])
    stated = run(read(path, "vllm-latency", "h100", workload__batch=4, model="Qwen3-8B"))
    assert (stated.scenario["workload"]["batch"], stated.scenario["model"]) == (4, "Qwen3-8B")
    path = s.written(tmp_path, "y", text + s.OFFLINE["vllm-throughput"])
    row = run(read(path, "vllm-throughput", "h100"))
    assert row.scenario["parallel"] == {"tp": 2}
    assert row.scenario["workload"]["requests"] == 50


def test_genai_perf_that_answered_fewer_requests_than_it_was_to_send(tmp_path: Path) -> None:
    written = {
        "request_count": {"unit": "count", "avg": 60.0},
        "request_latency": {"unit": "ms", "avg": 1300.0},
        "time_to_first_token": {"unit": "ms", "avg": 45.0},
        "input_sequence_length": {"unit": "tokens", "avg": 512.0},
        "output_sequence_length": {"unit": "tokens", "avg": 128.0},
        "input_config": {
            "model_names": ["Qwen/Qwen3-0.6B"],
            "concurrency": 8,
            "request_count": 100,
        },
    }
    path = s.written(tmp_path, "x.json", json.dumps(written))
    row = run(read(path, "genai-perf", "h100", **VLLM))
    assert row.flags == ["failed_requests", "many_failed"]


def test_arguments_that_are_objects_say_nothing_of_the_run() -> None:
    """A drafter's model and degree stood for those of the model behind it."""
    drafter = "SpeculativeConfig(model='small', tensor_parallel_size=1, sizes=[1, 2])"
    text = f"Namespace(model='a, (b', tensor_parallel_size=8, drafter={drafter}, pp=2) model='x')"
    assert arguments_in(text) == {"model": "a, (b", "tensor_parallel_size": "8", "pp": "2"}


def test_long_lines_of_arguments_are_read_in_one_pass() -> None:
    """Time went with the square of the length: 40 kB took 9 s."""
    start = time.process_time()
    assert arguments_in("Namespace(" + "a='x " * 20_000) == {}
    assert time.process_time() - start < 5.0


def test_commas_that_are_no_thousands_are_no_number(tmp_path: Path) -> None:
    """Numbers of a system that writes decimals with a comma are refused, not taken as 100 times."""
    text = "\n".join(
        f"{label:<41}{value}"
        for label, value in (
            ("============ Serving Benchmark Result ============", ""),
            ("Successful requests:", "100"),
            ("Total input tokens:", "51200"),
            ("Total generated tokens:", "12800"),
            ("Request throughput (req/s):", "6,17"),
            ("Output token throughput (tok/s):", "790,20"),
            ("Mean TTFT (ms):", "46,21"),
        )
    )
    reading = read(s.written(tmp_path, "x", text), "vllm-bench", "h100", **VLLM, **MODEL)
    (row,) = [row for row in reading.records if isinstance(row, UnreadRow)]
    assert row.reason == "holds no metric"


@pytest.mark.parametrize("cell", ["0,125", "12,5"])
def test_a_table_with_a_decimal_comma_is_refused(tmp_path: Path, cell: str) -> None:
    path = Source(s.written(tmp_path, "x.csv", s.GENAI_CSV.replace("61.00", f'"{cell}"')))
    with pytest.raises(SilicastError, match="decimal comma"):
        importer_of(path).read(path, Options())
