"""The front of the package."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from silicast.communication.collective import (
    _independent,
    _shared,
    collective_batch_times,
    collective_times,
    link_bound,
)
from silicast.communication.selection import Selection
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100, A100, L40S = find_device("H100"), find_device("A100"), find_device("L40S")
SIZES = np.array([1024, 1 << 20, 1 << 30])


def test_bounds_by_hand() -> None:
    size = np.array([9e9])
    a100 = link_bound("all_reduce", size, Topology.from_device(A100, 8))[0]
    assert a100 == pytest.approx(2 * 7 / 8 * 9e9 / 300e9)
    in_switch = link_bound("all_reduce", size, Topology.from_device(H100, 8))[0]
    assert in_switch == pytest.approx(9e9 / 450e9)  # the switch needs each contribution once
    gather = link_bound("all_gather", size, Topology.from_device(H100, 4))[0]
    assert gather == pytest.approx(3 / 4 * 9e9 / 450e9)
    pair = link_bound("send_recv", size, Topology.from_device(H100, 2, gpus_per_node=4))[0]
    assert pair == pytest.approx(9e9 / 150e9)


def test_bounds_over_nodes_are_what_must_enter_a_node() -> None:
    size, topology = np.array([8e9]), Topology.from_device(H100, 16, inter=Link("ib", 10e9))
    assert link_bound("all_reduce", size, topology)[0] == pytest.approx(8e9 / 80e9)
    assert link_bound("all_gather", size, topology)[0] == pytest.approx(8e9 / 2 / 80e9)
    assert link_bound("all_to_all", size, topology)[0] == pytest.approx(8e9 / 2 / 10e9)
    assert link_bound("send_recv", size, topology)[0] == pytest.approx(8e9 / 10e9)
    assert link_bound("broadcast", size, topology)[0] == pytest.approx(8e9 / 80e9)


def test_a_node_that_is_not_full_has_fewer_adapters() -> None:
    size, topology = np.array([8e9]), Topology.from_device(H100, 10, inter=Link("ib", 10e9))
    assert link_bound("all_reduce", size, topology)[0] == pytest.approx(8e9 / 20e9)
    assert link_bound("all_gather", size, topology)[0] == pytest.approx(8e9 * 8 / 10 / 20e9)
    times = collective_times("all_reduce", size.astype(np.int64), 10, H100, "nccl")
    assert times.estimate_s[0] >= times.bound_s[0]


def test_bounds_over_pods_are_what_must_enter_a_pod() -> None:
    """Three pods of 16 whose uplinks carry a fifth of the adapters: 16 x 2 GB/s into each."""
    uplink = Link("uplink", 2e9, domain=16)
    inside = Topology.from_device(H100, 48, inter=Link("ib", 10e9))
    size, topology = np.array([8e9]), replace(inside, uplink=uplink)
    assert link_bound("all_reduce", size, inside)[0] == pytest.approx(8e9 / 80e9)
    assert link_bound("all_reduce", size, topology)[0] == pytest.approx(8e9 / 32e9)
    assert link_bound("all_gather", size, topology)[0] == pytest.approx(8e9 * 32 / 48 / 32e9)
    assert link_bound("all_to_all", size, topology)[0] == pytest.approx(8e9 * 32 / 48 / 2e9)
    part = replace(topology, gpus=40)  # eight in the last pod, which has all of its uplinks
    assert link_bound("all_gather", size, part)[0] == pytest.approx(8e9 * 32 / 40 / 32e9)


def test_bounds_over_nodes_with_a_quick_network_are_what_moves_inside_them() -> None:
    """Seven of a device's fifteen partners are in its node."""
    size, topology = np.array([9e9]), Topology.from_device(H100, 16, inter=Link("ib", 1e14))
    assert link_bound("all_reduce", size, topology)[0] == pytest.approx(9e9 * 7 / 15 / 450e9)
    assert link_bound("all_to_all", size, topology)[0] == pytest.approx(9e9 * 7 / 16 / 450e9)
    assert link_bound("all_gather", size, topology)[0] == pytest.approx(9e9 * 7 / 16 / 450e9)


