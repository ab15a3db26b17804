"""Where software runs: what its files state, and what answers say of it."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.composition.engines.engine import Engine, engine_index
from silicast.composition.engines.engine_options import OPTIONS
from silicast.core.naming import normalise
from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.platforms import CPU, LEAST, runs_on
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.libraries.catalog import libraries
from silicast.workload.libraries.library_file import Library

DEVICES = [find_device(name) for name in device_index().names]
KNOWN = {normalise(name) for each in DEVICES for name in (each.vendor, each.architecture)} | {CPU}


def test_every_place_is_a_vendor_an_architecture_or_a_processor() -> None:
    engines = [engine_index().get(name) for name in engine_index().names]
    files: list[Engine | Library] = [*engines, *libraries()]
    for each in files:
        for position in each.runs_on:
            assert normalise(position.partition(LEAST)[0]) in KNOWN, (each.name, position)
        assert not each.runs_on or each.sources["runs_on"], each.name
        assert not each.runs_on or any(runs_on(device, each.runs_on) for device in DEVICES)
    for engine in engines:
        assert set(engine.options_on) <= set(OPTIONS), engine.name
        for option in engine.options_on.values():
            assert {normalise(position) for position in option} <= KNOWN, engine.name


@pytest.mark.parametrize("device", ["A100", "L40S", "H100", "B200"])
def test_what_was_measured_there_runs_there(device: str) -> None:
    for name in ("vllm", "sglang", "trtllm"):
        assert runs_on(find_device(device), engine_index().get(name).runs_on)


def said(device: str, engine: str | dict[str, Any]) -> str:
    case = {
        "task": "inference", "device": device, "model": "Qwen3-0.6B", "engine": engine,
        "workload": {"batch": 1, "input_len": 64, "output_len": 2},
    }  # fmt: skip
    return "\n".join(run(decode(case)).warnings)


def test_an_engine_that_does_not_run_there_is_remarked() -> None:
    assert "trtllm does not run on MI300X but on NVIDIA" in said("MI300X", "trtllm")
    assert "trtllm does not run on V100" in said("V100", "trtllm")
    assert "sglang does not run on TPU v6e" in said("TPU v6e", "sglang")
    assert "flashinfer (attention_prefill, attention_decode)" in said("MI300X", "sglang")
    for device in ("A100", "RTX 4090", "EPYC 9654", "TPU v6e"):
        assert "does not run" not in said(device, "vllm")


def test_an_option_that_means_nothing_there_is_remarked() -> None:
    for name, value in (("nvls", True), ("cuda_graph", "full"), ("fused_all_reduce", True)):
        engine = {"name": "vllm", "options": {name: value}}
        assert f"engine.options.{name}: vllm has it on NVIDIA" in said("TPU v6e", engine)
        assert f"engine.options.{name}: " not in said("H100", engine)
    assert "engine.options" not in said("TPU v6e", {"name": "vllm", "options": {"nvls": False}})


def test_a_kernels_library_that_does_not_run_there_is_remarked() -> None:
    kernel = {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "bf16", "library": "cublas"}
    case: dict[str, Any] = {"task": "kernel", "workload": {"kernel": kernel}}
    assert "cublas does not run on MI300X" in "".join(
        run(decode({**case, "device": "MI300X"})).warnings
    )
    assert "run on" not in "".join(run(decode({**case, "device": "A100"})).warnings)
