"""Time of every algorithm from the number of its steps and bytes, as the papers count them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from silicast.communication.algorithms.algorithm import Collective, algorithm
from silicast.communication.topology import Topology
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Paths
from silicast.hardware.device import Link

H100, L40S = find_device("H100"), find_device("L40S")
RATE, ADAPTER = 450e9, 2e9
SIZE = 64e6
CONSTANTS = {
    "base_us": 2.0, "simple_step_us": 3.0, "simple_efficiency": 0.8, "simple_local_copy": 0.25,
    "simple_fill_us": 1.0, "nvls_step_us": 3.0, "nvls_efficiency": 0.8, "nvls_fill_us": 1.0,
    "nvls_local_copy": 0.25, "p2p_step_us": 3.0, "p2p_efficiency": 0.8, "p2p_local_copy": 0.25,
    "p2p_fill_us": 1.0, "network_step_us": 5.0, "network_efficiency": 0.9,
    "network_simple_steps": 2.0, "network_nvls_steps": 2.0, "network_p2p_steps": 2.0,
    "network_doubling": 0.95, "network_ring_fill": 0.3, "network_tree_fill": 0.4,
    "network_alone": 0.7, "sharing_hosts": 0.5,
    **{f"{p}_step_us": 0.0 for p in ("ll", "ll128", "p2p_ll")},
    **{f"{p}_efficiency": 1e-6 for p in ("ll", "ll128", "p2p_ll")},  # never the fastest
}  # fmt: skip


def seconds(name: str, op: Collective, topology: Topology) -> float:
    method = algorithm(name)
    assert method.supports(op, topology)
    return float(method.times(op, np.array([SIZE]), topology, CONSTANTS).time_s[0])


def by_hand_s(
    steps: int, sent: float, remaining: float, hops: float = 0.0, crossed: float = 0.0,
    fill: float = 0.0, share: float = 1.0, adapter: float = ADAPTER,
) -> float:  # fmt: skip
    """Start and steps, then the longer of two streams, and what pieces of it wait.

    Args:
        steps, sent: within the node, in shares of the message; ``remaining``: copied in place.
        hops, crossed: between nodes; ``fill``: of their time that pieces wait.
        share: of the adapter's rate.
    """
    hops_s = hops * 5e-6 * 2.0
    stream_s = SIZE * (sent + 0.25 * remaining) / (RATE * 0.8)
    stream_s = max(stream_s, SIZE * crossed / (adapter * 0.9 * share))
    waited_s = math.sqrt(stream_s * (1e-6 + fill * hops_s))
    return 2e-6 + steps * 3e-6 + hops_s + stream_s + waited_s


@pytest.mark.parametrize(
    ("name", "op", "gpus", "steps", "sent", "kept"),
    [
        ("ring", "all_reduce", 8, 14, 14 / 8, 1 / 8),
        ("ring", "all_gather", 8, 7, 7 / 8, 1 / 8),
        ("ring", "broadcast", 8, 7, 1.0, 0.0),
        ("halving_doubling", "all_reduce", 8, 6, 14 / 8, 1 / 8),
        ("halving_doubling", "reduce_scatter", 8, 3, 7 / 8, 1 / 8),
        # two hand their halves to partners among the other four, and get them back
        ("halving_doubling", "all_reduce", 6, 6, 2 * (3 / 4 + 1 / 2), 1 / 6),
        ("direct", "all_reduce", 8, 2, 14 / 8, 1 / 8),
        ("direct", "all_gather", 8, 1, 7 / 8, 1 / 8),
        ("double_binary_tree", "all_reduce", 8, 6, 2.0, 0.0),
        ("double_binary_tree", "broadcast", 8, 3, 1.0, 0.0),
        ("double_binary_tree", "all_reduce", 3, 4, 1.5, 0.0),
        ("binomial", "broadcast", 8, 3, 3.0, 0.0),
        ("binomial", "broadcast", 5, 3, 3.0, 0.0),
        ("exchange", "all_to_all", 8, 7, 7 / 8, 1 / 8),
    ],
)
def test_within_a_node(
    name: str, op: Collective, gpus: int, steps: int, sent: float, kept: float
) -> None:
    assert seconds(name, op, Topology.from_device(H100, gpus)) == pytest.approx(
        by_hand_s(steps, sent, kept), rel=1e-12
    )


DOUBLED = 0.95  # once from two nodes to four


@pytest.mark.parametrize(
    ("name", "op", "steps", "sent", "kept", "hops", "crossed", "fill"),
    [
        # 31 links of the ring a pass, four of them between nodes; eight adapters share them
        ("ring", "all_reduce", 2 * (31 - 4), 62 / 32, 1 / 32, 8, 62 / 32 / 8, 0.3),
        ("halving_doubling", "all_reduce", 6, 62 / 32, 1 / 32, 4, 2 * 3 / 4 / 8, 0.3),
        ("direct", "all_reduce", 2, 2 * 7 / 32, 1 / 32, 2, 2 * 24 / 32, 0.0),
        ("tree", "all_reduce", 14, 2.0, 0.0, 4, 2 / 8, 0.4),
        ("double_binary_tree", "all_reduce", 6, 2.0, 0.0, 4, 2 / 8, 0.4),
        ("double_binary_tree", "broadcast", 3, 1.0, 0.0, 2, 1 / 8, 0.4),
        ("nvls_tree", "all_reduce", 3, 1 + 1 / 8, 0.0, 4, 2 / 8, 0.4),
        ("binomial", "broadcast", 3, 3.0, 0.0, 2, 2.0, 0.0),
        ("exchange", "all_to_all", 31, 7 / 32, 1 / 32, 1, 24 / 32, 0.0),
    ],
)
def test_over_four_nodes_of_eight(
    name: str, op: Collective, steps: int, sent: float, kept: float, hops: int, crossed: float,
    fill: float,
) -> None:  # fmt: skip
    topology = Topology.from_device(H100, 32, inter=Link("ib", ADAPTER))
    assert seconds(name, op, topology) == pytest.approx(
        by_hand_s(steps, sent, kept, hops, crossed, fill, DOUBLED), rel=1e-12
    )


def test_the_levels_of_a_hierarchy_take_turns() -> None:
    topology = Topology.from_device(H100, 32, inter=Link("ib", ADAPTER))
    inside = by_hand_s(14, 14 / 8, 1 / 8)
    across = 6 * 5e-6 * 2 + SIZE * (2 * 3 / 4 / 8) / (ADAPTER * 0.9 * DOUBLED)
    assert seconds("hierarchical", "all_reduce", topology) == pytest.approx(inside + across)


def test_rounds_over_nodes_of_one_device() -> None:
    topology = Topology.from_device(H100, 8, gpus_per_node=1, inter=Link("ib", ADAPTER))
    alone = 0.7 * 0.95**2  # one device feeds the adapter; two doublings beyond two nodes
    assert seconds("pat", "all_gather", topology) == pytest.approx(
        by_hand_s(0, 7 / 8, 1 / 8, 3, 7 / 8, 0.3, alone)
    )


def test_parts_of_a_message_start_along_other_sides_of_a_torus() -> None:
    """On 4 x 2: 3/4 and 1/2 of the parts, then 1/8 and 3/8; the longer of each counts."""
    topology = Topology.from_device(H100, 8, torus=(4, 2))
    assert seconds("torus", "all_reduce", topology) == pytest.approx(
        by_hand_s(2 * (3 + 1), 2 * (3 / 4 + 3 / 8), 1 / 8)
    )


def test_a_message_between_nodes_passes_one_adapter() -> None:
    constants = CONSTANTS | {"single_efficiency": 0.6, "ll_step_us": 1.5}
    inside, apart = Topology.from_device(H100, 2), Topology.from_device(H100, 2, gpus_per_node=1)
    apart = replace(apart, inter=Link("ib", ADAPTER))
    near, far = (
        algorithm("exchange").times("send_recv", np.array([SIZE]), each, constants).time_s[0]
        for each in (inside, apart)
    )
    assert near == pytest.approx(3.5e-6 + SIZE / (RATE * 0.6))
    assert far == pytest.approx(8.5e-6 + SIZE / (ADAPTER * 0.9 * 0.7))


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ring", "all_reduce"), ("halving_doubling", "all_reduce"), ("direct", "all_reduce"),
        ("double_binary_tree", "all_reduce"), ("binomial", "broadcast"), ("exchange", "all_to_all"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("paths", "turns"), [("own", 1), ("shared", 4), ("", 2)])
def test_pairs_take_turns_on_shared_pcie(
    name: str, op: Collective, paths: Paths, turns: float
) -> None:
    """Two by two pairs between the halves of a node of four; half of the hosts make them wait."""
    topology = Topology.from_device(L40S, 4, paths=paths)
    constants = CONSTANTS | {"base_us": 0.0, "simple_step_us": 0.0, "p2p_step_us": 0.0,
                             "simple_fill_us": 0.0, "p2p_fill_us": 0.0}  # fmt: skip
    size = np.array([SIZE])
    alone, time = (
        algorithm(name).times(op, size, each, constants).time_s[0]
        for each in (replace(topology, paths="own"), topology)
    )
    assert time / alone == pytest.approx(turns)
