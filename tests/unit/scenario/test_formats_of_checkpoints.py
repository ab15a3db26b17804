"""Formats that a checkpoint states, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

import silicast

SAID = "the checkpoint of BERT-Base is in fp32, and fp32 is taken"
OF: dict[str, Any] = {"model": "bert-base-uncased", "device": "h100"}


def _says(**requested: Any) -> bool:
    return any(line.startswith(SAID) for line in silicast.infer(**{**OF, **requested}).warnings)


def test_an_engine_that_may_load_32_bits_as_16_is_said_to_keep_them() -> None:
    assert _says()
    result = silicast.infer(**OF)
    (line,) = (each for each in result.warnings if each.startswith(SAID))
    assert "--dtype fp16" in line
    assert silicast.infer(**OF, dtype="fp16").total_ms < result.total_ms


@pytest.mark.parametrize(
    "asked", [{"dtype": "fp32"}, {"dtype": "fp16"}, {"engine": "torch-eager"}, {"model": "gpt2"}]
)
def test_what_is_stated_or_not_so_is_not_remarked(asked: dict[str, Any]) -> None:
    assert not _says(**asked)


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Qwen3-8B-FP8", "Llama-3.3-70B-NVFP4"])
def test_auto_is_the_checkpoint_of_any_format(model: str) -> None:
    """As a field that is left out: the formats of the checkpoint, not those of no checkpoint."""
    work = {"batch": 1, "input_len": 16, "output_len": 2}
    scenario: dict[str, Any] = {"task": "inference", "model": model, "device": "b200"}
    own = silicast.predict(**scenario, workload=work)
    for precision in ({"recipe": "auto"}, {"weights": "AUTO", "kv_cache": "auto"}):
        stated = silicast.predict(**scenario, workload=work, precision=precision)
        assert stated.metrics == own.metrics
        assert stated.warnings == own.warnings
    asked: dict[str, Any] = {"model": model, "device": "b200", **work}
    assert silicast.infer(**asked, dtype="auto") == silicast.infer(**asked)


def test_auto_beside_a_stated_format_leaves_that_one() -> None:
    asked: dict[str, Any] = {
        "model": "Llama-3.1-8B",
        "device": "h100",
        "batch": 1,
        "input_len": 4096,
    }
    halved = silicast.infer(**asked, dtype="auto", kv_dtype="fp8")
    assert halved.memory_gb < silicast.infer(**asked, dtype="auto", kv_dtype="auto").memory_gb


def test_auto_in_a_pool_is_the_checkpoint_of_the_pool() -> None:
    pool = {"device": "h100", "model": "Llama-3.1-8B", "engine": {"name": "vllm"}}
    scenario: dict[str, Any] = {
        "task": "serving",
        "workload": {
            "arrival": {"kind": "closed", "concurrency": 2},
            "requests": 4,
            "input_len": 64,
            "output_len": 4,
        },
    }
    auto = pool | {"precision": {"recipe": "auto", "kv_cache": "auto"}}
    stated = silicast.predict(**scenario, pools={"main": auto})
    assert stated.metrics == silicast.predict(**scenario, pools={"main": pool}).metrics
