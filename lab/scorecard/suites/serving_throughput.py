"""Saturated throughput of TensorRT-LLM: all requests are queued at once, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import Case, Metric, RunsScore, simulated
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records

TABLE = "serving/trtllm_throughput_v1.parquet"
METRIC = "output_tokens_per_s"
_VERSION = "1.0.0"
_CHECKPOINTS = {
    ("Llama-3.3-70B-Instruct", "FP4"): "Llama-3.3-70B-NVFP4",
    ("Llama-3.3-70B-Instruct", "FP8"): "Llama-3.3-70B-FP8",
    ("Llama-3.1-405B-Instruct", "FP8"): "Llama-3.1-405B-FP8",
    ("Llama-3.1-8B-Instruct", "FP8"): "Llama-3.1-8B-FP8",
    ("Qwen3-235B-A22B", "FP4"): "Qwen3-235B-A22B-NVFP4",
    ("Qwen3-235B-A22B", "FP8"): "Qwen3-235B-A22B-FP8",
    ("Qwen3-30B-A3B", "FP4"): "Qwen3-30B-A3B-NVFP4",
}
_MODELS = {
    "Llama-4-Maverick-17B-128E-Instruct": "Llama-4-Maverick-17B-128E",
    "Llama-3.1-405B-Instruct": "Llama-3.1-405B",
}
_STEP_TOKENS = 8192
"""``max_num_tokens`` by default; for longer prompts, as many beside one of them."""
_FORMATS = {"FP4": "nvfp4", "FP8": "fp8"}


def cases(data: Path) -> list[Case]:
    """One case a run, sorted."""
    rows = sorted(
        read_records(data / TABLE),
        key=lambda row: (
            row["hf_model"],
            row["device"],
            int(row["input_len"]),
            int(row["output_len"]),
        ),
    )
    return [_case(row) for row in rows]


def _case(row: Mapping[str, Any]) -> Case:
    name = row["hf_model"].split("/")[-1]
    checkpoint = _CHECKPOINTS.get((name, row["precision"]))
    ranks = int(row["tp"])
    # with attention_dp each rank attends for sequences of its own, and has experts of its own
    groups = ranks if row["attention_dp"] else 1
    scenario: dict[str, Any] = {
        "task": "serving",
        "device": row["device"],
        "model": checkpoint or _MODELS.get(name, name),
        "engine": {"name": "trtllm", "version": _VERSION},
        "parallel": {
            "tp": ranks // groups,
            "pp": int(row["pp"]),
            "attention_dp": groups,
            "ep": groups,
        },
        "workload": {
            "arrival": {"kind": "closed", "concurrency": int(row["num_requests"])},
            "requests": int(row["num_requests"]),
            "input_len": int(row["input_len"]),
            "output_len": int(row["output_len"]),
        },
    }
    if row["input_len"] > _STEP_TOKENS:
        scenario["engine"]["options"] = {
            "max_num_batched_tokens": int(row["input_len"]) + _STEP_TOKENS
        }
    scenario["precision"] = {"kv_cache": "fp8"}  # as in NVIDIA's checkpoints of both formats
    if checkpoint is None:
        scenario["precision"]["weights"] = _FORMATS[row["precision"]]
    return Case(
        scenario=scenario,
        measured={METRIC: float(row["output_tokens_per_s_total"])},
        labels={
            "device": row["device"],
            "model": f"{name} {row['precision']}",
            "plan": f"{row['parallel_label']}{' attention DP' if row['attention_dp'] else ''}",
            "traffic": f"{int(row['input_len'])} / {int(row['output_len'])}",
        },
    )


SCORE = RunsScore(cases, [Metric(METRIC)], partial(simulated, metrics=(METRIC,), server=False))
SUITES = (Suite("serving-throughput", (TABLE,), SCORE, both_tiers=False),)
