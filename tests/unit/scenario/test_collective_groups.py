"""Collectives of several groups as scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

WORK = {"op": "all_to_all", "bytes": 64 << 20, "gpus": 8}


def answered(oversubscription: float = 4, tier: str = "auto", pod: int = 32, **work: Any) -> Answer:
    cluster = {"gpus_per_pod": pod, "oversubscription": oversubscription}
    return run(
        decode({
            "task": "collective", "device": "H100", "cluster": cluster, "tier": tier,
            "workload": {**WORK, **work}, "why": "full",
        })
    )  # fmt: skip


def test_groups_across_pods_wait_for_each_other() -> None:
    alone = answered(oversubscription=1, groups=8, group_stride=8)
    shared = answered(groups=8, group_stride=8)
    waited = shared.why["sharing"]["waited_us"]
    latency, free = (each.metrics["latency_us"].estimate for each in (shared, alone))
    assert latency == pytest.approx(free + waited)
    assert waited > 0.0
    assert shared.domain == "near"
    assert any("8 groups at once" in line for line in shared.warnings)


def test_what_was_not_studied_is_no_measured_ground() -> None:
    """One group over narrow uplinks of InfiniBand: the study was TCP, and the answer says so."""
    reply = answered(op="all_reduce", gpus=64, pod=8)
    assert any("was not studied" in line for line in reply.warnings)
    assert reply.domain == "near"
    assert answered(oversubscription=1, op="all_reduce", gpus=64).domain == "in"


def test_parts_sum_to_the_time() -> None:
    shared = answered(groups=8, group_stride=8)
    parts = {part["name"]: part["exposed_ms"] for part in shared.why["parts"]}
    assert sum(parts.values()) == pytest.approx(
        shared.metrics["latency_us"].estimate * 1e-3, abs=1e-6
    )
    assert parts["shared links"] == pytest.approx(shared.why["sharing"]["waited_us"] * 1e-3)


def test_groups_within_a_node_take_what_one_takes() -> None:
    assert answered(groups=8).metrics == answered().metrics
    assert "sharing" not in answered().why


def test_members_that_are_apart_use_the_network() -> None:
    near, apart = answered(groups=8), answered(groups=8, group_stride=8)
    assert apart.metrics["latency_us"].estimate > 3 * near.metrics["latency_us"].estimate


def test_a_bound_has_no_waiting() -> None:
    lowest = answered(tier="bound", groups=8, group_stride=8)
    assert lowest.metrics["latency_us"].estimate == pytest.approx(lowest.bound["latency_us"])
    assert "sharing" not in lowest.why


def test_groups_that_leave_devices_out_are_refused() -> None:
    with pytest.raises(SilicastError, match="group_stride") as refused:
        answered(groups=3, group_stride=2)
    assert refused.value.field == "workload.group_stride"
