"""Sessions of a workflow whose keys and values wait between turns: device, host, disk, remote."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Problem, Refusal
from silicast.scenario.run import reply_to

DISK = {"kind": "disk", "size_gb": 1000, "bandwidth_gb_per_s": 6, "latency_us": 100}
REMOTE = {"kind": "remote", "size_gb": 1000, "bandwidth_gb_per_s": 3, "latency_us": 500}


def agents(*tiers: dict[str, Any], offloaded: float = 2.0) -> Answer | Refusal:
    """Twelve agents of up to eight turns on a device that has room for a few of their contexts."""
    options = {"num_gpu_blocks": 1000} | ({"kv_offloading_size": offloaded} if offloaded else {})
    pool: dict[str, Any] = {
        "device": "H100",
        "model": "Qwen3-8B",
        "engine": {"name": "vllm", "options": options},
    }
    if tiers:
        pool["kv_tiers"] = list(tiers)
    think = {
        "pool": "chat", "work": "generate", "input_len": 1200, "output_len": 20,
        "keeps_context": True,
    }  # fmt: skip
    tool = {
        "after": ["think"], "work": "tool_call", "duration_ms": 3000,
        "loop": {"back_to": "think", "probability": 0.8, "most": 8},
    }  # fmt: skip
    return reply_to(
        {
            "task": "workflow",
            "host": {"memory_gb": 512},
            "pools": {"chat": pool},
            "workload": {
                "requests": 12,
                "arrival": {"kind": "poisson", "rate_per_s": 4},
                "stages": {"think": think, "tool": tool},
            },
        }
    )


def answered(*tiers: dict[str, Any], offloaded: float = 2.0) -> Answer:
    reply = agents(*tiers, offloaded=offloaded)
    assert isinstance(reply, Answer), reply
    return reply


def refused(reply: Answer | Refusal) -> Problem:
    assert isinstance(reply, Refusal), reply
    return reply.error


def hits(answer: Answer) -> float:
    return answer.metrics["chat.prefix_hit_rate"].estimate


def test_what_the_host_evicts_is_read_again_from_where_it_went() -> None:
    host, disk = answered(), answered(DISK)
    both = answered(DISK | {"size_gb": 0.5}, REMOTE)
    assert hits(host) < hits(disk)
    assert "kv_tiers" not in host.why["pools"]["chat"]
    assert set(disk.why["pools"]["chat"]["kv_tiers"]) == {"disk"}
    moved = both.why["pools"]["chat"]["kv_tiers"]
    assert moved["remote"]["loaded_bytes"] > 0
    assert moved["remote"]["stored_bytes"] <= moved["disk"]["stored_bytes"]


def test_room_that_nobody_needs_changes_nothing() -> None:
    ample = answered(offloaded=100.0)
    below = answered(DISK, offloaded=100.0)
    assert below.metrics == ample.metrics


@pytest.mark.parametrize(
    ("tiers", "offloaded", "part"),
    [((DISK,), 0.0, "no cached blocks"), ((DISK, DISK), 2.0, "two tiers of one kind")],
)
def test_tiers_that_mean_nothing_are_refused(
    tiers: tuple[dict[str, Any], ...], offloaded: float, part: str
) -> None:
    error = refused(agents(*tiers, offloaded=offloaded))
    assert part in error.message
    assert error.field == "pools.chat.kv_tiers"
    assert error.hint


def test_tiers_of_a_pool_that_caches_nothing_are_refused() -> None:
    engine = {"name": "vllm", "options": {"kv_offloading_size": 2.0}}
    pool = {"device": "H100", "engine": engine, "kv_tiers": [DISK]}
    stage = {"pool": "encoders", "work": "encode_image", "resolution": [448, 448]}
    error = refused(
        reply_to(
            {
                "task": "workflow",
                "model": "Qwen3-VL-8B",
                "pools": {"encoders": pool},
                "workload": {"requests": 2, "stages": {"encode": stage}},
            }
        )
    )
    assert "no cached keys" in error.message
    assert error.field == "pools.encoders.kv_tiers"
