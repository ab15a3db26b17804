"""Training over uplinks that carry less than what is below them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from silicast.communication.flows.packets import SLOWER
from silicast.composition.engines.engine import find_engine
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import topology
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import cluster_of
from silicast.scenario.answer import Answer
from silicast.scenario.run import reply_to


def trained(**cluster: Any) -> Answer:
    reply = reply_to(
        {
            "task": "training",
            "device": "H100",
            "model": "Llama-3.2-1B",
            "engine": "megatron",
            "cluster": {"gpus": 32} | cluster,
            "parallel": {"tp": 2, "dp": 16},
            "workload": {"seq_len": 2048, "micro_batch": 1, "global_batch": 16},
        }
    )
    assert isinstance(reply, Answer), reply
    return reply


def told(reply: Answer) -> list[str]:
    return [text for text in reply.warnings if "packets matter" in text]


def test_narrow_uplinks_slow_widen_and_warn() -> None:
    free, narrow = trained(gpus_per_pod=16), trained(gpus_per_pod=16, oversubscription=8)
    one, other = (each.metrics["step_time_s"] for each in (free, narrow))
    assert other.estimate > 1.05 * one.estimate
    assert not told(free)
    (text,) = told(narrow)
    assert narrow.domain != "in", "a network that was not studied is no measured ground"
    share = float(text.split("%")[0]) / 100.0
    above = [math.log(each.p95 / each.estimate) for each in (one, other)]
    assert above[1] ** 2 >= (share * SLOWER) ** 2
    assert above[1] > above[0]


def test_one_pod_is_not_crossed() -> None:
    assert not told(trained(gpus_per_pod=32, oversubscription=8))


def test_groups_between_ranks_share_a_pods_uplinks() -> None:
    """Of a pod of 16 devices, 8 are of one group where each takes every second device: the pod's
    uplinks are shared by both groups, and 8 members fill it.
    """
    device = find_device("H100")
    cluster = cluster_of(device, gpus=64, pod=16, oversubscription=4.0)
    machine = Machine(device, find_engine("megatron"), cluster=cluster)
    both = [topology(machine, gpus, stride=2).uplink for gpus in (8, 16)]
    assert both[0] is None
    assert both[1] is not None
    assert both[1].domain == 8
    assert both[1].bandwidth_bytes_per_s == pytest.approx(12.5e9)


@pytest.mark.parametrize("network", ["infiniband-ndr", ""])
def test_groups_that_do_not_fill_nodes_widen_as_others_do(network: str) -> None:
    """60 and 64 devices in pods of 32 at 16:1, where uplinks are the narrowest links."""
    above = []
    for gpus in (60, 64):
        cluster: dict[str, Any] = {"gpus": 64, "oversubscription": 16, "gpus_per_pod": 32}
        cluster |= {"inter_node": network} if network else {}
        work = {"op": "all_reduce", "gpus": gpus, "bytes": 10**9}
        reply = reply_to(
            {"task": "collective", "device": "H100", "cluster": cluster, "workload": work}
        )
        assert isinstance(reply, Answer), reply
        assert told(reply)
        latency = reply.metrics["latency_us"]
        above.append(math.log(latency.p95 / latency.estimate))
    assert min(above) >= SLOWER
    assert above[0] == pytest.approx(above[1], rel=0.2)
