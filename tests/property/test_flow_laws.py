"""Laws of max-min fair flows, of their simulation, and of folding."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.communication.flows.fair_share import fair_rates
from silicast.communication.flows.groups import Method, rounds_of
from silicast.communication.flows.job import Job, Round
from silicast.communication.flows.product import (
    KINDS,
    Fabric,
    FabricDimension,
    ProductFabric,
    rail_cluster,
    torus,
)
from silicast.communication.flows.simulation import simulate, slowdowns

RATE, LATENCY = 50e9, 2e-6
METHODS: list[tuple[str, Method]] = [
    ("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "ring"),
    ("all_reduce", "halving_doubling"), ("all_reduce", "tree"), ("broadcast", "tree"),
    ("all_to_all", "direct"), ("all_gather", "direct"),
]  # fmt: skip


@st.composite
def fabrics(draw: st.DrawFn) -> ProductFabric:
    """Up to three small dimensions of any kind."""
    dimensions = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        size = draw(st.sampled_from([2, 3, 4]))
        pod = draw(st.sampled_from([0, 1, 2])) if kind == "switch" and size % 2 == 0 else 0
        rate = draw(st.sampled_from([10e9, 25e9, 400e9]))
        latency = draw(st.sampled_from([0.0, 1e-6, 3e-6]))
        over = draw(st.sampled_from([1.0, 2.0, 3.0]))
        dimensions.append(FabricDimension(kind, size, rate, latency, pod, over))
    return ProductFabric(tuple(dimensions))


@st.composite
def workloads(draw: st.DrawFn) -> tuple[ProductFabric, list[Job]]:
    """A network with one to three jobs on some of its ranks."""
    fabric = draw(fabrics())
    jobs: list[Job] = []
    for number in range(draw(st.integers(1, 3))):
        ranks = draw(
            st.lists(st.integers(0, fabric.ranks - 1), min_size=2, max_size=8, unique=True)
        )
        op, method = draw(st.sampled_from(METHODS))
        if method == "halving_doubling":
            ranks = ranks[: 1 << (len(ranks).bit_length() - 1)]
        size = draw(st.sampled_from([0.0, 1e3, 1e6, 3e7]))
        delay = draw(st.sampled_from([0.0, 1e-5, 1e-3]))
        after = tuple(job.name for job in jobs if draw(st.booleans()))
        rounds = rounds_of(op, method, len(ranks), size)
        jobs.append(Job(f"job {number}", tuple(ranks), rounds, delay, after))
    return fabric, jobs


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), max_size=12),
    st.lists(st.floats(0.1, 1e3), min_size=6, max_size=6),
    st.data(),
)
def test_rates_are_max_min_fair(
    ways: list[list[int]], capacities: list[float], data: st.DataObject
) -> None:
    active = np.array([data.draw(st.booleans()) for _ in ways], dtype=np.bool_)
    links = np.array([link for way in ways for link in way], dtype=np.int64)
    flows = np.array([f for f, way in enumerate(ways) for _ in way], dtype=np.int64)
    capacity = np.array(capacities)
    rates = fair_rates(links, flows, np.ones(len(links)), capacity, active)
    load = np.bincount(links, rates[flows], len(capacity))
    assert np.all(load <= capacity * (1.0 + 1e-9))
    assert np.all(rates[~active] == 0.0)
    for flow in np.flatnonzero(active).tolist():
        assert rates[flow] > 0.0
        assert any(
            load[link] >= capacity[link] * (1.0 - 1e-9)
            and rates[flow] >= max(rates[f] for f, w in enumerate(ways) if link in w) * (1 - 1e-9)
            for link in ways[flow]
        ), "no full link on its way on which nobody has more"


@given(fabrics(), st.floats(1.0, 1e9), st.data())
def test_one_message_alone_has_its_narrowest_link(
    fabric: ProductFabric, size: float, data: st.DataObject
) -> None:
    ends = data.draw(
        st.lists(st.integers(0, fabric.ranks - 1), min_size=2, max_size=2, unique=True)
    )
    way = fabric.route(np.array(ends[:1]), np.array(ends[1:])).links
    expected = fabric.latency_s[way].sum() + size / fabric.capacity[way].min()
    job = Job("one", tuple(ends), (Round.from_messages([0], [1], size),))
    assert simulate(fabric, [job]).end_s == pytest.approx(expected, rel=1e-9)


@given(workloads())
def test_folding_changes_nothing(work: tuple[ProductFabric, list[Job]]) -> None:
    fabric, jobs = work
    folded, whole = simulate(fabric, jobs), simulate(fabric, jobs, fold=False)
    assert folded.classes <= whole.classes == whole.messages
    for name, times in whole.jobs.items():
        assert folded.jobs[name].start_s == pytest.approx(times.start_s, rel=1e-9, abs=1e-15)
        assert folded.jobs[name].end_s == pytest.approx(times.end_s, rel=1e-9, abs=1e-15)
    assert folded.busy_share == pytest.approx(whole.busy_share, rel=1e-9)


@given(workloads(), st.integers(1, 3), st.sampled_from([0.0, 1e-6]))
def test_skipping_periods_changes_nothing(
    work: tuple[ProductFabric, list[Job]], times: int, delay_s: float
) -> None:
    """A round that is written out as often as it repeats has no period to skip."""
    fabric, jobs = work
    repeated, written_out = [], []
    for job in jobs:
        rounds = [
            replace(each, repeat=each.repeat * 5 * times, delay_s=delay_s) for each in job.rounds
        ]
        once = tuple(replace(each, repeat=1) for each in rounds for _ in range(each.repeat))
        repeated.append(replace(job, rounds=tuple(rounds)))
        written_out.append(replace(job, rounds=once))
    quick, slow = simulate(fabric, repeated), simulate(fabric, written_out)
    for name, when in slow.jobs.items():
        assert quick.jobs[name].start_s == pytest.approx(when.start_s, rel=1e-9, abs=1e-15)
        assert quick.jobs[name].end_s == pytest.approx(when.end_s, rel=1e-9, abs=1e-15)


def test_a_period_that_another_job_disturbs_is_not_repeated() -> None:
    """Five rounds of 50 us, in the first of which two short messages take half the link."""
    fabric = ProductFabric((FabricDimension("switch", 2, 10e9, 0.0, 0, 1.0),))
    (ring,) = rounds_of("all_gather", "ring", 2, 1e6)
    short = replace(ring, size=ring.size / 1e3, repeat=5)
    jobs = [Job("short", (0, 1), (short,), 1e-5), Job("long", (0, 1), (replace(ring, repeat=5),))]
    assert simulate(fabric, jobs).jobs["long"].end_s == pytest.approx(5 * (1e6 + 1e3) / 2 / 10e9)


@given(workloads())
def test_the_same_twice_and_within_limits(work: tuple[ProductFabric, list[Job]]) -> None:
    fabric, jobs = work
    first = simulate(fabric, jobs)
    assert simulate(fabric, jobs) == first
    assert 0.0 <= first.busy_share <= 1.0
    for job in jobs:
        times = first.jobs[job.name]
        assert times.end_s >= times.start_s >= job.delay_s
        for other in job.after:
            assert times.start_s >= first.jobs[other].end_s
        assert times.duration_s >= _least(fabric, job) * (1.0 - 1e-9)


def _least(fabric: Fabric, job: Job) -> float:
    """What the busiest link of a job needs for its bytes alone."""
    carried = np.zeros(len(fabric.capacity))
    position = np.array(job.ranks)
    for each in job.rounds:
        routes = fabric.route(position[each.source], position[each.target])
        carried += np.bincount(
            routes.links, each.size[routes.ways] * each.repeat, len(fabric.capacity)
        )
    return float((carried / fabric.capacity).max())


@given(st.lists(st.floats(1.0, 1e9), min_size=1, max_size=8), st.integers(2, 3))
def test_a_shared_link_is_never_idle(sizes: list[float], pods: int) -> None:
    """Messages that all cross one link end when it has carried them all."""
    fabric = rail_cluster(
        8 * pods, 1, node_bytes_per_s=1e12, network_bytes_per_s=RATE, nodes_per_pod=8,
        oversubscription=64.0,
    )  # fmt: skip
    jobs = [
        Job(f"j{i}", (i, 8 + i), (Round.from_messages([0], [1], size),))
        for i, size in enumerate(sizes)
    ]
    expected = sum(sizes) / (RATE * 8 / 64.0)
    assert simulate(fabric, jobs).end_s == pytest.approx(expected, rel=1e-9)


def test_one_starts_as_another_ends() -> None:
    fabric = rail_cluster(
        6, 1, node_bytes_per_s=1e3, network_bytes_per_s=3.0, nodes_per_pod=3, oversubscription=9.0
    )
    sizes, delays = (1.0, 3.0, 1.0), (0.0, 0.0, 2.0)
    jobs = [
        Job(f"j{i}", (i, 3 + i), (Round.from_messages([0], [1], size),), delay)
        for i, (size, delay) in enumerate(zip(sizes, delays, strict=True))
    ]
    done = simulate(fabric, jobs)
    assert [done.jobs[f"j{i}"].end_s for i in range(3)] == pytest.approx([2.0, 5.0, 4.0])


@given(st.integers(2, 70), st.floats(1.0, 1e9))
def test_closed_form_of_a_ring(n: int, size: float) -> None:
    fabric = ProductFabric((FabricDimension("switch", n, RATE, LATENCY),))
    step = 2 * LATENCY + size / n / RATE
    for op, passes in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
        job = Job("a", tuple(range(n)), rounds_of(op, "ring", n, size))
        done = simulate(fabric, [job])
        assert done.end_s == pytest.approx(passes * (n - 1) * step, rel=1e-9)
        assert done.classes == 1


@given(st.integers(1, 6), st.floats(1.0, 1e9))
def test_closed_forms_of_trees_and_exchanges(power: int, size: float) -> None:
    n = 1 << power
    fabric = ProductFabric((FabricDimension("switch", n, RATE, LATENCY),))
    message = 2 * LATENCY + size / RATE
    share = (n - 1) / n * size / RATE
    expected: dict[tuple[str, Method], float] = {
        ("all_reduce", "tree"): 2 * power * message,
        ("broadcast", "tree"): power * message,
        ("all_reduce", "halving_doubling"): 2 * (power * 2 * LATENCY + share),
        ("all_gather", "halving_doubling"): power * 2 * LATENCY + share,
        ("all_to_all", "direct"): 2 * LATENCY + share,
        ("all_reduce", "direct"): 2 * (2 * LATENCY + share),
    }
    for (op, method), seconds in expected.items():
        job = Job("a", tuple(range(n)), rounds_of(op, method, n, size))
        assert simulate(fabric, [job]).end_s == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12])
def test_trees_of_any_number_of_ranks(n: int) -> None:
    fabric = ProductFabric((FabricDimension("switch", n, RATE, LATENCY),))
    job = Job("a", tuple(range(n)), rounds_of("broadcast", "tree", n, 1e6))
    depth = math.ceil(math.log2(n))
    assert simulate(fabric, [job]).end_s <= depth * (2 * LATENCY + 1e6 / RATE) * (1 + 1e-9)
    reached = {0}
    for each in job.rounds:
        assert set(each.source.tolist()) <= reached
        reached |= set(each.target.tolist())
    assert reached == set(range(n))


@given(st.floats(1e-3, 1e6))
def test_bytes_never_make_events(scale: float) -> None:
    cluster = rail_cluster(4, 4, node_bytes_per_s=450e9, network_bytes_per_s=RATE)
    ranks = tuple(range(16))
    jobs = [Job("a", ranks, rounds_of("all_reduce", "ring", 16, 1e6 * scale))]
    few = [Job("a", ranks, rounds_of("all_reduce", "ring", 16, 1e6))]
    assert simulate(cluster, jobs).events == simulate(cluster, few).events


@given(st.integers(2, 4), st.floats(1e3, 1e9), st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_equal_jobs_share_a_spine_equally(jobs: int, size: float, over: float) -> None:
    """Pods of as many nodes as jobs: each job sends one message out of its pod at a time."""
    fabric = rail_cluster(
        2 * jobs, 1, node_bytes_per_s=1e12, network_bytes_per_s=RATE, nodes_per_pod=jobs,
        oversubscription=over,
    )  # fmt: skip
    ring = rounds_of("all_reduce", "ring", 2, size)
    result = slowdowns(fabric, [Job(f"j{i}", (i, jobs + i), ring) for i in range(jobs)])
    alone = min(RATE, jobs * RATE / over)
    for slower in result.values():
        assert slower == pytest.approx(alone / (RATE / over), rel=1e-9)


def test_dimensions_share_what_both_cross() -> None:
    """Exchange inside nodes and a ring over nodes whose messages change rails share NVLink."""
    cluster = rail_cluster(2, 4, node_bytes_per_s=100e9, network_bytes_per_s=100e9)
    inside = Job("tp", (0, 1, 2, 3), rounds_of("all_to_all", "direct", 4, 1e9))
    across = Job("dp", (0, 5), (Round.from_messages([0], [1], 1e9),))
    result = slowdowns(cluster, [inside, across])
    assert result["tp"] > 1.05
    assert result["dp"] > 1.05
    apart = slowdowns(cluster, [inside, Job("dp", (0, 4), across.rounds)])
    assert apart["tp"] == pytest.approx(1.0)
    assert apart["dp"] == pytest.approx(1.0)


@given(fabrics(), st.data())
def test_ways_go_from_link_to_link(fabric: ProductFabric, data: st.DataObject) -> None:
    """Every pair has a way, no link of it twice; in a ring no longer than half way round."""
    pairs = [p for p in itertools.product(range(fabric.ranks), repeat=2) if p[0] != p[1]]
    source, target = (np.array(ends) for ends in zip(*pairs, strict=True))
    routes = fabric.route(source, target)
    assert np.all(np.diff(routes.offsets) >= 1)
    for way in range(len(pairs)):
        taken = routes.links[routes.offsets[way] : routes.offsets[way + 1]].tolist()
        assert len(set(taken)) == len(taken)
        assert all(fabric.link_name(link) for link in taken)
    names = [fabric.link_name(link) for link in range(len(fabric.capacity))]
    assert len({n for n in names if not n.startswith("leaf")}) <= len(names)
    assert data is not None


def test_a_torus_takes_the_shorter_way() -> None:
    fabric = torus((4, 4), RATE, LATENCY)
    hops = np.diff(fabric.route(np.array([0, 0, 0]), np.array([3, 10, 5])).offsets)
    assert hops.tolist() == [1, 4, 2]
