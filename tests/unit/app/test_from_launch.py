"""Flags of `silicast serve` beside a launch file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.app.serve_flags import ServeFlags, serving_scenario
from silicast.core.errors import SilicastError

ROLE = """vllm serve Qwen/Qwen3-8B --port 81{n} --kv-transfer-config \
'{{"kv_connector":"NixlConnector","kv_role":"{role}"}}' &
"""
PAIR = ROLE.format(n=0, role="kv_producer") + ROLE.format(n=1, role="kv_consumer")


def flags(path: Path, text: str, **more: Any) -> ServeFlags:
    path.write_text(text)
    return ServeFlags(device="h100", rate=1.0, from_launch=path, **more)


@pytest.mark.parametrize(
    ("more", "field"), [({"replicas": 3}, "--replicas"), ({"prefill": 1, "decode": 2}, "--prefill")]
)
def test_pools_of_a_launch_are_not_replaced(
    tmp_path: Path, more: dict[str, int], field: str
) -> None:
    path = tmp_path / "pair.sh"
    assert set(serving_scenario(flags(path, PAIR), {})["pools"]) == {"prefill", "decode"}
    with pytest.raises(SilicastError, match="pools of its own") as caught:
        serving_scenario(flags(path, PAIR, **more), {})
    assert caught.value.field == field


def test_replicas_of_the_user_are_those_that_count(tmp_path: Path) -> None:
    scenario = serving_scenario(
        flags(tmp_path / "x.sh", "vllm serve Qwen/Qwen3-8B", replicas=3), {}
    )
    assert scenario["pools"] == {"replicas": {"count": 3}}


def test_one_replica_of_the_user_overrides_those_of_a_file(tmp_path: Path) -> None:
    """A flag that is given counts, also where it equals what is usual."""
    both = "vllm serve Qwen/Qwen3-8B --port 1 &\nvllm serve Qwen/Qwen3-8B --port 2 &\n"
    path = tmp_path / "x.sh"
    assert serving_scenario(flags(path, both), {})["pools"]["replicas"]["count"] == 2
    scenario = serving_scenario(flags(path, both, replicas=1), {})
    assert scenario["pools"] == {"replicas": {"count": 1}}
    assert "pools" not in serving_scenario(flags(path, "vllm serve Qwen/Qwen3-8B", replicas=1), {})


def test_servers_that_differ_are_chosen_by_import(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-8B &\nvllm serve Qwen/Qwen3-32B &\n"
    with pytest.raises(SilicastError, match=r"silicast import x\.sh -o scenario.json --run 1"):
        serving_scenario(flags(tmp_path / "x.sh", text), {})
