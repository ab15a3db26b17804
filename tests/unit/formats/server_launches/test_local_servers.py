"""Launches of llama.cpp's server and of text-generation-inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError
from silicast.formats.server_launches.launcher import launcher_of
from tests.launches import read

TRAFFIC = {
    "arrival": {"kind": "closed", "concurrency": 2},
    "requests": 4,
    "input_len": 64,
    "output_len": 4,
}
TGI = "docker run --gpus all ghcr.io/huggingface/text-generation-inference:3.3.4"


def answered(scenario: dict[str, Any], device: str = "rtx4090") -> Any:
    return silicast.predict(**{"device": device, **scenario}, workload=TRAFFIC)


def test_short_flags_of_a_local_server(tmp_path: Path) -> None:
    scenario, remarks = read(
        tmp_path,
        "CUDA_VISIBLE_DEVICES=0 llama-server -m /models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf "
        "-c 32768 -ngl 99 -np 8 -b 4096 -ub 1024 -fa on -ctk q8_0 --cache-type-v q4_0 -t 8 --jinja",
    )
    assert scenario["model"] == "Meta-Llama-3.1-8B-Instruct"
    assert scenario["precision"] == {"weights": "Q4_K_M", "kv_cache": "q8_0/q4_0"}
    assert scenario["engine"] == {
        "name": "llama.cpp",
        "options": {
            "n_gpu_layers": 99,
            "parallel": 8,
            "ubatch_size": 1024,
            "flash_attn": "on",
            "max_total_tokens": 32768,
        },
    }
    assert not scenario.get("parallel")
    assert any("which requests run when: --batch-size = 4096" in line for line in remarks)
    assert any(line.startswith("not used: ") and "--threads = 8" in line for line in remarks)


@pytest.mark.parametrize(
    ("flags", "parallel", "expected"),
    [
        ("-ts 1,1", {"pp": 2}, ""),
        ("-ts 3,1 -sm layer", {"pp": 2}, "equal shares"),
        ("-ts 1,1,1,1 -sm row", {"tp": 4}, ""),
        ("-ts 1,0", {}, ""),
        ("-dev CUDA0,CUDA1,CUDA2", {"pp": 3}, ""),
        ("-sm none -ts 1,1", {}, ""),
        ("", {}, "every device that the server sees"),
    ],
)
def test_devices_of_a_split_model(
    tmp_path: Path, flags: str, parallel: dict[str, int], expected: str
) -> None:
    scenario, remarks = read(tmp_path, f"llama-server -m Qwen3-8B-Q8_0.gguf {flags}")
    assert scenario.get("parallel", {}) == parallel
    text = " ".join(remarks)
    assert expected in text
    assert ("equal" in text) == ("equal" in expected)


def test_devices_that_a_variable_lists_share_a_model(tmp_path: Path) -> None:
    text = "CUDA_VISIBLE_DEVICES=0,1 llama-server -m Qwen3-8B-Q8_0.gguf -ngl all"
    scenario, remarks = read(tmp_path, text)
    assert scenario["parallel"] == {"pp": 2}
    assert not any("sees" in line for line in remarks)


@pytest.mark.parametrize(
    ("named", "model", "mix"),
    [
        ("-hf bartowski/Qwen3-8B-GGUF:Q6_K", "Qwen3-8B", "Q6_K"),
        ("-hf unsloth/Qwen3-8B-GGUF", "Qwen3-8B", "Q4_K_M"),
        ("-hf unsloth/Qwen3-8B-GGUF -hff Qwen3-8B-UD-IQ4_XS.gguf", "Qwen3-8B", "IQ4_XS"),
        ("--model gpt-oss-120b-F16-00001-of-00002.gguf", "gpt-oss-120b", "F16"),
    ],
)
def test_the_mix_of_a_file_is_in_its_name(tmp_path: Path, named: str, model: str, mix: str) -> None:
    scenario, remarks = read(tmp_path, f"llama-server {named}")
    assert scenario["model"].rpartition("/")[2] == model
    assert scenario["precision"]["weights"] == mix
    assumed = any("without a mix of formats" in line for line in remarks)
    assert assumed == (named == "-hf unsloth/Qwen3-8B-GGUF")


def test_a_local_launch_is_the_scenario_that_says_the_same(tmp_path: Path) -> None:
    scenario, _ = read(
        tmp_path, "llama-server -m Qwen3-8B-Q5_K_M.gguf -c 16384 -np 2 -ngl 99 -dev CUDA0"
    )
    own = answered(
        {
            "task": "serving",
            "model": "Qwen3-8B",
            "precision": {"weights": "Q5_K_M"},
            "engine": {"name": "llama.cpp", "options": {"max_num_seqs": 2}},
        }
    )
    assert answered(scenario).metrics["tpot_mean_ms"] == own.metrics["tpot_mean_ms"]


def test_flags_of_tgi(tmp_path: Path) -> None:
    scenario, remarks = read(
        tmp_path,
        f"{TGI} --model-id meta-llama/Llama-3.1-70B-Instruct --num-shard 4 --quantize fp8 "
        "--max-input-tokens 4000 --max-total-tokens 8192 --max-batch-prefill-tokens 6000 "
        "--kv-cache-dtype fp8_e4m3fn --cuda-memory-fraction 0.9 --cuda-graphs 1,2,4",
    )
    assert scenario["parallel"] == {"tp": 4}
    assert scenario["precision"] == {"kv_cache": "fp8"}
    assert scenario["engine"] == {
        "name": "tgi",
        "version": "3.3.4",
        "options": {
            "quantize": "fp8",
            "max_model_len": 8192,
            "max_num_batched_tokens": 6000,
            "cudagraph_capture_sizes": [1, 2, 4],
        },
    }
    text = " ".join(remarks)
    assert "would change memory: --cuda-memory-fraction = 0.9" in text
    assert "which requests run when: --max-input-tokens = 4000" in text
    assert answered(scenario, "h100").metrics["tpot_mean_ms"].estimate > 0


def test_variables_state_flags_of_tgi_and_flags_win(tmp_path: Path) -> None:
    text = """services:
  tgi:
    image: ghcr.io/huggingface/text-generation-inference:3.3.4
    environment:
      MODEL_ID: mistralai/Mistral-7B-Instruct-v0.3
      NUM_SHARD: "2"
      MAX_TOTAL_TOKENS: "16384"
      CUDA_GRAPHS: "0"
      HF_TOKEN: secret
    command: --max-total-tokens 4096
