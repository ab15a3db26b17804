"""llama-bench: its table, CSV and JSON mean the same runs, and what no scenario has is listed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.measurement.importers.files import import_files
from silicast.measurement.records.records import RunRow, UnreadRow
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from tests.unit.measurement.importers.samples import LLAMA_BENCH as TABLE

SHARED = {
    "build_commit": "54a241f50",
    "build_number": 6239,
    "gpu_info": "NVIDIA GeForce RTX 4090",
    "backends": "CUDA",
    "model_type": "llama 8B Q4_K - Medium",
    "model_n_params": 8030261248,
    "n_ubatch": 512,
    "type_k": "f16",
}
TESTS = [
    {"n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 10240.0},
    {"n_gpu_layers": 99, "n_prompt": 0, "n_gen": 128, "n_depth": 4096, "avg_ts": 125.0},
    {"n_gpu_layers": 20, "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 38.1},
]


def as_json() -> str:
    return json.dumps([{**SHARED, **test} for test in TESTS], indent=2)


def as_lines() -> str:
    return "\n".join(json.dumps({**SHARED, **test}) for test in TESTS)


def as_csv() -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*SHARED, *TESTS[0]], quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows({**SHARED, **test} for test in TESTS)
    return text.getvalue()


def imported(folder: Path, text: str, name: str = "bench.txt", **fields: Any) -> list[Any]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return list(import_files([path], fields=fields)[0].reading.records)


@pytest.mark.parametrize("text", [TABLE, as_json(), as_lines(), as_csv()])
def test_every_form_means_the_same_runs(tmp_path: Path, text: str) -> None:
    prompt, token, partly = imported(tmp_path, text)
    assert isinstance(prompt, RunRow)
    assert isinstance(token, RunRow)
    assert isinstance(partly, RunRow)
    assert prompt.metrics == {"prefill_ms": pytest.approx(512 / 10240.0 * 1e3)}
    assert token.metrics == {"decode_step_ms": pytest.approx(8.0)}
    assert prompt.scenario["workload"] == {"batch": 1, "input_len": 512, "output_len": 1}
    assert token.scenario["workload"] == {"batch": 1, "input_len": 4096, "output_len": 129}
    assert token.scenario["device"] == "RTX 4090"
    assert token.scenario["precision"] == {"weights": "Q4_K_M"}
    assert "n_gpu_layers" not in token.scenario["engine"]["options"]
    assert partly.scenario["engine"]["options"]["n_gpu_layers"] == 20


def test_a_prompt_behind_cached_tokens_is_a_batch_with_a_cached_depth(tmp_path: Path) -> None:
    test = {"n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "n_depth": 4096, "avg_ts": 8192.0}
    (run,) = imported(tmp_path, json.dumps([{**SHARED, **test}]))
    assert run.metrics == {"prefill_ms": pytest.approx(62.5)}
    lengths = {"batch": 1, "input_len": 512, "output_len": 1, "cached_len": 4096}
    assert run.scenario["workload"] == lengths


def test_a_run_without_layers_on_the_device_is_listed(tmp_path: Path) -> None:
    text = as_lines().replace('"n_gpu_layers": 20', '"n_gpu_layers": 0')
    apart = imported(tmp_path, text)[2]
    assert isinstance(apart, UnreadRow)
    assert "ngl = 0" in apart.reason


def test_a_run_is_a_scenario_that_is_answered(tmp_path: Path) -> None:
    _, token, _ = imported(tmp_path, TABLE)
    assert run(decode(token.scenario)).metrics["decode_step_ms"].estimate == pytest.approx(
        8, rel=0.3
    )


def test_what_is_stated_wins(tmp_path: Path) -> None:
    prompt, *_ = imported(tmp_path, TABLE, model="Llama-3-8B")
    assert prompt.scenario["model"] == "Llama-3-8B"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLE.replace("Q4_K - Medium", "Q4_X         "), "in no table of names"),
        (TABLE.replace(" 8.03 B", "99.03 B"), "in no table of names"),
        (TABLE.replace("pp512", "zz512"), "zz512"),
        (TABLE.replace("  10240.00 ± 10 |", ""), "cells under"),
        (TABLE.replace("10240.00", "nan     "), "expected a number"),
        (as_json()[:-20], "no JSON|damaged|cut off"),
        (as_csv().replace("10240.0", ""), "is missing"),
    ],
)
def test_broken_files_name_the_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SilicastError, match=words):
        imported(tmp_path, text)


def test_switches_of_a_run_are_those_of_the_engine(tmp_path: Path) -> None:
    """Flash attention off, rows split over two cards, keys cached in another format than values."""
    test = {"n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "avg_ts": 4096.0}
    two = {"gpu_info": ", ".join([SHARED["gpu_info"]] * 2), "split_mode": "row"}  # type: ignore[list-item]
    cache = {"type_k": "q8_0", "type_v": "f16", "flash_attn": False}
    (run,) = imported(tmp_path, json.dumps([SHARED | test | two | cache]))
    scenario = run.scenario
    assert scenario["device"] == "RTX 4090"
    assert scenario["parallel"] == {"pp": 2}
    assert scenario["precision"] == {"weights": "Q4_K_M", "kv_cache": "q8_0/f16"}
    assert scenario["engine"]["options"]["split_mode"] == "row"
    assert scenario["engine"]["options"]["flash_attn"] == "off"
    (plain,) = imported(tmp_path, json.dumps([SHARED | test | {"split_mode": "layer"}]))
    assert "parallel" not in plain.scenario
    (one,) = imported(tmp_path, json.dumps([SHARED | test | two | {"split_mode": "none"}]))
    assert "parallel" not in one.scenario
    equal = {"type_k": "q8_0", "type_v": "q8_0", "flash_attn": True}
    (both,) = imported(tmp_path, json.dumps([SHARED | test | equal]))
    assert both.scenario["precision"]["kv_cache"] == "q8_0/q8_0"
    assert "flash_attn" not in both.scenario["engine"]["options"]
    assert run_of(both) < run_of(run)


def test_a_session_has_as_many_devices_as_hold_the_model(tmp_path: Path) -> None:
    two = {"gpu_info": ", ".join([SHARED["gpu_info"]] * 2)}  # type: ignore[list-item]
    for mode, devices in (("layer", 2), ("row", 2), ("none", 1)):
        path = tmp_path / f"{mode}.json"
        path.write_text(json.dumps([SHARED | TESTS[0] | two | {"split_mode": mode}]))
        assert import_files([path])[0].reading.session.devices == devices


def run_of(row: RunRow) -> float:
    """Predicted milliseconds of the prompt."""
    return run(decode(dict(row.scenario))).metrics["prefill_ms"].estimate
