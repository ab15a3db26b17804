"""When packets matter: reasons in messages counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from silicast.communication.flows.groups import Groups
from silicast.communication.flows.packets import (
    ONE_WAY_S,
    SLOWER,
    WINDOW,
    effects_by_rates,
    packet_effects,
    widened,
)
from silicast.communication.topology import Topology
from silicast.core.prediction import Quantity
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link

RATE = 12.5e9
HOSTS = Topology.from_device(find_device("H100"), 16, gpus_per_node=1, inter=Link("tcp", RATE))


def under(times: float) -> Topology:
    """Four hosts below each leaf."""
    return replace(HOSTS, uplink=Link("uplink", RATE / times, domain=4))


def test_a_ring_carries_data_and_answers_both_ways() -> None:
    """30 rounds of 1 MB: at 80 us and 4 us each, windows grow by log2(1 + 100,000 / 131,072)."""
    effects = packet_effects("all_reduce", 16e6, HOSTS, Groups(1, 16))
    assert effects is not None
    assert effects.both_ways == 1.0
    grown = math.log2(1.0 + RATE * 2.0 * ONE_WAY_S / WINDOW)
    assert effects.windows == pytest.approx(2.0 * ONE_WAY_S * grown / (1e6 / RATE + ONE_WAY_S))
    assert effects.reasons == ("answers wait behind data of the other direction",)


def test_short_messages_end_while_windows_grow() -> None:
    effects = packet_effects("broadcast", 1e5, replace(HOSTS, gpus=2), Groups(1, 2))
    assert effects is not None
    assert effects.both_ways == 0.0
    assert effects.reasons == ("messages end while windows still grow",)


def test_one_uplink_is_the_narrowest_and_nothing_is_spread() -> None:
    """An exchange under 4:1: a leaf's one uplink carries 48 messages, a host's link 15."""
    effects = packet_effects("all_to_all", 64e6, under(4.0), Groups(1, 16))
    assert effects is not None
    assert (effects.uplinks, effects.spread, effects.reasons) == (1.0, False, ())
    two = packet_effects("all_to_all", 64e6, under(2.0), Groups(1, 16))
    assert two is not None
    assert two.reasons == ("packets that are spread over uplinks come out of order",)


def test_networks_that_are_not_tcp_have_their_own_reason() -> None:
    """The same exchange over InfiniBand: the uplinks; a ring of it: none."""
    fabric = replace(under(4.0), inter=Link("infiniband", RATE))
    exchange = packet_effects("all_to_all", 64e6, fabric, Groups(1, 16))
    free = replace(HOSTS, inter=Link("infiniband", RATE))
    ring = packet_effects("all_reduce", 16e6, free, Groups(1, 16))
    assert exchange is not None
    assert ring is not None
    assert exchange.reasons == ("uplinks are the narrowest links",)
    assert "this network was not studied" in exchange.remark
    assert ring.reasons == ()


def test_too_many_messages_go_by_the_rates_of_links() -> None:
    """An exchange of 2,048 hosts has four million messages."""
    fabric = replace(under(4.0), gpus=2048, inter=Link("infiniband", RATE))
    effects = packet_effects("all_to_all", 1e9, fabric, Groups(1, 2048))
    assert effects is not None
    assert effects.reasons == ("uplinks are the narrowest links",)
    level = replace(fabric, uplink=Link("uplink", RATE, domain=4))
    none = packet_effects("all_to_all", 1e9, level, Groups(1, 2048))
    assert none is not None
    assert none.reasons == ()


def test_uplinks_matter_by_their_rate_where_messages_are_not_counted() -> None:
    """Four adapters below an uplink of a quarter of them, or of all; of TCP one that is broader
    than an adapter spreads packets.
    """
    narrow, level = (effects_by_rates(under(times)) for times in (4.0, 1.0))
    assert narrow is not None
    assert level is not None
    assert (narrow.uplinks, narrow.spread, narrow.tcp) == (1.0, False, True)
    assert (level.uplinks, level.spread) == (0.0, True)
    assert effects_by_rates(HOSTS) is None


def test_nothing_leaves_a_node() -> None:
    inside = Topology.from_device(find_device("H100"), 8)
    assert packet_effects("all_reduce", 1e8, inside, Groups(1, 8)) is None
    several = Topology.from_device(find_device("H100"), 16)
    assert packet_effects("all_reduce", 1e8, several, Groups(2, 8)) is None


def test_only_the_upper_end_is_widened_and_by_the_share() -> None:
    time = Quantity(2.0, 1.5, 3.0)
    wide = widened(time, 0.5)
    assert (wide.estimate, wide.p05) == (2.0, 1.5)
    expected = 2.0 * math.exp(math.hypot(math.log(1.5), 0.5 * SLOWER))
    assert wide.p95 == pytest.approx(expected)
