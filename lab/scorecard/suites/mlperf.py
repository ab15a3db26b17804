"""Offline tokens per second of MLPerf Inference 4.1 submissions: language models at saturation.

The table has neither lengths nor plans. All of a replica's requests are there at once and no server
is in front; what one replica gives counts as often as a system has replicas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.scorecard.model_suite import Case, Metric, RunsScore, simulated
from lab.scorecard.suite import Suite
from lab.scorecard.tables import read_records
from silicast.hardware.catalog import find_device

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


SCORE = RunsScore(
    cases,
    [Metric(metric, METRIC, {"model": model}) for metric, model in METRICS.items()],
    partial(simulated, metrics=(METRIC,), server=False),
)
SUITES = (Suite("mlperf", (TABLE,), SCORE, both_tiers=False),)
