"""Clusters: the usual system of every device, and what a user may change of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_from, device_index, find_device
from silicast.hardware.cluster import Cluster, Network, cluster_of, networks, systems, usual_system
from silicast.hardware.device import Link
from silicast.hardware.host import Host, host_of, host_of_system, hosts
from tests.unit.hardware.tables import table


@pytest.mark.parametrize(
    ("name", "gpus", "per_node", "domain", "joint", "network"),
    [
        ("A100", 8, 8, 8, "switched", 25e9),
        ("H100", 8, 8, 8, "switched", 50e9),
        ("B200", 8, 8, 8, "switched", 50e9),
        ("B300", 8, 8, 8, "switched", 100e9),
        ("GB200", 72, 4, 72, "switched", 50e9),
        ("GB300", 72, 4, 72, "switched", 100e9),
        ("GH200", 1, 1, 1, "pcie", 50e9),
        ("V100", 8, 8, 8, "pairwise", 12.5e9),
        ("L40S", 8, 8, 8, "pcie", 25e9),
        ("A40", 8, 8, 8, "pcie", 25e9),
        ("RTX PRO 6000", 8, 8, 8, "pcie", 50e9),
        ("T4", 8, 8, 8, "pcie", 12.5e9),
        ("MI300X", 8, 8, 8, "mesh", 50e9),
        ("MI250X", 8, 8, 8, "pairwise", 12.5e9),
        ("MI210", 8, 8, 8, "pcie", 25e9),
        ("TPU v5p", 8960, 4, 8960, "switched", 6.25e9),
        ("Trainium2", 64, 16, 64, "switched", 25e9),
        ("Gaudi3", 8, 8, 8, "mesh", 75e9),
        ("M2 Ultra", 1, 1, 1, "none", 1.25e9),
        ("Xeon Platinum 8480+", 2, 2, 2, "pcie", 12.5e9),
    ],
)
def test_usual_systems(
    name: str, gpus: int, per_node: int, domain: int, joint: str, network: float
) -> None:
    cluster = cluster_of(find_device(name))
    assert (cluster.gpus, cluster.gpus_per_node, cluster.domain) == (gpus, per_node, domain)
    assert cluster.joint == joint
    assert cluster.inter_node.bandwidth_bytes_per_s == network
    assert cluster.assumed == ()


def test_every_device_has_exactly_one_usual_system() -> None:
    index = systems()
    listed = [device for name in index.names for device in index.get(name).default_for]
    current = [name for name in device_index().names if device_index().get(name).usual_system]
    assert sorted(listed + current) == sorted(device_index().names)
    for name in index.names:
        entry = index.get(name)
        assert set(entry.sources) >= {"gpus_per_node", "inter_node"}
        assert entry.inter_node in networks()
        for device in entry.default_for:
            assert entry.intra_node in find_device(device).links or entry.gpus_per_node == 1
            assert entry.gpus_per_node == find_device(device).default_gpus_per_node
        if entry.device:
            assert find_device(entry.device).name == entry.device
    result = usual_system("H100-SXM-80GB")
    assert result is not None
    assert result[0] == "dgx-h100"


def test_a_nodes_count_and_domain_follow_what_is_changed() -> None:
    h100 = find_device("H100")
    assert cluster_of(h100, gpus=20).nodes == 3
    four = cluster_of(h100, gpus=16, gpus_per_node=4)
    assert (four.nodes, four.domain) == (4, 4)
    assert four.within_domain(4)
    assert not four.within_domain(5)
    rack = cluster_of(find_device("GB200"), gpus=144)
    assert rack.within_domain(72)
    assert not rack.within_domain(73)
    assert rack.nodes == 36
    assert cluster_of(find_device("GB200"), intra_node="pcie").domain == 4


def test_a_mesh_shares_its_links_among_peers() -> None:
    cluster = cluster_of(find_device("MI300X"))
    topology = Topology.from_device(cluster.linked_device, 4, gpus_per_node=8)
    assert topology.fabric == "mesh"
    assert topology.peer_rate == pytest.approx(64e9)
    assert topology.rate == pytest.approx(3 * 64e9)
    whole = Topology.from_device(cluster.linked_device, 8, gpus_per_node=8)
    assert whole.rate == pytest.approx(448e9)


def test_a_bridge_joins_pairs_and_only_on_request() -> None:
    a40 = find_device("A40")
    assert "nvlink" not in cluster_of(a40).linked_device.links
    bridged = cluster_of(a40, intra_node="nvlink")
    assert (bridged.joint, bridged.domain, bridged.gpus_per_node) == ("pairwise", 2, 8)
    link = bridged.linked_device.links["nvlink"]
    assert link.bandwidth_bytes_per_s == 56.25e9
    assert "nvlink_bridge" not in bridged.linked_device.links
    assert cluster_of(a40, system="a40_pairwise_nvlink").intra_node == bridged.intra_node


def test_without_nvlink_only_pcie_is_left() -> None:
    cluster = cluster_of(find_device("H100"), intra_node="pcie")
    assert list(cluster.linked_device.links) == ["pcie"]
    assert cluster.joint == "pcie"


def test_links_and_networks_may_be_described() -> None:
    cluster = cluster_of(
        find_device("L4"),
        gpus=2,
        intra_node=Link("custom", 10e9, switched=True),
        inter_node=Network("mine", 1e9, 5e-6),
    )
    assert cluster.joint == "switched"
    assert cluster.linked_device.links["nvlink"].bandwidth_bytes_per_s == 10e9
    assert cluster.inter_node == Network("mine", 1e9, 5e-6)


def test_an_unlisted_device_gets_a_system_from_its_file_and_says_what_is_assumed() -> None:
    device = device_from(table())
    cluster = cluster_of(device)
    assert (cluster.gpus, cluster.joint, cluster.name) == (4, "switched", "")
    assert cluster.assumed == ("inter_node",)
    assert cluster_of(device, inter_node="ethernet").assumed == ()
    lonely = table()
    del lonely["links"], lonely["sources"]["links"]
    alone = cluster_of(device_from(lonely))
    assert (alone.intra_node, alone.joint) == (None, "none")


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"gpus": 0}, "cluster.gpus", "at least 1"),
        ({"gpus_per_node": -2}, "cluster.gpus_per_node", "found -2"),
        ({"intra_node": "nvlink"}, "cluster.intra_node", "no link 'nvlink'"),
        ({"inter_node": "infinyband"}, "cluster.inter_node", "unknown network"),
        ({"system": "dgx-h1000"}, "cluster.topology", "unknown cluster"),
        ({"system": "dgx-h100"}, "cluster.intra_node", "no link 'nvlink'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said) as caught:
        cluster_of(find_device("L40S"), **changes)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.hint or "at least 1" in caught.value.message


def test_vidurs_network_devices_are_systems() -> None:
    for name in (
        "a100_dgx", "a100_pairwise_nvlink", "a40_pairwise_nvlink", "h100_dgx",
        "h100_pairwise_nvlink", "a30_single_gpu",
    ):  # fmt: skip
        assert name in systems()


def test_hosts() -> None:
    assert host_of() == Host()
    assert host_of("Xeon-8480C").cpu == "xeon-platinum-8480c"
    assert host_of("grace", 1.5) == Host("grace", 1.5)
    assert host_of("home made") == Host("home made", 1.0)
    assert cluster_of(find_device("A100")).host.cpu == "epyc-7742"
    assert host_of_system("nothing") == Host()
    for name in hosts().names:
        entry = hosts().get(name)
        assert entry.factor == 1.0 or "single-thread" in entry.sources["factor"]
        assert all(system in systems() for system in entry.default_for)


@pytest.mark.parametrize(
    "name",
    [
        "dgx-a100", "hgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72",
        "mi300x-platform", "mi325x-platform", "mi350x-platform", "mi355x-platform", "pcie-gen3",
        "pcie-gen4", "pcie-gen5", "tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod",
        "tpu-v7x-pod", "dgx-h100-superpod",
    ],
)  # fmt: skip
def test_usual_systems_have_a_host_and_a_network_that_collectives_use(name: str) -> None:
    entry = systems().get(name)
    device = find_device(entry.device or entry.default_for[0])
    cluster = cluster_of(device, system=name)
    assert cluster.host.cpu != "reference"
    spanning = 2 * max(cluster.domain, cluster.gpus_per_node)
    slow = dataclasses.replace(
        cluster, inter_node=Network("slow", cluster.inter_node.bandwidth_bytes_per_s / 4)
    )
    ops: tuple[Collective, ...] = ("all_to_all", "send_recv")
    for op in ops:  # rings of 72 are slower than all adapters together
        assert _seconds(slow, spanning, op) > 1.2 * _seconds(cluster, spanning, op)


def _seconds(cluster: Cluster, gpus: int, op: Collective = "all_reduce") -> float:
    per_node = max(cluster.domain, cluster.gpus_per_node)
    network = Link("network", cluster.inter_node.bandwidth_bytes_per_s)
    topology = Topology.from_device(
        cluster.linked_device, gpus, gpus_per_node=per_node, inter=network
    )
    result = collective_times(op, np.array([1 << 28]), gpus, topology, "nccl", "graph")
    return float(result.estimate_s[0])


H100 = find_device("H100")
RAW = 50e9


def test_a_network_of_one_level_has_no_uplinks() -> None:
    assert cluster_of(H100, gpus=64).uplink is None


def test_oversubscription_without_pods_is_of_the_whole_network() -> None:
    cluster = cluster_of(H100, gpus=64, oversubscription=4)
    assert cluster.uplink == Link("uplink", RAW / 4, domain=8)
    times = [_seconds(cluster_of(H100, gpus=64, oversubscription=x), 64) for x in (1, 2, 4)]
    assert times[0] < times[1] < times[2]


def test_uplinks_limit_only_what_crosses_pods() -> None:
    cluster = cluster_of(H100, gpus=256, pod=64, oversubscription=16)
    flat = cluster_of(H100, gpus=256)
    ops: tuple[Collective, ...] = ("all_reduce", "all_to_all")
    for op in ops:
        assert _seconds(cluster, 64, op) == _seconds(flat, 64, op)
        assert _seconds(cluster, 256, op) > 1.3 * _seconds(flat, 256, op)


def test_a_pods_uplinks_carry_its_rings_together() -> None:
    """Rings of a node enter a pod once: eight nodes' uplinks carry one node's rings."""
    flat = cluster_of(H100, gpus=256)
    same = cluster_of(H100, gpus=256, pod=64, oversubscription=8)
    more = cluster_of(H100, gpus=256, pod=64, oversubscription=16)
    assert _seconds(same, 256) == _seconds(flat, 256)
    assert _seconds(more, 256) > _seconds(flat, 256)
    assert _seconds(same, 256, "all_to_all") > _seconds(flat, 256, "all_to_all")


def test_the_network_between_pods_is_its_own() -> None:
    ethernet = cluster_of(H100, gpus=256, pod=32, inter_pod="ethernet-100g")
    assert ethernet.uplink == Link("uplink", 12.5e9, domain=32)
    system = cluster_of(H100, system="h100-roce-pods", gpus=6144)
    assert (system.pod, system.uplink) == (3072, Link("uplink", RAW / 7, domain=3072))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"oversubscription": 0.5}, "cluster.oversubscription"),
        ({"oversubscription": float("nan")}, "cluster.oversubscription"),
        ({"pod": 12}, "cluster.gpus_per_pod"),
        ({"pod": 0}, "cluster.gpus_per_pod"),
        ({"inter_pod": "carrier pigeon"}, "cluster.inter_pod"),
    ],
)
def test_impossible_pods_are_named(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        cluster_of(H100, gpus=64, **wrong)
    assert caught.value.field == field


def test_a_device_file_can_name_its_system() -> None:
    mine = device_from({**table(), "usual_system": "dgx-h100"})
    cluster = cluster_of(mine)
    assert (cluster.name, cluster.gpus_per_node, cluster.assumed) == ("dgx-h100", 8, ())
    assert cluster.host.cpu == "xeon-platinum-8480c"
    assert cluster_of(mine, system="pcie-gen4").name == "pcie-gen4"
    lost = device_from({**table(), "usual_system": "dgx-h1000"})
    with pytest.raises(SilicastError) as caught:
        cluster_of(lost)
    assert caught.value.field == "device.usual_system"
    assert "dgx-h100" in caught.value.hint