def test_alone_there_is_nothing_to_wait_for() -> None:
    times = collective_times("all_reduce", SIZES, 1, H100, "sglang")
    for values in (times.estimate_s, times.p05_s, times.p95_s, times.bound_s):
        assert values.tolist() == [0.0, 0.0, 0.0]
    assert times.shared_log_sd == {}


def test_nothing_to_send_takes_no_time() -> None:
    times = collective_times("all_gather", np.array([0, 8]), 4, H100, "nccl")
    assert times.estimate_s[0] == times.p95_s[0] == 0.0
    assert times.estimate_s[1] > 0.0
    assert len(collective_times("all_gather", np.array([], dtype=np.int64), 4, H100).p05_s) == 0


def test_small_messages_are_latency_and_large_ones_link() -> None:
    assert collective_times("all_reduce", SIZES, 8, H100, "nccl").bound_by() == [
        "latency",
        "latency",
        "link",
    ]


def test_engines_beat_nccl_on_small_messages() -> None:
    small = np.array([16 << 10])
    nccl = collective_times("all_reduce", small, 8, H100, "nccl").estimate_s[0]
    for engine in ("vllm", "sglang", "trtllm"):
        assert collective_times("all_reduce", small, 8, H100, engine).estimate_s[0] < nccl / 2


def test_the_switch_helps_large_all_reduces() -> None:
    large = np.array([1 << 29])
    floats = collective_times("all_reduce", large, 8, H100, "nccl", dtype="bf16").estimate_s[0]
    integers = collective_times("all_reduce", large, 8, H100, "nccl", dtype="int8").estimate_s[0]
    assert floats < 0.9 * integers


def test_the_host_sets_a_floor_for_eager_launches() -> None:
    eager = collective_times("all_reduce", SIZES, 8, H100, "vllm", "eager")
    graph = collective_times("all_reduce", SIZES, 8, H100, "vllm", "graph")
    assert eager.estimate_s[0] > 2 * graph.estimate_s[0]
    assert (eager.estimate_s > graph.estimate_s).all()
    plain = collective_times("all_reduce", SIZES, 8, H100, "vllm", "eager", learned=False)
    assert plain.independent_log_sd[0] > plain.independent_log_sd[2]


def test_errors_of_hosts_and_floors_by_hand() -> None:
    """Half of the hosts make 4 pairs take turns: a factor of 4 or 1, whose log has an sd of half
    log 4. The host's floor counts by its share of the time.
    """
    common = {
        "log_sd_network": 0.1, "log_sd_device": 0.05, "log_sd_device_unmeasured": 0.2,
        "log_sd_network_pcie": 0.4, "sharing_hosts": 0.25, "log_sd_nvlink": 0.07,
        "log_sd_pcie": 0.08, "log_sd_shared_pcie": 0.3, "log_sd_kernels": 0.15, "log_sd_eager": 0.5,
    }  # fmt: skip
    four = Topology.from_device(L40S, 4)
    host = math.sqrt(0.25 * 0.75) * math.log(4)
    assert _shared(True, four, common) == pytest.approx(
        {"network": math.hypot(0.1, host), "device": 0.05}
    )
    assert _shared(False, four, common) == pytest.approx(
        {"network": math.hypot(0.4, host), "device": 0.2}
    )
    assert _shared(False, Topology.from_device(H100, 4), common) == {"network": 0.1, "device": 0.2}
    selection = Selection(
        np.array([10e-6, 20e-6, 0.0]), np.zeros(3), np.array([0, 1, 0]), ("ring", "one_shot"),
        8e-6, np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64), np.zeros(3),
    )  # fmt: skip
    h100, pair = Topology.from_device(H100, 8), Topology.from_device(L40S, 2)
    assert _independent(selection, h100, common, "graph").tolist() == [0.07, 0.15, 0.07]
    assert _independent(selection, h100, common, "eager") == pytest.approx(
        [math.hypot(0.07, 0.8 * 0.5), math.hypot(0.15, 0.4 * 0.5), 0.07]  # nothing is sent
    )
    assert _independent(selection, pair, common, "graph").tolist() == [0.08, 0.15, 0.08]
    assert _independent(selection, four, common, "graph").tolist() == [0.3, 0.3, 0.3]


