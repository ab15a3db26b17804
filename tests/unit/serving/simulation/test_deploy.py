"""Limits with which engines start, by board and by what a user states."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import ALIASES, with_options
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.serving.simulation.launch import limits_of
from silicast.serving.simulation.scheduler import Limits
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def limits(engine: str, device: str, plan: Plan = Plan(), **options: Any) -> Limits:
    chosen = with_options(find_engine(engine), options)
    return limits_of(
        Deployment.from_model(find_model("Llama-3.1-8B"), find_device(device), chosen, plan)
    )


@pytest.mark.parametrize(
    ("engine", "device", "sequences", "tokens"),
    [
        ("vllm", "H100", 1024, 8192),
        ("vllm", "A100", 256, 2048),
        ("vllm", "L40S", 256, 2048),
        ("sglang", "L40S", 2048, 4096),
        ("sglang", "H100", 2048, 8192),
        ("sglang", "B200", 2048, 16384),
        ("trtllm", "H100", 2048, 8192),
    ],
)
def test_defaults_follow_the_board(engine: str, device: str, sequences: int, tokens: int) -> None:
    result = limits(engine, device)
    assert (result.sequences, result.step_tokens) == (sequences, tokens)


def test_one_option_has_the_names_of_all_engines() -> None:
    assert limits("vllm", "H100", max_num_seqs=7).sequences == 7
    assert limits("sglang", "H100", max_running_requests=7).sequences == 7
    assert limits("trtllm", "H100", max_batch_size=7).sequences == 7
    for name in ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens"):
        stated: dict[str, Any] = {name: 1000}
        assert limits("sglang", "H100", **stated).step_tokens == 1000
    with pytest.raises(SilicastError) as caught:
        limits("vllm", "H100", nothing_like_it=1)
    known = set(caught.value.hint.removeprefix("known: ").split(", "))
    assert set(ALIASES.values()) <= known
    assert not set(ALIASES) & known


def test_sequences_of_sglang_are_those_of_all_groups() -> None:
    assert limits("sglang", "H100", Plan(attention_dp=4)).sequences == 512
    assert limits("vllm", "H100", Plan(attention_dp=4)).sequences == 1024


def test_the_printed_number_of_blocks_stands() -> None:
    assert limits("vllm", "RTX 4090", num_gpu_blocks=2588).blocks == 2588
    assert limits("sglang", "RTX 4090", max_total_tokens=5000, page_size=16).blocks == 312


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_more_memory_holds_more_blocks(engine: str) -> None:
    items = [limits(engine, "H100", gpu_memory_utilization=each).blocks for each in (0.5, 0.7, 0.9)]
    assert 0 < items[0] < items[1] < items[2]


def test_a_share_means_what_the_engine_means() -> None:
    """Of the board, of what is empty at the start, or of what is free beside the weights."""
    at = {name: limits(name, "H100", gpu_memory_utilization=0.9, block_size=16).blocks
          for name in ("vllm", "sglang", "trtllm")}  # fmt: skip
    assert at["trtllm"] > at["vllm"]
    assert at["sglang"] > at["vllm"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_num_seqs": 0}, "from 1 upward"),
        ({"max_num_seqs": 1.5}, "a whole number"),
        ({"max_num_seqs": True}, "a whole number"),
        ({"gpu_memory_utilization": 1.2}, "from 0.01 to 1"),
        ({"block_size": 4096}, "from 1 to 1024"),
        ({"enable_prefix_caching": "yes"}, "true or false"),
        ({"policy": 3}, "expected a name"),
        ({"watermark": [1]}, "a number or a word"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SilicastError, match=said) as caught:
        with_options(find_engine("vllm"), options)
    assert caught.value.field == f"engine.options.{next(iter(options))}"


def test_an_option_is_stated_once() -> None:
    with pytest.raises(SilicastError, match="are the same option"):
        with_options(find_engine("vllm"), {"max_num_seqs": 4, "max_batch_size": 4})


def test_an_option_of_queues_is_remarked_where_nothing_queues() -> None:
    case = {
        "format": 1,
        "task": "inference",
        "model": "Llama-3.1-8B",
        "device": "H100",
        "engine": {"name": "vllm", "options": {"max_batch_size": 4, "block_size": 32}},
        "workload": {"batch": 1, "input_len": 100, "output_len": 2},
    }
    assert list(silicast.predict(case).warnings) == [
        "engine.options.max_batch_size changes nothing here: nothing queues in task inference"
    ]


def test_a_framework_has_no_server() -> None:
    with pytest.raises(SilicastError, match="serves no requests"):
        with_options(find_engine("torch-eager"), {"max_num_seqs": 4})
