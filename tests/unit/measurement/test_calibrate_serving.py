"""The loop of serving: a benchmark is imported, scored, calibrates, and is then predicted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.core.calibrated import HostConstant, InModels
from silicast.core.calibration import FORMAT, Calibration, Scope, save_calibration
from silicast.core.errors import SilicastError
from silicast.measurement.calibrating.calibrate import CalibrationResult, calibrate
from silicast.measurement.importers.files import import_files, save
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.run import run
from silicast.scenario.workloads import ServingWorkload
from silicast.validation.measured import score_measured

H100 = "H100-SXM-80GB"
MODEL = "Llama-3.1-8B"
KNOWN = find_engine("vllm").serving
assert KNOWN is not None
FRONT_US, BACK_US, FACTOR = 2.2 * KNOWN.front_us, 1.8 * KNOWN.back_us, 1.15
"""Of the machine that is measured, and its kernels over those predicted."""


def truth(folder: Path) -> Path:
    """A machine whose kernels, host, front and back take longer than predicted."""
    constants = {"front_us": FRONT_US, "back_us": BACK_US}
    made = Calibration(
        FORMAT, Scope(H100), [],
        constants=[HostConstant(n, value, 0.1, 1, engine="vllm") for n, value in constants.items()],
        models=[InModels("vllm", "serving", math.log(FACTOR), 0.03, 1, (1, 2), tasks=["serving"])],
    )  # fmt: skip
    save_calibration(made, folder / "truth.json")
    return folder / "truth.json"


TREE = {"task": "serving", "model": MODEL, "device": H100, "engine": "vllm"}
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
    return {
        "backend": "vllm", "model_id": MODEL, "num_prompts": requests, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": concurrency, "completed": requests,
        "total_input_tokens": requests * input_len, "total_output_tokens": requests * output_len,
        **measured(answer),
    }  # fmt: skip


def measured(answer: Answer) -> dict[str, float]:
    """Metrics as the tool calls them."""
    measured = {"output_throughput": answer.metrics["output_tokens_per_s"].estimate}
    for ours, theirs in LATENCIES.items():
        for statistic, word in STATISTICS.items():
            measured[f"{word}_{theirs}_ms"] = answer.metrics[f"{ours}_{statistic}_ms"].estimate
    return measured


def asked(workload: dict[str, Any], calibration: Path | None = None) -> Answer:
    tree: dict[str, Any] = {**TREE, "workload": workload}
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


UNSEEN = (8, 1000, 48)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def machine(folder: Path) -> Path:
    return truth(folder)


@pytest.fixture(scope="module")
def unseen(folder: Path, machine: Path) -> Path:
    return imported(folder / "unseen.jsonl", bench(machine, *UNSEEN))


def errors(rows: Path, *calibrations: Path) -> dict[str, float]:
    """Metric -> mean error, percent."""
    result = score_measured([rows], calibrations, H100)
    assert not result.reasons
    return {group.name.split()[-1]: group.after.mean for group in result.groups}


def written(table: CalibrationResult, path: Path) -> Path:
    save_calibration(table.calibration, path)
    return path


@pytest.mark.full
def test_benchmarks_find_the_constants_of_their_machine(
    folder: Path, machine: Path, unseen: Path
) -> None:
    rows = imported(folder / "m.jsonl", *(bench(machine, *shape) for shape in SHAPES))
    result = calibrate(rows, H100)
    (model,) = result.calibration.models
    constants = {each.constant: each.value_us for each in result.calibration.constants}
    assert math.exp(model.log_ratio) == pytest.approx(FACTOR, rel=0.02)
    assert constants["front_us"] == pytest.approx(FRONT_US, rel=0.03)
    assert constants["back_us"] == pytest.approx(BACK_US, rel=0.1)  # beside a front that is longer
    for part in result.calibration.left_out:
        assert part.after.mean < 0.4 * part.before.mean, part.name
    assert any("not fitted" in line for line in result.notes)
    assert any("request_us" in line and "stay" in line for line in result.notes)
    current = written(result, folder / "own.json")
    before, after = errors(unseen), errors(unseen, current)
    assert max(after.values()) < 2.0
    assert min(before[n] for n in ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms")) > 8.0
    answer = asked({"arrival": {"kind": "poisson", "rate_per_s": 4.0}, "requests": 20,
                    "input_len": 256, "output_len": 16}, current)  # fmt: skip
    assert answer.tier == "calibrated"
    assert answer.why["calibration"]["whole_models"]["runs"] == model.rows
    assert answer.why["calibration"]["host_constants"]["front_us"] == constants["front_us"]


def test_one_benchmark_calibrates_and_is_not_scored(
    folder: Path, machine: Path, unseen: Path
) -> None:
    rows = imported(folder / "one.jsonl", bench(machine, 4, 1000, 32))
    result = calibrate(rows, H100)
    assert not result.calibration.left_out  # nothing checks it
    assert any("1 run" in line and "nothing checks the fit" in line for line in result.notes)
    current = written(result, folder / "one.json")
    before, after = errors(unseen), errors(unseen, current)
    assert sum(after.values()) < 0.4 * sum(before.values())
    with pytest.raises(SilicastError, match="rows were fitted"):
        score_measured([rows], [current], H100)


def test_a_detailed_benchmark_is_predicted_request_by_request(tmp_path: Path) -> None:
    """Other arrivals of the same rate would have other tails."""
    workload = {
        "arrival": {"kind": "poisson", "rate_per_s": 6.0}, "requests": 24, "range_ratio": 0.1,
        "input_len": 1500, "output_len": 24,
    }  # fmt: skip
    scenario = decode({**TREE, "workload": workload, "seed": 7})
    assert isinstance(scenario.workload, ServingWorkload)
    sent = traffic_of(scenario.workload, 7).requests
    result: dict[str, Any] = {
        "backend": "vllm", "model_id": MODEL, "num_prompts": 24, "request_rate": 6.0,
        "max_concurrency": None, "completed": 24,
        "total_input_tokens": int(sent.input_tokens.sum()),
        "total_output_tokens": int(sent.output_tokens.sum()), **measured(run(scenario)),
    }  # fmt: skip
    detailed = {
        **result, "input_lens": sent.input_tokens.tolist(),
        "output_lens": sent.output_tokens.tolist(),
        "start_times": (100.0 + sent.arrival_ns * 1e-9).tolist(),
    }  # fmt: skip
    alike = errors(imported(tmp_path / "all.jsonl", detailed))
    assert max(value for name, value in alike.items() if name.endswith("_ms")) < 0.5
    others = errors(imported(tmp_path / "mean.jsonl", result))
    assert max(value for name, value in others.items() if name.endswith("_ms")) > 2.0


@pytest.mark.full
def test_throughput_alone_calibrates_where_clients_wait(
    folder: Path, machine: Path, unseen: Path
) -> None:
    shapes = ((16, 512, 32), (4, 256, 32), (8, 128, 24))
    results = [
        {name: value for name, value in bench(machine, *shape).items() if name[-3:] != "_ms"}
        for shape in shapes
    ]
    result = calibrate(imported(folder / "rate.jsonl", *results), H100)
    (model,) = result.calibration.models
    assert (model.rows, model.tasks) == (3, ["serving"])
    current = written(result, folder / "rate.json")
    before, after = (errors(unseen, *each)["output_tokens_per_s"] for each in ([], [current]))
    assert after < 0.6 * before
    at_a_rate = {**results[0], "request_rate": 3.0, "max_concurrency": None}
    with pytest.raises(SilicastError, match="not used"):
        calibrate(imported(folder / "open.jsonl", at_a_rate), H100)
