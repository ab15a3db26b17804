"""Collectives between nodes: kinds of network, algorithms by name, topologies."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from silicast.communication.algorithms.algorithm import Collective, algorithm
from silicast.communication.collective import collective_times
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Network, cluster_of
from silicast.hardware.device import Link
from silicast.kernels.physics.constants import load_physics
from tests.unit.communication.test_algorithms import PLAIN, SIZE

H100, A100 = find_device("H100"), find_device("A100")
SIZES = np.array([1 << 12, 1 << 20, 1 << 26, 1 << 30])


def over(kind: str, gpus: int = 16, rate: float = 50e9, per_node: int = 8) -> Topology:
    return Topology.from_device(H100, gpus, gpus_per_node=per_node, inter=Link(kind, rate))


@pytest.mark.parametrize(
    ("name", "op", "gpus", "sent"),
    [
        ("halving_doubling", "all_reduce", 8, 14e6),
        ("halving_doubling", "all_reduce", 6, 20e6),  # 4 of them 12e6, two hand over 8e6
        ("halving_doubling", "all_gather", 4, 6e6),
        ("direct", "reduce_scatter", 8, 7e6),
        ("direct", "all_reduce", 4, 12e6),
        ("double_binary_tree", "all_reduce", 8, 16e6),
        ("double_binary_tree", "all_reduce", 2, 8e6),
        ("double_binary_tree", "broadcast", 8, 8e6),
        ("binomial", "broadcast", 8, 24e6),
    ],
)
def test_bytes_sent_by_one_device(name: str, op: Collective, gpus: int, sent: float) -> None:
    topology = Topology.from_device(H100, gpus)
    assert algorithm(name).supports(op, topology)
    assert algorithm(name).traffic(op, SIZE, topology)[0] == pytest.approx(sent)
    time_ = algorithm(name).times(op, SIZE, topology, PLAIN).time_s[0]
    assert time_ == pytest.approx(sent / topology.rate, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "op", "gpus", "sent"),
    [
        ("ring", "all_reduce", 32, 2 * 31 / 32 / 8),
        ("tree", "all_reduce", 16, 1 / 8),
        ("tree", "all_reduce", 24, 1.5 / 8),
        ("tree", "all_reduce", 32, 2 / 8),
        ("nvls_tree", "all_reduce", 512, 2 / 8),
        ("hierarchical", "all_gather", 32, 3 / 4 / 8),
        ("halving_doubling", "all_reduce", 32, 2 * 3 / 4 / 8),
        ("direct", "all_gather", 16, 8 / 16),
        ("double_binary_tree", "broadcast", 32, 1 / 8),
        ("binomial", "broadcast", 32, 2),
    ],
)
def test_bytes_of_one_adapter(name: str, op: Collective, gpus: int, sent: float) -> None:
    """Over adapters so slow that nothing else counts; two trees halve the message at two nodes."""
    topology = over("mine", gpus, rate=1e6)
    time_ = algorithm(name).times(op, SIZE, topology, PLAIN).time_s[0]
    assert time_ == pytest.approx(sent * SIZE[0] / 1e6, rel=1e-2)


def test_a_pat_takes_the_logarithm_of_the_hops() -> None:
    topology = over("mine", 16, per_node=1)
    constants = {**PLAIN, "network_step_us": 5.0, "simple_step_us": 0.0}
    ring, pat = (
        algorithm(name).times("all_gather", np.zeros(1), topology, constants).latency_s[0]
        for name in ("ring", "pat")
    )
    assert ring == pytest.approx(15 * 5e-6)
    assert pat == pytest.approx(4 * 5e-6)
    assert not algorithm("pat").supports("all_gather", over("mine", 16))


def test_each_kind_of_network_has_its_own_latency() -> None:
    kinds = load_physics("network").architectures
    assert {"infiniband", "roce", "efa", "tcpx"} <= set(kinds)
    quick, slow = (
        collective_times("all_reduce", SIZES, 16, over(kind), "nccl").estimate_s
        for kind in ("infiniband", "tcpx")
    )
    assert (quick < slow).all()


def test_a_network_that_was_not_measured_is_said_and_wide() -> None:
    known, other = (
        collective_times("all_reduce", SIZES, 16, over(kind), "nccl")
        for kind in ("infiniband", "slingshot")
    )
    assert known.warnings == ()
    assert any("slingshot" in warning and "efa" in warning for warning in other.warnings)
    assert (other.p95_s / other.estimate_s > known.p95_s / known.estimate_s).all()


def test_more_nodes_than_were_measured_are_said_and_wider() -> None:
    few, many = (
        collective_times("all_reduce", SIZES, 8 * nodes, over("infiniband", 8 * nodes), "nccl")
        for nodes in (64, 512)
    )
    assert few.warnings == ()
    assert any("512 nodes" in warning for warning in many.warnings)
    assert (many.p95_s / many.estimate_s > few.p95_s / few.estimate_s).all()


def test_an_operation_that_was_not_measured_between_nodes_is_wider() -> None:
    gathered, exchanged = (
        collective_times(op, SIZES, 16, over("infiniband"), "nccl")
        for op in ("all_gather", "all_to_all")
    )
    assert exchanged.shared_log_sd["network"] > 2 * gathered.shared_log_sd["network"]


def test_an_algorithm_can_be_asked_for() -> None:
    topology = over("infiniband", 32)
    for name in ("ring", "tree", "nvls_tree", "halving_doubling", "hierarchical", "direct"):
        result = collective_times("all_reduce", SIZES, 32, topology, algorithm=name)
        assert set(result.choice) == {name}
        assert (result.estimate_s >= result.bound_s).all()
    current = collective_times("all_reduce", SIZES, 32, topology)
    forced = [
        collective_times("all_reduce", SIZES, 32, topology, algorithm=name).estimate_s
        for name in ("ring", "tree", "nvls_tree")
    ]
    assert current.estimate_s == pytest.approx(np.min(forced, axis=0))


@pytest.mark.parametrize("name", ["binomial", "pat", "torus", "two_shot"])
def test_an_algorithm_that_cannot_is_refused(name: str) -> None:
    with pytest.raises(SilicastError, match=f"{name} does not carry out all_reduce") as error:
        collective_times("all_reduce", SIZES, 32, over("infiniband", 32), algorithm=name)
    assert "halving_doubling" in str(error.value)
    with pytest.raises(SilicastError, match="unknown collective algorithm"):
        collective_times("all_reduce", SIZES, 32, over("infiniband", 32), algorithm="rings")


@pytest.mark.parametrize("sides", [(4, 4, 4), (8, 8), (64,)])
def test_a_torus_keeps_all_its_links_busy(sides: tuple[int, ...]) -> None:
    topology = Topology.from_device(find_device("TPU v5p"), 64, torus=sides)
    result = algorithm("torus").traffic("all_reduce", SIZE, topology)[0]
    assert result == pytest.approx(2 * 63 / 64 * SIZE[0])
    times = collective_times("all_reduce", SIZES, 64, topology)
    assert times.choice[-1] == ("torus" if len(sides) > 1 else "ring")  # the same on one side


def test_unequal_sides_of_a_torus_wait_for_the_longest() -> None:
    even, uneven = (
        algorithm("torus").traffic(
            "all_gather", SIZE, Topology.from_device(find_device("TPU v5p"), 64, torus=sides)
        )[0]
        for sides in ((8, 8), (2, 32))
    )
    assert uneven > even


def test_far_messages_of_a_torus_take_several_links() -> None:
    near, far = (
        algorithm("exchange").times(
            "all_to_all", SIZE, Topology.from_device(find_device("TPU v5p"), 64, torus=sides), PLAIN
        ).time_s[0]
        for sides in ((4, 4, 4), (64,))
    )  # fmt: skip
    assert far == pytest.approx(near * 16 / 3)


def test_a_torus_holds_the_product_of_its_sides() -> None:
    with pytest.raises(SilicastError, match="4 x 4 holds 16 devices, not 17"):
        Topology.from_device(H100, 17, torus=(4, 4))


def test_uplinks_that_carry_less_slow_what_leaves_a_pod() -> None:
    """A ring leaves a pod once whatever its size, so that only small pods suffer."""
    device = H100

    def seconds(over_by: float, pod: int) -> float:
        cluster = cluster_of(device, gpus=1024, pod=pod, oversubscription=over_by)
        topology = Topology.from_device(cluster.linked_device, 1024, inter=cluster.inter_node.link)
        result = collective_times("all_reduce", np.array([1 << 32]), 1024, topology, "nccl")
        return float(result.estimate_s[0])

    assert seconds(1, 256) == pytest.approx(seconds(8, 256))
    assert seconds(8, 8) > 3 * seconds(1, 8)


def test_sixteen_thousand_devices_take_milliseconds() -> None:
    topology = over("infiniband", 16384)
    sizes = np.geomspace(1, 1e11, 64).astype(np.int64)
    collective_times("all_reduce", sizes, 16384, topology, "nccl")
    start = time.perf_counter()
    result = collective_times("all_reduce", sizes + 1, 16384, topology, "nccl")
    assert time.perf_counter() - start < 0.05
    assert np.isfinite(result.p95_s).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("infiniband-ndr", "infiniband"), ("p4d", "efa-v1"), ("p5", "efa"), ("a3-high", "tcpx"),
     ("a3-mega", "tcpxo"), ("roce-400g", "roce"), ("slingshot", "slingshot")],
)  # fmt: skip
def test_networks_of_the_catalog_have_kinds(name: str, kind: str) -> None:
    assert cluster_of(H100, inter_node=name).inter_node.link.name == kind


def test_a_described_network_may_name_a_kind() -> None:
    assert Network("efa", 25e9).link == Link("efa", 25e9)
    assert Network("mine", 25e9, kind="roce").link == Link("roce", 25e9)
    assert Topology.from_device(H100, 16, inter=Network("mine", 25e9).link).network == ""


def test_one_device_alone_on_an_adapter_reaches_less_of_it() -> None:
    eight = over("roce", 16)
    one = replace(eight, gpus=2, gpus_per_node=1)
    whole, alone = (
        float(collective_times("all_gather", np.array([1 << 32]), t.gpus, t).estimate_s[0])
        * t.network_rate * t.local / (1 << 32) * t.gpus / (t.gpus - 1)
        for t in (eight, one)
    )  # fmt: skip
    assert alone > whole


def test_boards_without_a_switch_that_adds_use_plain_trees() -> None:
    topology = Topology.from_device(A100, 16, inter=Link("efa-v1", 6.25e9))
    assert set(collective_times("all_reduce", SIZES, 16, topology).choice) <= {"ring", "tree"}
