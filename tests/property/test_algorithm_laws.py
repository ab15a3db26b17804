"""Laws of every collective algorithm, whoever runs it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from silicast.communication.algorithms.algorithm import COLLECTIVES, Collective, algorithm
from silicast.communication.collective import collective_times
from silicast.communication.library import choices
from silicast.communication.network import network_constants
from silicast.communication.selection import shipped_sections
from silicast.communication.topology import Topology
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link
from tests.sampling import examples

SIZES = np.unique(np.geomspace(1, 1e11, 80).astype(np.int64)).astype(np.float64)
KINDS = ("infiniband", "roce", "efa", "efa-v1", "tcpx", "tcpxo", "slingshot", "network")
DEVICES = ("H100", "A100", "L40S", "B200", "MI300X")
NAMED = ("ring", "tree", "exchange", "halving_doubling", "direct", "hierarchical",
         "double_binary_tree", "binomial", "pat", "torus", "nvls_tree")  # fmt: skip

operations = st.sampled_from(COLLECTIVES)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    device = find_device(draw(st.sampled_from(DEVICES)))
    sides = draw(st.sampled_from([(), (), (), (4, 4), (2, 4, 8), (16,)]))
    gpus = int(np.prod(sides)) if sides else draw(st.integers(2, 2048))
    per_node = draw(st.sampled_from([1, 4, 8, 16]))
    inter = Link(draw(st.sampled_from(KINDS)), draw(st.floats(1e9, 1e11)))
    return Topology.from_device(device, gpus, gpus_per_node=per_node, inter=inter, torus=sides)


def seconds(name: str, op: Collective, topology: Topology) -> np.ndarray:
    sections = shipped_sections(topology.device)
    current = "nvls" if name == "nvls_tree" else topology.section
    constants = {**sections[current], **network_constants(topology)}
    result = algorithm(name).times(op, SIZES, topology, constants)
    assert (result.latency_s <= result.time_s).all()
    return result.time_s


@st.composite
def supported(draw: st.DrawFn) -> tuple[str, Collective, Topology]:
    """An algorithm and a collective that it has on the topology."""
    op, topology = draw(operations), draw(topologies())
    able = [name for name in NAMED if algorithm(name).supports(op, topology)]
    assume(able)
    return draw(st.sampled_from(able)), op, topology


@given(supported())
@examples(300)
def test_more_bytes_are_never_faster(case: tuple[str, Collective, Topology]) -> None:
    name, op, topology = case
    time = seconds(name, op, topology)
    assert (time > 0).all()
    assert np.isfinite(time).all()
    assert (np.diff(time) >= 0).all()


@given(supported(), st.floats(1.0, 16.0), st.floats(1.0, 16.0))
@examples(300)
def test_more_bandwidth_is_never_slower(
    case: tuple[str, Collective, Topology], inside: float, between: float
) -> None:
    name, op, topology = case
    wider = replace(
        topology,
        link=_times(topology.link, inside),
        inter=topology.inter and _times(topology.inter, between),
    )
    assert (seconds(name, op, wider) <= seconds(name, op, topology) * (1 + 1e-12)).all()


def _times(link: Link, factor: float) -> Link:
    return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)


@given(st.integers(2, 100_000), st.floats(1.0, 1e12))
def test_a_ring_sends_exactly_its_share(gpus: int, size: float) -> None:
    topology = Topology.from_device(find_device("H100"), gpus)
    sent = algorithm("ring").traffic("all_reduce", np.array([size]), topology)[0]
    assert sent == pytest.approx(2 * (gpus - 1) / gpus * size, rel=1e-12)


@given(operations, st.sampled_from(("", *NAMED)))
def test_one_device_alone_takes_no_time(op: Collective, name: str) -> None:
    result = collective_times(op, np.array([1, 1 << 30]), 1, find_device("H100"), algorithm=name)
    assert not result.p95_s.any()


@given(operations, topologies())
@examples(100)
def test_the_library_always_has_a_choice(op: Collective, topology: Topology) -> None:
    assert choices("", op, topology)[-1].candidates


@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), topologies())
@examples(100)
def test_no_algorithm_without_a_reducing_switch_sends_less_than_its_share(
    op: Collective, topology: Topology
) -> None:
    passes, n = (2 if op == "all_reduce" else 1), topology.gpus
    for name in ("ring", "halving_doubling", "direct", "torus", "double_binary_tree"):
        one = algorithm(name)
        if one.supports(op, topology) and n > 2:
            sent = one.traffic(op, SIZES, topology)
            assert (sent >= passes * (n - 1) / n * SIZES * (1 - 1e-12)).all()
