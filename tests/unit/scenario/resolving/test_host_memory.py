"""What caches take of their hosts' memory is known, said, and refused where it is too much."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.core.errors import SilicastError

PLAIN: dict[str, Any] = {
    "task": "serving", "model": "Llama-3.1-8B", "device": "h100",
    "workload": {
        "requests": 24, "input_len": 800, "output_len": 20,
        "arrival": {"kind": "poisson", "rate_per_s": 4},
        "sessions": {"turns": 4, "think_time_s": 1},
    },
}  # fmt: skip


def served(
    engine: str, host: dict[str, Any] | None = None, **options: Any
) -> tuple[dict[str, float], Any]:
    scenario = PLAIN | {"engine": {"name": engine, "options": options}}
    answer = silicast.predict(scenario | ({"host": host} if host else {}))
    return {name: belief.estimate for name, belief in answer.metrics.items()}, answer


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("vllm", {"num_gpu_blocks": 300, "kv_offloading_size": 10}),
        ("sglang", {"max_total_tokens": 4800, "enable_hierarchical_cache": True}),
        ("sglang", {"max_total_tokens": 4800, "enable_hicache": True, "hicache_size": 10}),
    ],
)
def test_conversations_find_in_the_host_what_the_device_has_evicted(
    engine: str, options: dict[str, Any]
) -> None:
    metrics, answer = served(engine, {"memory_gb": 512}, **options)
    assert metrics["host_hit_rate"] > 0.1
    assert metrics["host_hit_rate"] <= metrics["prefix_hit_rate"]
    assert not [warning for warning in answer.warnings if "host's memory" in warning]
    moved = answer.why["host_memory"]
    assert moved["loaded_bytes"] == metrics["host_to_device_bytes"]
    alone = {n: v for n, v in options.items() if n in ("num_gpu_blocks", "max_total_tokens")}
    assert metrics["ttft_mean_ms"] < served(engine, **alone)[0]["ttft_mean_ms"]


def test_memory_of_an_unknown_host_is_said() -> None:
    _, answer = served("vllm", kv_offloading_size=10)
    assert any("10.74 GB of the host's memory" in warning for warning in answer.warnings)


def test_nearly_all_of_it_is_said() -> None:
    _, answer = served("vllm", {"memory_gb": 12}, kv_offloading_size=10)
    assert any("10.74 GB" in warning and "12 GB in all" in warning for warning in answer.warnings)


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(SilicastError, match=r"10\.74 GB.*which has 8 GB"):
        served("vllm", {"memory_gb": 8}, kv_offloading_size=10)


def test_what_devices_of_a_node_take_together_counts() -> None:
    """Swap space is of each of two devices, in a node whose host the catalog knows."""
    options = {"preemption_mode": "swap", "swap_space": 1000}
    scenario = PLAIN | {
        "engine": {"name": "vllm-v0", "options": options}, "parallel": {"tp": 2},
        "host": {"cpu": "dgx-h100-host"},
    }  # fmt: skip
    with pytest.raises(SilicastError, match=r"2147 GB.*which has 2000 GB"):
        silicast.predict(scenario)


@pytest.mark.parametrize(
    ("engine", "option", "value"),
    [
        ("vllm-v0", "preemption_mode", "both"),
        ("sglang", "hicache_write_policy", "never"),
        ("vllm", "kv_offloading_size", -1),
    ],
)
def test_values_that_mean_nothing_are_refused(engine: str, option: str, value: Any) -> None:
    with pytest.raises(SilicastError) as raises:
        served(engine, **{option: value})
    assert raises.value.field == f"engine.options.{option}"
