"""Closed forms of the algorithms, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.communication.algorithms.algorithm import (
    COLLECTIVES,
    Collective,
    CollectiveAlgorithm,
    algorithm,
    algorithms,
    register,
)
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Paths
from silicast.hardware.device import Link

H100, L40S = find_device("H100"), find_device("L40S")
SIZE = np.array([8e6])
PLAIN = {
    "base_us": 0.0,
    **{f"{p}_step_us": 0.0 for p in ("ll", "ll128", "simple", "nvls", "p2p_ll", "p2p")},
    **{f"{p}_efficiency": 1e-9 for p in ("ll", "ll128", "p2p_ll")},
    **{f"{p}_efficiency": 1.0 for p in ("simple", "nvls", "p2p", "network", "single")},
    "network_efficiency": 1.0,
    "network_step_us": 0.0,
    "sharing_hosts": 0.0,
}
"""Constants under which only the link's bandwidth counts."""


@pytest.mark.parametrize(
    ("name", "op", "gpus", "sent"),
    [
        ("ring", "all_reduce", 8, 14e6),
        ("ring", "all_gather", 8, 7e6),
        ("ring", "reduce_scatter", 4, 6e6),
        ("ring", "broadcast", 4, 8e6),
        ("exchange", "all_to_all", 4, 6e6),
        ("exchange", "send_recv", 2, 8e6),
        ("nvls", "all_reduce", 8, 9e6),
        ("one_shot", "all_reduce", 4, 24e6),
        ("two_shot", "all_reduce", 4, 12e6),
    ],
)
def test_bytes_sent_by_one_device(name: str, op: Collective, gpus: int, sent: float) -> None:
    topology = Topology.from_device(H100, gpus)
    assert algorithm(name).supports(op, topology)
    assert algorithm(name).traffic(op, SIZE, topology)[0] == pytest.approx(sent)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_a_ring_without_latency_is_its_traffic_over_the_link(op: Collective) -> None:
    topology = Topology.from_device(H100, 4)
    result = algorithm("ring").times(op, SIZE, topology, PLAIN)
    assert result.time_s[0] == pytest.approx(
        algorithm("ring").traffic(op, SIZE, topology)[0] / 450e9
    )
    assert result.latency_s[0] == 0.0


def test_a_ring_has_one_step_per_hop() -> None:
    constants = {**PLAIN, "base_us": 2.0, "simple_step_us": 0.5}
    result = algorithm("ring").times(
        "all_reduce", np.zeros(1), Topology.from_device(H100, 8), constants
    )
    assert result.time_s[0] == pytest.approx(2e-6 + 14 * 0e-6)  # LL has steps of 0 us here
    constants = {**constants, "ll_step_us": 1.0, "ll128_step_us": 1.0}
    result = algorithm("ring").times(
        "all_reduce", np.zeros(1), Topology.from_device(H100, 8), constants
    )
    assert result.time_s[0] == pytest.approx(2e-6 + 14 * 0.5e-6)


def test_the_fastest_protocol_wins_at_each_size() -> None:
    constants = {**PLAIN, "simple_step_us": 10.0, "ll_step_us": 1.0, "ll_efficiency": 0.1,
                 "ll128_step_us": 2.0, "ll128_efficiency": 0.5}  # fmt: skip
    sizes = np.array([1e2, 1e6, 1e9])
    result = algorithm("ring").times("all_gather", sizes, Topology.from_device(H100, 2), constants)
    assert result.latency_s * 1e6 == pytest.approx([1.0, 2.0, 10.0])


def test_a_ring_over_nodes_is_as_fast_as_the_adapters_of_a_node() -> None:
    topology = Topology.from_device(H100, 16, inter=Link("ib", 50e9))
    result = algorithm("ring").times("all_reduce", SIZE, topology, PLAIN)
    assert result.time_s[0] == pytest.approx(2 * 15 / 16 * 8e6 / (8 * 50e9))


def test_a_tree_has_logarithmic_depth() -> None:
    constants = {**PLAIN, "network_step_us": 5.0}
    empty = np.zeros(1)
    few = algorithm("tree").times("all_reduce", empty, Topology.from_device(H100, 16), constants)
    many = algorithm("tree").times("all_reduce", empty, Topology.from_device(H100, 256), constants)
    assert few.time_s[0] == pytest.approx(2 * 1 * 5e-6)
    assert many.time_s[0] == pytest.approx(2 * 5 * 5e-6)


def test_all_to_all_over_nodes_waits_for_each_adapter() -> None:
    topology = Topology.from_device(H100, 16, inter=Link("ib", 50e9))
    result = algorithm("exchange").times("all_to_all", SIZE, topology, PLAIN)
    assert result.time_s[0] == pytest.approx(8 / 16 * 8e6 / 50e9)


def test_shared_pcie_slows_larger_groups() -> None:
    def slower(paths: Paths) -> float:
        pair, four = (
            algorithm("ring").times(
                "all_gather", SIZE, Topology.from_device(L40S, gpus, paths=paths),
                {**PLAIN, "sharing_hosts": 0.5},
            ).time_s[0]
            for gpus in (2, 4)
        )  # fmt: skip
        return float(four / pair / ((3 / 4) / (1 / 2)))

    assert slower("own") == pytest.approx(1)
    assert slower("shared") == pytest.approx(4)  # 2 x 2 pairs take turns
    assert slower("") == pytest.approx(2)  # half of the hosts make them


def test_direct_reads_are_limited_by_blocks_peers_or_link() -> None:
    constants = {"base_us": 0.0, "peer_us": 0.0, "efficiency": 0.5, "ceiling_gbps": 200.0,
                 "peer_gbps": 50.0}  # fmt: skip
    one = algorithm("one_shot")
    assert one.times("all_reduce", SIZE, Topology.from_device(H100, 2), constants).time_s[
        0
    ] == pytest.approx(8e6 / 50e9)
    assert one.times("all_reduce", SIZE, Topology.from_device(H100, 8), constants).time_s[
        0
    ] == pytest.approx(56e6 / 200e9)
    roomy = {**constants, "ceiling_gbps": 900.0, "peer_gbps": 900.0}
    assert one.times("all_reduce", SIZE, Topology.from_device(H100, 8), roomy).time_s[
        0
    ] == pytest.approx(56e6 / 225e9)


def test_every_operation_has_an_algorithm_everywhere() -> None:
    for gpus in (2, 8, 16):
        for device in (H100, L40S):
            topology = Topology.from_device(device, gpus)
            for op in COLLECTIVES:
                assert any(a.supports(op, topology) for a in algorithms().values())


def test_unknown_and_doubled_names_are_refused() -> None:
    with pytest.raises(SilicastError, match="unknown collective algorithm"):
        algorithm("hypercube")
    ring = type(algorithm("ring"))
    assert issubclass(ring, CollectiveAlgorithm)
    with pytest.raises(ValueError, match="named 'ring'"):
        register(ring)
