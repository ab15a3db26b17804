"""Switches that change nothing about an answer are remarked."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

import silicast
from silicast.composition.engines.engine_options import OPTIONS
from silicast.core.errors import SilicastError
from silicast.runner.batch import run_batch
from silicast.scenario.answer import Answer
from silicast.scenario.run import SWITCHES
from silicast.scenario.schema import EngineTable

GEMM: dict[str, Any] = {"op": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}
BATCH: dict[str, Any] = {
    "task": "inference",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {"batch": 4, "input_len": 4096, "output_len": 4},
}
SUM: dict[str, Any] = {
    "task": "collective",
    "device": "H100",
    "workload": {"op": "all_reduce", "bytes": 1 << 27, "gpus": 8},
}
STEP: dict[str, Any] = {
    "task": "training",
    "device": "H100",
    "model": "gpt2",
    "workload": {"micro_batch": 4, "global_batch": 4, "seq_len": 512},
}
PASS: dict[str, Any] = {
    "task": "graph",
    "device": "H100",
    "model": "gpt2",
    "workload": {"mode": "inference", "batch": 4, "seq_len": 512},
}
DENSE_EXPERTS = {**BATCH, "precision": {"experts": "fp8"}}
SPARSE_EXPERTS = {**DENSE_EXPERTS, "model": "Qwen3-30B-A3B", "precision": {"experts": "fp8"}}


def engine(name: str, **options: Any) -> dict[str, Any]:
    return {"engine": {"name": name, "options": options}}


def kernel(device: str, board: str) -> dict[str, Any]:
    return {"task": "kernel", "device": device, "workload": {"kernel": {**GEMM, "board": board}}}


def remarks(case: dict[str, Any]) -> list[str]:
    return [line for line in silicast.predict(case).warnings if "changes nothing here" in line]


NVLS = "engine.options.nvls = true changes nothing here: with false the answer is the same"
SERVED: dict[str, Any] = {
    "task": "serving",
    "device": "H100",
    "model": "Llama-3.1-8B",
    "workload": {"arrival": {"kind": "poisson", "rate_per_s": 20.0}, "requests": 40,
                 "input_len": 512, "output_len": 16},
}  # fmt: skip
BALANCED = {**SERVED, "parallel": {"attention_dp": 2}}
IDLE: list[tuple[dict[str, Any], str]] = [
    ({**SERVED, **engine("trtllm", enable_balance=True)}, "engine.options.enable_balance = true"),
    ({**BALANCED, **engine("trtllm", timeout_iters=60)}, "engine.options.timeout_iters = 60"),
    ({**BATCH, "device": "A100", "parallel": {"tp": 8}, **engine("vllm", nvls=True)}, NVLS),
    ({**BATCH, "device": "H100-PCIe", "parallel": {"tp": 4}, **engine("vllm", nvls=True)}, NVLS),
    ({**BATCH, **engine("vllm", nvls=True)}, NVLS),
    ({**SUM, "device": "A100", **engine("vllm", nvls=True)}, NVLS),
    ({**SUM, **engine("vllm", cuda_graph="full")}, "engine.options.cuda_graph = 'full'"),
    ({**BATCH, **engine("vllm", overlap=True)}, "engine.options.overlap"),
    ({**BATCH, **engine("vllm", fused_all_reduce=True)}, "engine.options.fused_all_reduce"),
    (
        {**BATCH, "parallel": {"tp": 8}, "cluster": {"pcie_paths": "own"}},
        "cluster.pcie_paths = 'own' changes nothing here: with 'shared' the answer is the same",
    ),
    ({**BATCH, "cluster": {"oversubscription": 4}}, "cluster.oversubscription = 4.0"),
    ({**SUM, "cluster": {"pcie_paths": "shared"}}, "cluster.pcie_paths = 'shared'"),
    ({**SUM, "cluster": {"price_per_gpu_hour": 2.5}}, "cluster.price_per_gpu_hour"),
    ({**BATCH, "parallel": {"schedule": "1f1b"}}, "parallel.schedule"),
    ({**STEP, "parallel": {"zero": 2}}, "parallel.zero = 2"),
    ({**STEP, "workload": {**STEP["workload"], "overlap": True}}, "workload.overlap"),
    (DENSE_EXPERTS, "precision.experts = 'fp8'"),
    ({**BATCH, "precision": {"group_size": 64}}, "precision.group_size = 64"),
    ({**PASS, "precision": {"kv_cache": "fp8"}}, "precision.kv_cache = 'fp8'"),
    (kernel("TPU-v5p", "hot"), "kernel.board = 'hot' changes nothing here"),
    (kernel("EPYC 9654", "hot"), "kernel.board = 'hot' changes nothing here"),
]
WORKING: list[dict[str, Any]] = [
    {**BALANCED, **engine("trtllm", enable_balance=True, timeout_iters=50)},
    {**BATCH, "parallel": {"tp": 8}, **engine("vllm", nvls=True)},
    {**SUM, **engine("vllm", nvls=True)},
    {**BATCH, "parallel": {"tp": 8}, **engine("vllm", fused_all_reduce=True)},
    {**BATCH, **engine("vllm", async_scheduling=True)},
    {**BATCH, **engine("vllm", cuda_graph="piecewise")},
    {**BATCH, "model": "DeepSeek-V3", "device": "H200", "parallel": {"tp": 8},
     **engine("vllm", overlap=True), "workload": {"batch": 4, "input_len": 64, "output_len": 4}},
    {**BATCH, "device": "L40S", "parallel": {"tp": 4}, "cluster": {"pcie_paths": "own"}},
    {**BATCH, **engine("torch-eager", attention="math")},
    {**STEP, **engine("megatron", attention="math")},
    {**BATCH, "precision": {"weights": "int4", "group_size": 64}},
    {**BATCH, "precision": {"weights": "fp8", "attention": "bf16"}},
    {**BATCH, "precision": {"kv_cache": "fp8"}},
    SPARSE_EXPERTS,
    kernel("H100", "hot"),
]  # fmt: skip
OFF: list[dict[str, Any]] = [
    {**BATCH, "device": "A100", "parallel": {"tp": 8}, **engine("vllm", nvls=False)},
    {**BATCH, **engine("vllm", overlap=False)},
    kernel("TPU-v5p", "cool"),
    {**STEP, "parallel": {"zero": 0}},
    {**STEP, "workload": {**STEP["workload"], "overlap": False}},
]


@pytest.mark.parametrize(("case", "said"), IDLE, ids=[said.split(" = ")[0] for _, said in IDLE])
def test_a_switch_that_changes_nothing_is_remarked(case: dict[str, Any], said: str) -> None:
    (result,) = remarks(case)
    assert result.startswith(said)


@pytest.mark.parametrize("case", [*WORKING, *OFF])
def test_one_that_does_or_is_off_is_not(case: dict[str, Any]) -> None:
    assert remarks(case) == []


def test_what_is_remarked_already_is_not_said_twice() -> None:
    case = {**BATCH, "device": "MI300X", "parallel": {"tp": 8}, **engine("vllm", nvls=True)}
    warnings = silicast.predict(case).warnings
    assert [line for line in warnings if "engine.options.nvls" in line] == [
        "engine.options.nvls: vllm has it on NVIDIA, not on MI300X"
    ]


def test_every_option_of_engines_is_a_switch() -> None:
    assert {f"engine.options.{name}" for name in OPTIONS} <= SWITCHES.keys()


def test_batches_say_the_same() -> None:
    cases = [case for case, _ in IDLE] + WORKING + OFF
    lines = io.BytesIO("\n".join(json.dumps(case) for case in cases).encode())
    out = io.BytesIO()
    run_batch(lines, out)
    told = [json.loads(line)["warnings"] for line in out.getvalue().splitlines()]
    alone = [silicast.predict(case).answer for case in cases]
    assert all(isinstance(each, Answer) for each in alone)
    assert told == [each.warnings for each in alone]


def test_a_degree_that_one_device_has_not_is_refused() -> None:
    with pytest.raises(SilicastError) as caught:
        silicast.predict({**STEP, "parallel": {"etp": 2}})
    assert caught.value.field == "parallel.etp"


def test_the_version_of_a_collectives_engine_is_remarked() -> None:
    (remark,) = silicast.predict({**SUM, "engine": {"name": "vllm", "version": "0.11"}}).warnings
    assert remark.startswith("engine.version = 0.11: vllm is modelled as of")


def test_a_remark_on_a_release_leaves_out_what_the_user_states() -> None:
    engine = {"name": "vllm", "version": "0.13"}
    (remark,) = silicast.predict({**SUM, "engine": engine}).warnings
    assert "without async_scheduling and fused_all_reduce" in remark
    stated = {**engine, "options": {"async_scheduling": True}}
    warnings = silicast.predict({**SUM, "engine": stated}).warnings
    assert any("without fused_all_reduce" in text for text in warnings)


def test_tables_of_options_are_their_entries() -> None:
    """TensorRT-LLM's own file nests them; an unknown entry is refused by both names."""
    nested = EngineTable("trtllm", options={"kv_cache_config": {"tokens_per_block": 64}, "nvls": 0})
    assert nested.options == {"kv_cache_config.tokens_per_block": 64, "nvls": 0}
    with pytest.raises(SilicastError) as caught:
        silicast.predict(
            task="serving",
            model="Llama-3.1-8B",
            device="h100",
            engine={"name": "trtllm", "options": {"kv_cache_config": {"tokens": 64}}},
            workload={
                "arrival": {"kind": "closed", "concurrency": 1},
                "input_len": 8,
                "output_len": 2,
            },
        )
    assert caught.value.field == "engine.options.kv_cache_config.tokens"


def test_a_schedule_that_is_the_usual_one_by_another_name_is_remarked() -> None:
    """``gpipe`` keeps more than either, which says nothing of interleaving a single chunk."""
    case = {**STEP, "parallel": {"pp": 2, "schedule": "interleaved", "virtual_stages": 1}}
    assert remarks(case) == [
        "parallel.schedule = 'interleaved' changes nothing here: with '1f1b' the answer is the same"
    ]
    work = {**STEP["workload"], "micro_batch": 1}
    assert not remarks({**STEP, "workload": work, "parallel": {"pp": 2, "schedule": "gpipe"}})
