"""The loop of serving: a benchmark is imported, scored, calibrates, and is then predicted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from silicast.core.calibrated import HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope, save_calibration
from silicast.measurement.calibrate import CalibrationResult, calibrate
from silicast.measurement.importers.files import import_files, save
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.validation.measured import score_measured

H100 = "H100-SXM-80GB"
MODEL = "Llama-3.1-8B"
FRONT_US, TOKEN_US, BACK_US, STEP_US, FACTOR = 9000.0, 1.5, 3500.0, 700.0, 1.15
"""Of the machine that is measured; the catalog has others."""


def truth(folder: Path) -> Path:
    """A machine whose kernels, host, front and back take longer than predicted."""
    constants = {"front_us": FRONT_US, "front_token_us": TOKEN_US, "back_us": BACK_US,
                 "step_us": STEP_US}  # fmt: skip
    made = Calibration(
        FORMAT, Scope(H100), [],
        constants=[HostConstant(n, value, 0.1, 1, engine="vllm") for n, value in constants.items()],
        models=[InModels("vllm", "serving", math.log(FACTOR), 0.03, 1, (1, 2), tasks=["serving"])],
    )  # fmt: skip
    save_calibration(made, folder / "truth.json")
    return folder / "truth.json"


STATISTICS = {"mean": "mean", "p50": "median", "p99": "p99"}
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el"}


def bench(
    calibration: Path, concurrency: int, input_len: int, output_len: int, requests: int = 24
) -> dict[str, Any]:
    """What ``vllm bench serve`` would have written of the machine."""
    arrival = {"kind": "closed", "concurrency": concurrency}
    answer = asked(
        {"arrival": arrival, "requests": requests, "input_len": input_len,
         "output_len": output_len},
        calibration,
    )  # fmt: skip
    found: dict[str, Any] = {
        "backend": "vllm", "model_id": MODEL, "num_prompts": requests, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": concurrency, "completed": requests,
        "total_input_tokens": requests * input_len, "total_output_tokens": requests * output_len,
        "output_throughput": answer.metrics["output_tokens_per_s"].estimate,
    }  # fmt: skip
    for ours, theirs in LATENCIES.items():
        for statistic, word in STATISTICS.items():
            found[f"{word}_{theirs}_ms"] = answer.metrics[f"{ours}_{statistic}_ms"].estimate
    return found


def asked(workload: dict[str, Any], calibration: Path | None = None) -> Answer:
    tree: dict[str, Any] = {
        "task": "serving", "model": MODEL, "device": H100, "engine": "vllm", "workload": workload,
    }  # fmt: skip
    if calibration is not None:
        tree["calibration"] = str(calibration)
    return run(decode(tree))


def imported(path: Path, *results: dict[str, Any]) -> Path:
    """A file of measurements."""
    source = path.with_suffix(".json")
    source.write_text("\n".join(map(json.dumps, results)))
    save(import_files([source], device=H100, fields={}), path)
    return path


SHAPES = ((1, 128, 32), (4, 2000, 32), (16, 512, 32), (32, 64, 32), (2, 6000, 16))
"""Concurrency, tokens of prompts and of answers."""


def test_a_benchmark_finds_the_constants_of_its_machine(tmp_path: Path) -> None:
    machine = truth(tmp_path)
    rows = imported(tmp_path / "m.jsonl", *(bench(machine, *shape) for shape in SHAPES))
    found = calibrate(rows, H100)
    constants = {each.constant: each for each in found.calibration.constants}
    (model,) = found.calibration.models
    print({k: (v.value_us, v.log_sd) for k, v in constants.items()}, math.exp(model.log_ratio), model.log_sd, found.notes)
    assert math.exp(model.log_ratio) == pytest.approx(FACTOR, rel=0.03)
    assert constants["front_us"].value_us == pytest.approx(FRONT_US, rel=0.05)
