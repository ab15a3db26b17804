"""Numbers of an engine's start-up log in place of its options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.app.from_log import with_log
from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.core.errors import SilicastError

VLLM = """
INFO [api_server.py] vLLM API server version 0.11.0
INFO [utils.py] non-default args: {'model': 'Qwen/Qwen3-32B', 'max_num_seqs': 256}
INFO [scheduler.py] Chunked prefill is enabled with max_num_batched_tokens=2048.
INFO [core.py] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', \
dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, kv_cache_dtype=auto
INFO [kv_cache_utils.py] GPU KV cache size: 35,264 tokens
INFO [kv_cache_utils.py] Maximum concurrency for 32,768 tokens per request: 1.08x
"""
SERVER_INFO = {
    "model_path": "Qwen/Qwen3-32B", "version": "0.5.9", "tp_size": 2, "page_size": 1,
    "max_running_requests": None, "chunked_prefill_size": 8192, "kv_cache_dtype": "fp8_e4m3",
    "internal_states": [{"max_total_num_tokens": 421000, "max_running_requests": 512}],
}  # fmt: skip


def flags(path: Path, model: str = "Qwen3-32B", **more: Any) -> ServeFlags:
    return ServeFlags(model=model, device="h100", rate=1.0, from_log=path, **more)


def test_the_log_of_a_server(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM)
    scenario = serving_scenario(flags(path), {})
    assert scenario["engine"] == {
        "name": "vllm", "version": "0.11.0",
        "options": {"max_total_tokens": 35264, "max_num_seqs": 256, "max_model_len": 32768,
                    "max_num_batched_tokens": 2048},
    }  # fmt: skip
    assert scenario["parallel"] == {"tp": 2}
    assert "precision" not in scenario


def test_the_answer_of_server_info(tmp_path: Path) -> None:
    path = tmp_path / "info.json"
    path.write_text(json.dumps(SERVER_INFO))
    scenario = serving_scenario(flags(path), {})
    assert scenario["engine"]["name"] == "sglang"
    assert scenario["engine"]["version"] == "0.5.9"
    options = scenario["engine"]["options"]
    assert (options["max_total_tokens"], options["max_num_seqs"]) == (421000, 512)
    assert scenario["precision"] == {"kv_cache": "fp8_e4m3"}


def test_the_log_of_tensorrt_llm(tmp_path: Path) -> None:
    path = tmp_path / "trtllm.log"
    path.write_text(
        "[TensorRT-LLM] TensorRT-LLM version: 1.0.0\n"
        "[TRT-LLM] [I] TorchLlmArgs(model='Qwen/Qwen3-32B', tensor_parallel_size=2, "
        "max_batch_size=64, max_num_tokens=4096)\n"
        # first a small cache, to measure what a pass needs
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 2.00 GiB for max tokens in paged KV cache"
        " (8192).\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 50.00 GiB for max tokens in paged KV cache"
        " (204800).\n"
    )
    scenario = serving_scenario(flags(path), {})
    assert scenario["engine"] == {
        "name": "trtllm",
        "version": "1.0.0",
        "options": {"max_total_tokens": 204800, "max_num_seqs": 64, "max_num_batched_tokens": 4096},
    }
    assert scenario["parallel"] == {"tp": 2}


def test_what_the_user_states_wins(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM)
    scenario = serving_scenario(flags(path, option=["max_num_seqs=8"]), {"tp": 4})
    assert scenario["engine"]["options"]["max_num_seqs"] == 8
    assert scenario["parallel"] == {"tp": 4}


def test_a_log_of_another_model_or_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM)
    with pytest.raises(SilicastError, match=r"of Qwen/Qwen3-32B, and --model is Llama-3.1-8B"):
        serving_scenario(flags(path, "Llama-3.1-8B"), {})
    with pytest.raises(SilicastError, match="of vllm, and --engine is sglang"):
        serving_scenario(flags(path, engine="sglang"), {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "found no line of one"),
        ("INFO vLLM API server version 0.11.0", "does not say how large"),
        ("{", "expected JSON"),
    ],
)
def test_files_that_are_no_logs(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(SilicastError, match=words) as info:
        with_log({"model": "Qwen3-32B"}, path)
    assert info.value.file == str(path)