def test_pairs_that_send_show_no_skew() -> None:
    torch, graph = (
        collective_times("send_recv", SIZES, 2, H100, "nccl", launch, learned=False).estimate_s
        for launch in ("torch", "graph")
    )
    assert (torch == graph).all()


def test_an_assumed_network_is_named() -> None:
    times = collective_times("all_reduce", SIZES, 16, H100, "nccl")
    assert "400 Gb/s per device assumed" in times.warnings[0]
    stated = Topology.from_device(H100, 16, inter=Link("infiniband", 50e9))
    assert collective_times("all_reduce", SIZES, 16, stated, "nccl").warnings == ()


def test_less_is_known_of_unmeasured_architectures_and_shared_pcie() -> None:
    def width(device: str, gpus: int) -> float:
        times = collective_times("all_reduce", SIZES[2:], gpus, find_device(device), "nccl")
        return float(times.p95_s[0] / times.estimate_s[0])

    assert width("RTX PRO 6000", 2) > width("L40S", 2) > 1.0
    assert width("L40S", 4) > width("L40S", 2)
    assert width("V100", 4) > width("A100", 4)


def test_graph_nodes_are_the_same_collectives() -> None:
    variant = Variant(library="sglang", launch="graph")
    ops = [Op.make("all_reduce", variant, bytes=int(size), gpus=4) for size in SIZES]
    batch = collective_batch_times(OpBatch.from_ops(ops), Topology.from_device(H100, 4))
    alone = collective_times("all_reduce", SIZES, 4, H100, "sglang")
    assert (batch.estimate_s == alone.estimate_s).all()
    mixed = [ops[0], Op.make("all_reduce", variant, bytes=8, gpus=2)]
    with pytest.raises(SilicastError, match="one group size"):
        collective_batch_times(OpBatch.from_ops(mixed), H100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gather", SIZES, 2, H100), "unknown collective"),
        (("all_reduce", SIZES, 2, H100, "nccl", "lazy"), "unknown launch"),
        (("all_reduce", SIZES, 2, Topology.from_device(H100, 4)), "topology of 4"),
        (("all_reduce", np.array([-1]), 2, H100), "at least 0 bytes"),
        (("all_reduce", np.array([1.5]), 2, H100), "whole bytes"),
        (("all_reduce", SIZES, 0, H100), "cannot communicate"),
        (("all_reduce", SIZES, 2, H100, "gloo"), "unknown communication library"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple, message: str) -> None:
    with pytest.raises(SilicastError, match=message):
        collective_times(*arguments)


@pytest.mark.parametrize(("name", "links"), [("V100-SXM2-32GB", 150e9), ("P100-SXM2-16GB", 80e9)])
def test_rings_on_a_cube_mesh_use_all_links(name: str, links: float) -> None:
    size = np.array([256 * 2**20])
    result = collective_times("all_reduce", size, 8, find_device(name), "nccl")
    bus = size[0] * 2 * 7 / 8 / result.estimate_s[0]
    assert 0.7 * links < bus < links  # recalled of DGX-1 V100: about 130 of 150 GB/s
    assert result.bound_s[0] == pytest.approx(size[0] * 2 * 7 / 8 / links)
    assert result.p95_s[0] > 1.4 * result.estimate_s[0]  # no row of it was fitted
