"""Offline tokens per second of MLPerf Inference 4.1 submissions: language models at saturation.

The table has neither lengths nor plans. All of a replica's requests are there at once and no server
is in front; what one replica gives counts as often as a system has replicas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import NAN, Believed, Case, score_cases
from lab.scorecard.rows import subsample
from lab.scorecard.suite import EVIDENCE, Scored, Suite
from lab.scorecard.tables import read_records
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.answers.serving.simulated import Simulated
from silicast.scenario.decode import decode
from silicast.serving.simulation.fleet import Fleet

TABLE = "serving/mlperf_inference_llm.parquet"
METRIC = "output_tokens_per_s"
METRICS = {"llama_tokens_per_s": "Llama-2-70B", "mixtral_tokens_per_s": "Mixtral-8x7B-v0.1"}
"""Metric -> the model whose runs it is of."""
REQUESTS = 4096
"""Of a replica: two times and more what its cache holds."""
ROOM = 1.3
"""A replica is the fewest devices, in powers of two, that hold so many times its weights."""
_MODELS = {
    "llama2-70b": ("Llama-2-70B", 69e9, 294),
    "mixtral-8x7b": ("Mixtral-8x7B-v0.1", 47e9, 180),
}
"""Benchmark -> model, its weights, tokens of a prompt. Prompts are those of OpenOrca, and of a
third each of OpenOrca, GSM8K and MBXP: as generally reported; the second number is judged.
"""
_DEVICES = {
    "NVIDIA H100-SXM-80GB": "H100",
    "NVIDIA H100-NVL-94GB": "H100-NVL",
    "NVIDIA H100-PCIe-80GB": "H100-PCIe",
    "NVIDIA H200-SXM-141GB": "H200",
    "NVIDIA H200-SXM-141GB-CTS": "H200",
    "NVIDIA GH200 Grace Hopper Superchip 144GB": "GH200-144GB",
    "NVIDIA GH200 Grace Hopper Superchip 96GB": "GH200-96GB",
    "NVIDIA L40S": "L40S",
    "NVIDIA B200-SXM-180GB": "B200",
    "AMD Instinct MI300X-NPS1-SPX-192GB-750W": "MI300X",
    "AMD MI300X-NPS1-SPX-192GB-750W": "MI300X",
}
_ENGINES = {
    "TensorRT": ("trtllm", "0.12.0"),
    "vLLM 0.4": ("vllm-v0", "0.6"),
    "vLLM 0.5": ("vllm-v0", "0.6"),
}
"""How a row's software begins -> engine. Batches are handed to it in its own process, without the
server that is in front of it in versions before 0.6 (engine ``vllm-0.5``). The rest says only CUDA,
and is left out.
"""
_IDENTITY = (
    "Submitter",
    "System",
    "Platform",
    "Accelerator",
    "accelerators_per_node",
    "Nodes",
    "Software",
    "Performance_Result",
)
_FP4 = ("B200",)
"""TensorRT-LLM's submissions run in FP8, on these devices in FP4; the column says fp16 of both."""


def cases(data: Path) -> list[Case]:
    """One case a run, sorted; one run is submitted for both targets of accuracy."""
    table: dict[tuple[str, ...], Case] = {}
    for row in read_records(data / TABLE, version="v4.1", Category="closed", Scenario="Offline"):
        benchmark = re.sub(r"-99(\.9)?$", "", row["Model"])
        engine = next((e for name, e in _ENGINES.items() if row["Software"].startswith(name)), None)
        if benchmark in _MODELS and engine:
            key = (benchmark, *(str(row[name]) for name in _IDENTITY))
            table[key] = _case(row, benchmark, engine)
    return [table[key] for key in sorted(table)]


def _case(row: Mapping[str, Any], benchmark: str, engine: tuple[str, str]) -> Case:
    device = _DEVICES[row["Accelerator"]]
    model, weight_bytes, prompt = _MODELS[benchmark]
    weights = "nvfp4" if device in _FP4 else "fp8"
    gpus = int(float(row["accelerators_per_node"])) * int(row["Nodes"])
    ranks = _ranks(weight_bytes * (0.55 if weights == "nvfp4" else 1.0), device, gpus)
    mean = re.search(r"TOKENS_PER_SAMPLE: ([\d.]+)", row["Accuracy"])
    assert mean is not None
    output = round(float(mean[1]), -1)  # submissions differ by single tokens
    return Case(
        scenario={
            "task": "serving", "device": device, "model": model,
            "engine": {"name": engine[0], "version": engine[1]},
            "parallel": {"tp": ranks}, "precision": {"weights": weights, "kv_cache": "fp8"},
            "workload": {
                "arrival": {"kind": "closed", "concurrency": REQUESTS}, "requests": REQUESTS,
                "input_len": prompt,
                "output_len": {
                    "kind": "uniform", "min": round(0.2 * output), "max": round(1.8 * output),
                },
            },
        },
        measured={METRIC: float(row["Performance_Result"]) / (gpus // ranks)},
        labels={
            "device": device, "model": model, "engine": row["Software"].split(",")[0],
            "devices": str(gpus), "submitter": row["Submitter"],
        },
    )  # fmt: skip


def _ranks(weight_bytes: float, device: str, gpus: int) -> int:
    capacity, ranks = find_device(device).dram.capacity_bytes, 1
    while ranks * capacity < ROOM * weight_bytes and 2 * ranks <= gpus:
        ranks *= 2
    return ranks


def answer(case: Case) -> dict[str, Believed]:
    """Simulated without a server in front; empty where something has no model yet."""
    scenario = dict(case.scenario)
    if not EVIDENCE.get().learned:
        scenario["tier"] = "analytic"
    try:
        served = prepared(decode(scenario)).served
        spec = replace(served.spec, front_ns=0, front_token_ns=0, back_ns=0)
        simulated = Simulated(Fleet.from_deployment(served.deployment, spec), served.simulate)
        value = simulated.metrics(served.metrics_of)[METRIC]
    except SilicastError as error:
        if error.kind == "internal":
            raise
        return {}
    return {METRIC: (value.estimate, value.p05, value.p95, simulated.bound().get(METRIC, NAN))}


def _score(data: Path, limit: int | None) -> list[Scored]:
    every = cases(data)
    chosen = [every[i] for i in subsample(len(every), limit)]
    answers = _answers(chosen)
    return [
        score_cases(metric, [chosen[i] for i in rows], [answers[i] for i in rows], of=METRIC)
        for metric, model in METRICS.items()
        if (rows := [i for i, case in enumerate(chosen) if case.labels["model"] == model])
    ]


def _answers(chosen: Sequence[Case]) -> list[dict[str, Believed]]:
    """Every answer, in order; systems that differ in name alone are one."""
    keys = [json.dumps(case.scenario, sort_keys=True) for case in chosen]
    table = {key: answer(case) for key, case in dict(zip(keys, chosen, strict=True)).items()}
    return [table[key] for key in keys]


SUITES = (Suite("mlperf", (TABLE,), _score, both_tiers=False),)
