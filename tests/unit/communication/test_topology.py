"""Which links a collective can use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import cluster_of
from silicast.hardware.device import Link

H100, A100, L40S = find_device("H100"), find_device("A100"), find_device("L40S")


def test_eight_devices_on_a_switch_share_nothing() -> None:
    topology = Topology.of(H100, 8)
    assert (topology.fabric, topology.nodes, topology.local) == ("switch", 1, 8)
    assert topology.rate == topology.peer_rate == 450e9
    assert topology.multicast


def test_a100_has_a_switch_that_does_not_reduce() -> None:
    assert Topology.of(A100, 8).fabric == "switch"
    assert not Topology.of(A100, 8).multicast


@pytest.mark.parametrize(("gpus", "share"), [(2, 1 / 3), (3, 2 / 3), (4, 1.0)])
def test_a_board_of_four_has_a_third_of_its_links_to_each_peer(gpus: int, share: float) -> None:
    topology = Topology.of(H100, gpus, gpus_per_node=4)
    assert topology.fabric == "mesh"
    assert not topology.multicast
    assert topology.rate == pytest.approx(450e9 * share)
    assert topology.peer_rate == pytest.approx(150e9)


def test_four_in_a_tray_of_gb200_still_have_the_switch() -> None:
    assert Topology.of(find_device("GB200"), 4).fabric == "switch"


def test_bridges_must_be_asked_for_and_join_pairs_only() -> None:
    device = find_device("A100-PCIE-80GB")
    assert Topology.of(device, 2).fabric == "pcie"
    assert Topology.of(device, 2, intra="nvlink_bridge").fabric == "bridge"
    assert Topology.of(device, 4, intra="nvlink_bridge").fabric == "pcie"


def test_workstation_boards_go_by_way_of_host_memory() -> None:
    assert Topology.of(L40S, 2).peer_access
    assert not Topology.of(L40S, 4).peer_access
    assert Topology.of(find_device("RTX 6000 Ada"), 2).fabric == "host"
    assert not Topology.of(find_device("RTX 6000 Ada"), 2).peer_access


@pytest.mark.parametrize(
    ("name", "gpus", "rate"),
    [
        ("V100-SXM2-32GB", 2, 50e9),  # two links of 25 GB/s to the partner
        ("V100-SXM2-32GB", 4, 100e9),
        ("V100-SXM2-16GB", 8, 150e9),
        ("P100-SXM2-16GB", 2, 20e9),
        ("P100-SXM2-16GB", 4, 60e9),
        ("P100-SXM2-16GB", 8, 80e9),
    ],
)
def test_a_cube_mesh_uses_the_links_among_its_participants(
    name: str, gpus: int, rate: float
) -> None:
    device = find_device(name)
    for board in (device, cluster_of(device).linked_device):
        topology = Topology.of(board, gpus)
        assert topology.fabric == "cube"
        assert topology.rate == pytest.approx(rate)
        assert topology.peer_rate == pytest.approx(rate if gpus == 2 else topology.peer_rate)
        assert topology.peer_access == (gpus <= 4)
        assert not topology.multicast
    assert Topology.of(device, gpus, intra="pcie").fabric == "pcie"


def test_messages_to_distant_corners_of_a_cube_go_over_pcie() -> None:
    device = find_device("V100-SXM2-32GB")
    assert Topology.of(device, 4).exchange_rate == Topology.of(device, 4).rate
    # three of seven peers by 16 GB/s
    assert Topology.of(device, 8).exchange_rate == pytest.approx(16e9 * 7 / 3)


def test_nodes_are_filled_one_after_the_other() -> None:
    topology = Topology.of(H100, 20)
    assert (topology.nodes, topology.local) == (3, 8)


def test_an_unstated_network_is_what_the_pcie_slot_can_feed() -> None:
    assumed = Topology.of(H100, 16)
    assert assumed.assumed_inter
    assert assumed.inter is not None
    assert assumed.inter.bandwidth_bytes_per_s == pytest.approx(50e9)  # 400 Gb/s
    assert Topology.of(A100, 16).inter == Link("network", 25e9)  # 200 Gb/s
    stated = Topology.of(H100, 16, inter=Link("ib", 100e9))
    assert stated.inter == Link("ib", 100e9)
    assert not stated.assumed_inter
    assert Topology.of(H100, 8, inter=Link("ib", 100e9)).inter is None


def test_no_participants_is_an_error() -> None:
    with pytest.raises(SilicastError, match="gpus"):
        Topology.of(H100, 0)


def test_a_device_without_links_is_refused() -> None:
    with pytest.raises(SilicastError, match="no link"):
        Topology.of(replace(H100, links={}), 2)


def test_an_unknown_link_names_the_known_ones() -> None:
    with pytest.raises(SilicastError, match="nvlink, pcie"):
        Topology.of(H100, 2, intra="xgmi")


def test_a_cluster_gives_its_device_the_links_that_are_fitted() -> None:
    card = find_device("A100-PCIE-80GB")
    pair = cluster_of(card, intra_node="nvlink_bridge").linked_device
    assert Topology.of(pair, 2).fabric == "bridge"
    assert Topology.of(cluster_of(card).linked_device, 2).fabric == "pcie"
    superchip = cluster_of(find_device("GB300"))
    topology = Topology.of(superchip.linked_device, 64, gpus_per_node=superchip.domain)
    assert (topology.nodes, topology.fabric, topology.grace_host) == (1, "switch", True)
    assert not Topology.of(H100, 8).grace_host


@pytest.mark.parametrize("name", ["MI300X", "V100-SXM2-32GB", "H100", "L40S"])
def test_devices_alone_in_their_nodes_talk_over_the_network(name: str) -> None:
    topology = Topology.of(find_device(name), 2, gpus_per_node=1, inter=Link("network", 25e9))
    assert topology.peer_rate > 0
    assert topology.rate > 0
    for op in ("send_recv", "all_reduce"):
        times = collective_times(op, np.array([1 << 20]), 2, topology)
        assert times.estimate_s[0] >= times.bound_s[0] >= (1 << 20) / 2 / 25e9
