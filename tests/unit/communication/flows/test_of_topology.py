"""Topologies of devices as networks of flows."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.communication.collective import link_bound
from silicast.communication.flows.groups import Method, fabric_of, rounds_of
from silicast.communication.flows.job import Job
from silicast.communication.flows.simulation import simulate
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link

CASES: list[tuple[str, str, Method]] = [
    ("all_reduce", "all_reduce", "ring"), ("all_gather", "all_gather", "ring"),
    ("all_to_all", "all_to_all", "direct"), ("all_reduce", "all_reduce", "halving_doubling"),
]  # fmt: skip


@pytest.mark.parametrize("gpus", [4, 8, 64])
@pytest.mark.parametrize("device", ["H100", "A100", "L40S"])
def test_flows_are_never_below_the_bound(device: str, gpus: int) -> None:
    """Without latency they are what the links alone allow for an algorithm."""
    topology = Topology.from_device(find_device(device), gpus, gpus_per_node=min(gpus, 8))
    fabric = fabric_of(topology)
    for op, name, method in CASES:
        job = Job("a", tuple(range(gpus)), rounds_of(name, method, gpus, 1e8))
        bound = float(link_bound(op, np.array([1e8]), topology)[0])  # type: ignore[arg-type]
        assert simulate(fabric, [job]).end_s >= bound * (1.0 - 1e-9), (op, method)


def test_a_ring_inside_a_node_is_the_wire_of_its_closed_form() -> None:
    topology = Topology.from_device(find_device("H100"), 8)
    job = Job("a", tuple(range(8)), rounds_of("all_gather", "ring", 8, 1e8))
    bound = float(link_bound("all_gather", np.array([1e8]), topology)[0])
    assert simulate(fabric_of(topology), [job]).end_s == pytest.approx(bound, rel=1e-9)


def test_what_has_no_such_network_is_refused() -> None:
    h100 = find_device("H100")
    with pytest.raises(SilicastError, match="12 devices in nodes of 8"):
        fabric_of(Topology.from_device(h100, 12))
    with pytest.raises(SilicastError, match="links of a cube"):
        fabric_of(Topology.from_device(find_device("V100-SXM2-32GB"), 8))


def test_a_mesh_has_a_link_for_each_peer() -> None:
    topology = Topology.from_device(find_device("H100"), 4, gpus_per_node=4)
    assert topology.fabric == "mesh"
    (inside,) = fabric_of(topology).dimensions
    assert (inside.kind, inside.bytes_per_s) == ("full", 150e9)


def test_pods_share_their_uplinks() -> None:
    from dataclasses import replace

    topology = replace(
        Topology.from_device(find_device("H100"), 64, inter=Link("network", 50e9)),
        uplink=Link("uplink", 12.5e9, domain=32),
    )
    _, rails = fabric_of(topology).dimensions
    assert (rails.pod, rails.oversubscription) == (4, 4.0)
