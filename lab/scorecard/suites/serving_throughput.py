"""Saturated throughput of TensorRT-LLM: all requests are queued at once, without a server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, score_cases
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.core.errors import SilicastError
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import decode
from silicast.serving.simulation.fleet import Fleet

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


def answer(case: Case) -> dict[str, Believed]:
    """Simulated without a server in front; empty where something has no model yet."""
    scenario = dict(case.scenario)
    if not EVIDENCE.get().learned:
        scenario["tier"] = "analytic"
    try:
        served = prepared(decode(scenario)).served
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}
    spec = dataclasses.replace(served.spec, front_ns=0, front_token_ns=0, back_ns=0)
    simulated = Simulated(Fleet.from_deployment(served.deployment, spec), served.simulate)
    value = simulated.metrics(served.metrics_of)[METRIC]
    return {METRIC: (value.estimate, value.p05, value.p95, simulated.bound().get(METRIC, NAN))}


def _score(data: Path, limit: int | None) -> list[Scored]:
    every = cases(data)
    chosen = [every[i] for i in subsample(len(every), limit)]
    return [score_cases(METRIC, chosen, [answer(case) for case in chosen])]


SUITES = (Suite("serving-throughput", (TABLE,), _score, both_tiers=False),)
