"""Time per token and energy per token of language models that ML.ENERGY served (version 2).

A row is a closed loop that keeps so many sequences running; it is predicted as that traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from lab.scorecard.model_suite import Case, Metric, RunsScore
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records

TABLE = "energy/mlenergy_v2_llm.parquet"
METRICS = ("tpot_mean_ms", "output_tokens_per_s", "power_w", "energy_per_output_token_j")
REQUESTS = {"chat": 840, "code": 550}
"""Of a run: what throughput is averaged over says N / c of 1,550 and 1,018 on the train models
(``benchmarks/mlenergy_runs.py``), and c is 0.54 where answers spread evenly from half to one and a
half of their mean: the mean time that those under way still take when no more are sent."""
ENGINE_VERSION = "0.4.2"
"""The source's README says about 0.4."""
PROMPT = {"chat": 246, "code": 160}
"""Tokens of a prompt, which the table does not have: the mean of ShareGPT's prompts in
``serving/request_traces``; a signature with its docstring (judged)."""
AGREES = 1.15
"""Where all running sequences decode, they are tokens a second x time per token. A row that says
more by this factor contradicts itself: much of a request's time is in neither, or its numbers are
not of the same part of the run."""
_DEVICES = {"NVIDIA A100-SXM4-40GB": "A100-SXM-40GB", "NVIDIA H100 80GB HBM3": "H100"}
_MODELS = {
    "codegemma-1.1-2b": "Gemma-2B",
    "codegemma-7b": "Gemma-7B",
    "CodeLlama-70b-hf": "Llama-2-70B",
    "Phi-3-medium-4k-instruct": "Phi-3-medium",
    "Phi-3-mini-4k-instruct": "Phi-3-mini",
}
"""Names whose architecture has another name."""
_UNKNOWN = {"Phi-3-small-8k-instruct"}
"""Blocks of its attention are sparse, which no model of the catalog has."""


Split = Literal["train", "test"]


def cases(data: Path, split: Split = "test") -> list[Case]:
    """One case a run of a language model of a split, sorted.

    Args:
        split: every second model by name is "train": constants of the engine's host are from them
            (``lab/fit_host.py``), and they are not scored.
    """
    return [case_of(row) for row in runs(data, split)]


def runs(data: Path, split: Split) -> list[dict[str, Any]]:
    """The rows of a split, sorted."""
    rows = [
        row
        for row in read_records(data / TABLE)
        if row["task"].startswith("llm_") and _short(row) not in _UNKNOWN
    ]
    names = sorted({_short(row) for row in rows})
    chosen = set(names[::2] if split == "train" else names[1::2])
    return sorted((row for row in rows if _short(row) in chosen), key=lambda row: row["path"])


def _short(row: Mapping[str, Any]) -> str:
    return str(row["model"].split("/")[-1])


def case_of(row: Mapping[str, Any]) -> Case:
    """A run as traffic."""
    name, task = _short(row), row["task"].split("/")[-1]
    running, output = max(round(row["avg_batch"]), 1), row["avg_output_tokens"]
    devices = int(row["device_count"])
    return Case(
        scenario={
            "task": "serving", "device": _DEVICES[row["device"]], "model": _MODELS.get(name, name),
            "engine": {
                "name": "vllm", "version": ENGINE_VERSION,
                "options": {"max_num_seqs": int(row["max_batch"])},
            },
            "parallel": {"tp": int(row["tp"]), "pp": int(row["pp"])},
            "workload": {
                "arrival": {"kind": "closed", "concurrency": running},
                "requests": max(REQUESTS[task], running),
                "input_len": PROMPT[task],
                "output_len": {
                    "kind": "uniform", "min": round(0.5 * output), "max": round(1.5 * output),
                },
            },
        },
        measured={
            "tpot_mean_ms": 1e3 * row["avg_tpot_s"],
            "output_tokens_per_s": row["output_tokens_per_s"],
            "power_w": row["implied_power_w_all_gpus"] / devices,
            "energy_per_output_token_j": row["energy_j_per_output_token"],
        },
        labels={
            "device": _DEVICES[row["device"]], "model": name, "devices": str(devices),
            "sequences": _band(running), "traffic": task, "row": _self_consistent(row),
        },
    )  # fmt: skip


def _self_consistent(row: Mapping[str, Any]) -> str:
    decoding = row["output_tokens_per_s"] * row["avg_tpot_s"]
    return "consistent" if row["avg_batch"] <= AGREES * decoding else "contradictory"


def _band(running: int) -> str:
    for most in (16, 64, 256):
        if running <= most:
            return f"<= {most}"
    return "> 256"


SCORE = RunsScore(cases, [Metric(name) for name in METRICS])
SUITES = (Suite("mlenergy", (TABLE,), SCORE, both_tiers=False),)
