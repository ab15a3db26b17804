"""Which links a collective can use."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.core.naming import normalise
from silicast.hardware.catalog import device_from, device_index, find_device
from silicast.hardware.cluster import cluster_of
from silicast.hardware.device import Device, Link
from tests.unit.hardware.tables import table

H100, A100, L40S = find_device("H100"), find_device("A100"), find_device("L40S")


def test_eight_devices_on_a_switch_share_nothing() -> None:
    topology = Topology.from_device(H100, 8)
    assert (topology.fabric, topology.nodes, topology.local) == ("switch", 1, 8)
    assert topology.rate == topology.peer_rate == 450e9
    assert topology.multicast


def test_a100_has_a_switch_that_does_not_reduce() -> None:
    assert Topology.from_device(A100, 8).fabric == "switch"
    assert not Topology.from_device(A100, 8).multicast


@pytest.mark.parametrize(("gpus", "share"), [(2, 1 / 3), (3, 2 / 3), (4, 1.0)])
def test_a_board_of_four_has_a_third_of_its_links_to_each_peer(gpus: int, share: float) -> None:
    topology = Topology.from_device(H100, gpus, gpus_per_node=4)
    assert topology.fabric == "mesh"
    assert not topology.multicast
    assert topology.rate == pytest.approx(450e9 * share)
    assert topology.peer_rate == pytest.approx(150e9)


def test_four_in_a_tray_of_gb200_still_have_the_switch() -> None:
    assert Topology.from_device(find_device("GB200"), 4).fabric == "switch"


def test_bridges_must_be_asked_for_and_join_pairs_only() -> None:
    device = find_device("A100-PCIE-80GB")
    assert Topology.from_device(device, 2).fabric == "pcie"
    assert Topology.from_device(device, 2, intra="nvlink_bridge").fabric == "bridge"
    assert Topology.from_device(device, 4, intra="nvlink_bridge").fabric == "pcie"


def test_workstation_boards_go_by_way_of_host_memory() -> None:
    assert Topology.from_device(L40S, 2).peer_access
    assert not Topology.from_device(L40S, 4).peer_access
    assert Topology.from_device(find_device("RTX 6000 Ada"), 2).fabric == "host"
    assert not Topology.from_device(find_device("RTX 6000 Ada"), 2).peer_access


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
        topology = Topology.from_device(board, gpus)
        assert topology.fabric == "cube"
        assert topology.rate == pytest.approx(rate)
        assert topology.peer_rate == pytest.approx(rate if gpus == 2 else topology.peer_rate)
        assert topology.peer_access == (gpus <= 4)
        assert not topology.multicast
    assert Topology.from_device(device, gpus, intra="pcie").fabric == "pcie"


def test_messages_to_distant_corners_of_a_cube_go_over_pcie() -> None:
    device = find_device("V100-SXM2-32GB")
    assert Topology.from_device(device, 4).exchange_rate == Topology.from_device(device, 4).rate
    # one of five peers, then three of seven, by 16 GB/s
    six = Topology.from_device(device, 6)
    assert six.exchange_rate == pytest.approx(min(six.rate, 16e9 * 5 / 1))
    pcie = replace(device.links["pcie"], bandwidth_bytes_per_s=1e9)
    slow = replace(device, links={**device.links, "pcie": pcie})
    assert Topology.from_device(slow, 6).exchange_rate == pytest.approx(1e9 * 5)
    assert Topology.from_device(slow, 5).exchange_rate == Topology.from_device(slow, 5).rate
    assert Topology.from_device(device, 8).exchange_rate == pytest.approx(16e9 * 7 / 3)


def test_nodes_are_filled_one_after_the_other() -> None:
    topology = Topology.from_device(H100, 20)
    assert (topology.nodes, topology.local) == (3, 8)


def test_an_unstated_network_is_what_the_pcie_slot_can_feed() -> None:
    assumed = Topology.from_device(H100, 16)
    assert assumed.assumed_inter
    assert assumed.inter is not None
    assert assumed.inter.bandwidth_bytes_per_s == pytest.approx(50e9)  # 400 Gb/s
    assert Topology.from_device(A100, 16).inter == Link("network", 25e9)  # 200 Gb/s
    stated = Topology.from_device(H100, 16, inter=Link("ib", 100e9))
    assert stated.inter == Link("ib", 100e9)
    assert not stated.assumed_inter
    assert Topology.from_device(H100, 8, inter=Link("ib", 100e9)).inter is None


def test_no_participants_is_an_error() -> None:
    with pytest.raises(SilicastError, match="gpus"):
        Topology.from_device(H100, 0)


def test_a_device_without_links_is_refused() -> None:
    with pytest.raises(SilicastError, match="no link"):
        Topology.from_device(replace(H100, links={}), 2)


def test_an_unknown_link_names_the_known_ones() -> None:
    with pytest.raises(SilicastError, match="nvlink, pcie"):
        Topology.from_device(H100, 2, intra="xgmi")


def test_a_cluster_gives_its_device_the_links_that_are_fitted() -> None:
    card = find_device("A100-PCIE-80GB")
    pair = cluster_of(card, intra_node="nvlink_bridge").linked_device
    assert Topology.from_device(pair, 2).fabric == "bridge"
    assert Topology.from_device(cluster_of(card).linked_device, 2).fabric == "pcie"
    superchip = cluster_of(find_device("GB300"))
    topology = Topology.from_device(superchip.linked_device, 64, gpus_per_node=superchip.domain)
    assert (topology.nodes, topology.fabric, topology.grace_host) == (1, "switch", True)
    assert not Topology.from_device(H100, 8).grace_host


@pytest.mark.parametrize("name", ["MI300X", "V100-SXM2-32GB", "H100", "L40S"])
def test_devices_alone_in_their_nodes_talk_over_the_network(name: str) -> None:
    topology = Topology.from_device(
        find_device(name), 2, gpus_per_node=1, inter=Link("network", 25e9)
    )
    assert topology.peer_rate > 0
    assert topology.rate > 0
    for op in ("send_recv", "all_reduce"):
        times = collective_times(op, np.array([1 << 20]), 2, topology)
        assert times.estimate_s[0] >= times.bound_s[0] >= (1 << 20) / 2 / 25e9


def _card(**link: Any) -> Device:
    data = table()
    data["links"]["nvlink"] |= {k: v for k, v in link.items() if k != "peer_access"}
    if "peer_access" in link:
        del data["links"]["nvlink"]
        data["links"]["pcie"]["peer_access"] = link["peer_access"]
    return device_from(data)


def test_how_boards_are_joined_is_a_fact_of_the_device_file() -> None:
    assert Topology.from_device(_card(), 4, gpus_per_node=4).fabric == "switch"
    mesh = Topology.from_device(_card(mesh_boards=[4]), 4, gpus_per_node=4)
    assert mesh.fabric == "mesh"
    assert mesh.peer_rate == pytest.approx(100e9 / 3)
    assert Topology.from_device(_card(mesh_boards=[4]), 4, gpus_per_node=8).fabric == "switch"
    cube = _card(switched=False, cube={"links": 4, "pair": 1, "three": 2, "four": 3})
    assert [Topology.from_device(cube, n).rate for n in (2, 3, 4)] == [25e9, 50e9, 75e9]
    assert Topology.from_device(_card(peer_access=True), 2).fabric == "pcie"
    assert Topology.from_device(_card(peer_access=False), 2).fabric == "host"


def test_a_host_on_the_module_is_a_fact_of_the_device_file() -> None:
    assert Topology.from_device(device_from({**table(), "default_host": "grace"}), 2).grace_host
    assert not Topology.from_device(device_from(table()), 2).grace_host


def test_uplinks_by_hand() -> None:
    """256 devices in pods of 64, eight a node, 50 GB/s each, uplinks a quarter of that."""
    cluster = cluster_of(H100, gpus=256, pod=64, oversubscription=4)
    network = Link("network", 50e9)
    topology = Topology.from_device(cluster.linked_device, 256, inter=network)
    assert topology.uplink == Link("uplink", 12.5e9, domain=64)
    assert topology.network_rate == 50e9  # 64 x 12.5 GB/s carry the rings of 8 adapters
    assert topology.network_exchange_rate == pytest.approx(12.5e9 * 248 / 192)
    assert topology.network_message_rate == 12.5e9
    within = Topology.from_device(cluster.linked_device, 64, inter=network)
    assert within.uplink is None
    assert within.network_exchange_rate == within.network_message_rate == 50e9
    alone = Topology.from_device(cluster.linked_device, 8, inter=network)
    assert alone.network_rate == alone.network_exchange_rate == alone.network_message_rate == 0.0


def test_no_rule_of_communication_names_a_device() -> None:
    import silicast.communication as package

    names = {normalise(name) for name in device_index().names}
    for path in Path(package.__path__[0]).rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        distinct = {normalise(text) for text in re.findall(r'"([^"\n]+)"', code)}
        assert not distinct & names, path.name
