"""Groups that share links: against closed forms of one group, and by what must hold of several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.communication.algorithms.algorithm import Collective
from silicast.communication.flows.groups import Groups, sharing_of
from silicast.communication.topology import Topology
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link

NETWORK, SIZE = 50e9, 1e9


def pods(gpus: int, oversubscription: float, pod: int = 32) -> Topology:
    """H100 in nodes of 8 under switches of ``pod`` devices."""
    whole = Topology.from_device(find_device("H100"), gpus, inter=Link("network", NETWORK))
    return replace(whole, uplink=Link("uplink", NETWORK / oversubscription, domain=pod))


def test_every_device_is_in_one_group() -> None:
    groups = Groups(count=6, size=4, stride=3)
    devices = sorted(int(each) for group in range(6) for each in groups.members(group))
    assert devices == list(range(24))


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 8.0])
def test_one_exchange_waits_for_uplinks_as_its_closed_form_does(oversubscription: float) -> None:
    topology = pods(64, oversubscription)
    free = replace(topology, uplink=None)
    sent = SIZE * (64 - 8) / 64
    slower = sent / topology.network_exchange_rate - sent / free.network_exchange_rate
    extra = sharing_of("all_to_all", SIZE, topology, Groups(1, 64)).extra_s
    assert extra == pytest.approx(slower, rel=1e-6, abs=1e-12)


def test_one_ring_over_all_adapters_takes_what_the_links_allow() -> None:
    """Uplinks that carry what one node's adapters send hold no ring up; slower ones do."""
    topology = pods(64, 4.0)
    assert topology.network_rate == NETWORK
    assert sharing_of("all_reduce", SIZE, topology, Groups(1, 64)).extra_s == pytest.approx(0.0)
    slow = pods(64, 16.0)
    slower = 2 * SIZE * 63 / 64 / 8 * (1 / slow.network_rate - 1 / NETWORK)
    extra = sharing_of("all_reduce", SIZE, slow, Groups(1, 64)).extra_s
    assert extra == pytest.approx(slower, rel=0.02)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all", "broadcast", "send_recv"])
def test_groups_within_a_pod_do_not_wait_for_each_other(op: Collective) -> None:
    assert sharing_of(op, SIZE, pods(64, 8.0), Groups(4, 16)).extra_s == pytest.approx(0.0)


def test_messages_of_all_groups_fill_the_uplinks_of_their_rail() -> None:
    """Each of 4 pairs of a rail sends over the rail's uplinks, which carry as much as one."""
    topology = pods(64, 4.0)
    shared = sharing_of("send_recv", SIZE, topology, Groups(32, 2, stride=32))
    assert shared.extra_s == pytest.approx(3 * SIZE / NETWORK)
    assert shared.busiest == "leaf 0 up (dimension 1)"
    assert shared.busy_share == pytest.approx(1.0)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all"])
def test_narrower_uplinks_are_waited_for_longer(op: Collective) -> None:
    groups = Groups(8, 8, stride=8)
    waits = [sharing_of(op, SIZE, pods(64, 2.0**n), groups).extra_s for n in range(6)]
    assert waits[0] == pytest.approx(0.0)
    assert waits == sorted(waits)
    assert waits[-1] > waits[2]


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(SilicastError, match=r"workload\.group_stride"):
        Groups(3, 4, stride=2)
    with pytest.raises(SilicastError, match="4 devices in one node and 8 in another"):
        sharing_of("all_reduce", 1.0, pods(96, 2.0), Groups(8, 12))
    with pytest.raises(SilicastError, match="messages at once") as refused:
        sharing_of("all_to_all", 1.0, pods(4096, 2.0), Groups(2, 2048))
    assert refused.value.kind == "limit"