"""
    scenario, remarks = read(tmp_path, text, "compose.yaml")
    assert scenario["model"] == "mistralai/Mistral-7B-Instruct-v0.3"
    assert scenario["parallel"] == {"tp": 2}
    assert scenario["engine"]["options"] == {"max_model_len": 4096, "cuda_graph": "off"}
    assert not any("NUM_SHARD" in line or "secret" in line for line in remarks)


def test_one_server_of_two_engines_is_named_by_its_own(tmp_path: Path) -> None:
    text = "llama-server -m Qwen3-8B-Q8_0.gguf\ntext-generation-launcher --model-id Qwen/Qwen3-8B\n"
    for run, engine in (("1", "llama.cpp"), ("2", "tgi")):
        scenario, remarks = read(tmp_path, text, run=run)
        assert scenario["engine"]["name"] == engine
        assert remarks[0] == f"read as a launch of {engine}"


@pytest.mark.parametrize("engine", ["llama.cpp", "tgi"])
def test_launchers_that_are_read_alone_write_nothing(engine: str) -> None:
    with pytest.raises(SilicastError, match="has no files to deploy"):
        launcher_of(engine)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("-np 0", "parallel: expected a whole number from 1, found 0"),
        ("-np -2", "parallel: expected a whole number from 1, found -2"),
        ("-c abc", "ctx-size: expected a whole number from 1, found 'abc'"),
        ("-ts 0,0", "tensor-split: expected numbers from 0, one of them above 0, found '0,0'"),
        ("-ts 1,half", "tensor-split: expected numbers from 0"),
        ("-ts 2,-1", "tensor-split: expected numbers from 0"),
    ],
)
def test_wrong_values_are_named_at_their_flag(tmp_path: Path, flag: str, expected: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read(tmp_path, f"llama-server -m Qwen3-8B-Q8_0.gguf {flag}")
    assert expected in str(caught.value)


def test_values_that_leave_the_choice_to_the_server_state_nothing(tmp_path: Path) -> None:
    scenario, _ = read(tmp_path, "llama-server -m Qwen3-8B-Q8_0.gguf -c 0 -np -1")
    assert scenario["engine"] == {"name": "llama.cpp"}
