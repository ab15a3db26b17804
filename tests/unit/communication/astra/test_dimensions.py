"""ASTRA-sim's times in several dimensions, against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.communication.astra_sim import BACKENDS, OPERATIONS, astra_time
from silicast.core.errors import SilicastError
from silicast.formats.astra_sim import AstraNetwork, AstraSystem, NetworkDimension, network_of

TWO = ("ring", "ring")
ONE_BYTE_PER_NS = 1e9 / (1 << 30)
NETWORK = network_of(
    f"topology: [ Ring, Switch ]\nnpus_count: [ 2, 4 ]\n"
    f"bandwidth: [ {ONE_BYTE_PER_NS!r}, {ONE_BYTE_PER_NS!r} ]\nlatency: [ 100, 500 ]"
)
"""Pairs of a ring (100 ns a hop), four of them on a switch (two hops of 500 ns); 1 byte a ns."""
PLAIN = AstraSystem(TWO, TWO, TWO, TWO, 0, 1, 1)
BY_BANDWIDTH = msgspec.structs.replace(PLAIN, collective_optimization="localBWAware")


def unaware(op: str, size: int, system: AstraSystem, network: AstraNetwork = NETWORK) -> int:
    return astra_time(op, size, network, system, "unaware")


def test_a_reduce_scatter_hands_on_its_share() -> None:
    pairs, switch = 100 + 4000, 3 * (1000 + 1000)  # half of 8,000 bytes, then a quarter of that
    assert unaware("reduce_scatter", 8000, PLAIN) == pairs + switch == 10_100


def test_an_all_gather_begins_outside_and_hands_on_all() -> None:
    switch, pairs = 3 * (1000 + 1000), 100 + 4000  # 1,000 bytes to four, then 4,000 to the pair
    assert unaware("all_gather", 1000, PLAIN) == switch + pairs == 10_100


def test_an_all_to_all_passes_everything_through_each_dimension() -> None:
    pairs, switch = 100 + 4000, 6 * (1000 + 2000)  # n (n - 1) / 2 steps round each ring
    assert unaware("all_to_all", 8000, PLAIN) == pairs + switch == 22_100


def test_an_all_reduce_is_one_a_dimension_or_saves_the_outer_one() -> None:
    pairs, switch = 2 * (100 + 4000), 6 * (1000 + 2000)
    assert unaware("all_reduce", 8000, PLAIN) == pairs + switch == 26_200
    scattered, summed, gathered = 100 + 4000, 6 * (1000 + 1000), 100 + 4000
    assert unaware("all_reduce", 8000, BY_BANDWIDTH) == scattered + summed + gathered == 20_200


def test_endpoints_and_memory_delay_every_phase() -> None:
    slow = msgspec.structs.replace(PLAIN, endpoint_delay=10, local_mem_bw=2.0)
    begins, steps = 2 * 10, (1 + 3) * 10
    reduced = 3 * 4000 // 2 + 3 * (3 * 1000 // 2)  # written once, read twice, at 2 bytes a ns
    assert unaware("reduce_scatter", 8000, slow) == 10_100 + begins + steps + reduced
    assert unaware("all_gather", 1000, slow) == 10_100 + begins + steps


@pytest.mark.parametrize(("active", "waves"), [(1, 4), (2, 2), (3, 2), (4, 1)])
def test_chunks_follow_each_other_through_the_dimensions(active: int, waves: int) -> None:
    system = msgspec.structs.replace(
        PLAIN, preferred_dataset_splits=4, active_chunks_per_dimension=active
    )
    pairs, switch = 4100, 6000  # the switch is the slower one: it never waits after the first
    assert unaware("reduce_scatter", 4 * 8000, system) == pairs + waves * switch


def test_chunks_that_meet_on_their_way_back_are_refused() -> None:
    def of(splits: int) -> AstraSystem:
        return msgspec.structs.replace(BY_BANDWIDTH, preferred_dataset_splits=splits)

    # All are out before the first comes back, at 4,100 + 12,000; then they come every 12,000.
    for splits in (2, 3):
        assert unaware("all_reduce", splits * 8000, of(splits)) == 4100 + splits * 12_000 + 4100
    assert unaware("all_reduce", 4 * 8000, of(4)) == 4100 + 4 * 12_000 + 4100
    with pytest.raises(SilicastError, match="wait for dimension 1 on their way out and back"):
        unaware("all_reduce", 5 * 8000, of(5))


@given(
    npus=st.integers(2, 9), splits=st.integers(1, 9), active=st.integers(1, 4),
    size=st.integers(1 << 10, 1 << 20), op=st.sampled_from(OPERATIONS),
    optimized=st.booleans(), delay=st.integers(0, 50), memory=st.sampled_from((0.0, 3350.0)),
)  # fmt: skip
def test_one_dimension_is_waves_of_one_ring(
    npus: int, splits: int, active: int, size: int, op: str, optimized: bool, delay: int,
    memory: float,
) -> None:  # fmt: skip
    network = AstraNetwork((NetworkDimension("Switch", npus, 400.0, 936.25),))
    ring = ("ring",)
    system = AstraSystem(
        ring, ring, ring, ring, delay, splits, active, memory,
        "localBWAware" if optimized else "baseline",
    )  # fmt: skip
    chunk = size // splits
    around = {"all_reduce": 2 * npus - 2, "all_to_all": npus * (npus - 1) // 2}.get(op, npus - 1)
    message = chunk if op == "all_gather" else chunk // npus
    step = int(2 * 936.25 + message / network.dimensions[0].bytes_per_ns) + delay
    reduced = npus - 1 if op in ("all_reduce", "reduce_scatter") and memory else 0
    remaining = 3 * int(message / memory) * reduced if memory else 0
    waves = math.ceil(math.ceil(size / chunk) / active)
    assert unaware(op, size, system, network) == waves * (delay + around * step + remaining)


@given(size=st.integers(1 << 10, 1 << 24), op=st.sampled_from(("all_gather", "reduce_scatter")))
def test_a_gather_is_a_scatter_backwards(size: int, op: str) -> None:
    whole = size // 8 * 8
    assert unaware("all_gather", whole // 8, PLAIN) == unaware("reduce_scatter", whole, PLAIN)
    assert unaware(op, 2 * whole, PLAIN) > unaware(op, whole, PLAIN)


def test_what_is_not_modelled_is_refused() -> None:
    assert NETWORK.npus == 8
    with pytest.raises(SilicastError, match="2 dimensions; ASTRA-sim counts contention in one"):
        astra_time("all_reduce", 8000, NETWORK, PLAIN, BACKENDS[0])
    for change, remarks in (
        ({"all_reduce_implementation": ("ring", "direct")}, "all_reduce by ring, direct"),
        ({"all_reduce_implementation": ("ring",)}, "has 1 entries, and the network 2 dimensions"),
        ({"inter_dimension_scheduling": "themis"}, "inter-dimension-scheduling: 'themis'"),
    ):
        with pytest.raises(SilicastError, match=remarks):
            unaware("all_reduce", 8000, msgspec.structs.replace(PLAIN, **change))
    with pytest.raises(SilicastError, match="at least one byte"):
        unaware("reduce_scatter", 7, PLAIN)
    large = ", ".join(["64"] * 3)
    with pytest.raises(SilicastError, match="npus_count: 262,144 NPUs"):
        network_of(
            f"topology: [Ring, Ring, Ring]\nnpus_count: [{large}]\nbandwidth: [{large}]\n"
            f"latency: [{large}]"
        )


def test_the_order_of_dimensions_matters() -> None:
    turned = replace(NETWORK, dimensions=NETWORK.dimensions[::-1])
    scattered, pairs = 3 * (1000 + 2000), 100 + 1000
    assert unaware("reduce_scatter", 8000, PLAIN, turned) == scattered + pairs
