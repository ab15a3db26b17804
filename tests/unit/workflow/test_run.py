"""Queues against closed forms, the critical path, and items that are conserved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.workflow.jobs import expanded
from silicast.workflow.run import WorkflowRun, WorkflowTimes, critical_path_ns, load_of
from silicast.workflow.stages import StageLoop, WorkflowGraph, WorkflowStage
from silicast.workflow.stations.servers import ServerStation
from tests.sampling import examples

SECOND = 1_000_000_000


def run_of(
    graph: WorkflowGraph, items: int, rate: float, means_s: list[float], *, servers: int = 1
) -> WorkflowTimes:
    """Poisson arrivals, exponential times of each stage on servers of its own."""
    jobs, random = expanded(graph, items, 1), np.random.default_rng(5)
    stations = {}
    for stage, mean in enumerate(means_s):
        numbers = jobs.of_stages([stage])
        times = random.exponential(mean * SECOND, len(numbers)).astype(np.int64)
        service = dict(zip(numbers.tolist(), times.tolist(), strict=True))
        stations[stage] = ServerStation(service, servers)
    arrival = np.cumsum(random.exponential(SECOND / rate, items)).astype(np.int64)
    return WorkflowRun(jobs, stations, arrival).run()


def mean_s(times: WorkflowTimes) -> float:
    return float((times.end_ns - times.start_ns).mean()) / SECOND


def test_two_queues_in_a_row_are_jacksons() -> None:
    """Each is M/M/1: 1 / (mu - lambda)."""
    graph = WorkflowGraph((WorkflowStage("a"), WorkflowStage("b", ("a",))))
    times = run_of(graph, 30_000, 0.5, [1.0, 0.8])
    assert mean_s(times) == pytest.approx(1 / (1 - 0.5) + 1 / (1 / 0.8 - 0.5), rel=0.03)


def test_a_queue_that_feeds_back_is_jacksons() -> None:
    """Turns follow each other with chance 0.4, so that lambda / 0.6 comes to the queue; Little."""
    graph = WorkflowGraph((WorkflowStage("a", loop=StageLoop("a", 0.4)),))
    times = run_of(graph, 30_000, 0.3, [1.0])
    load = 0.3 / 0.6
    assert mean_s(times) == pytest.approx(load / (1 - load) / 0.3, rel=0.03)


def test_a_fork_and_join_of_two_is_nelsons() -> None:
    """Two equal exponential servers: (12 - rho) / 8 times an M/M/1 queue (Nelson, Tantawi 1988)."""
    graph = WorkflowGraph(
        (WorkflowStage("split"), WorkflowStage("a", ("split",)), WorkflowStage("b", ("split",)))
    )
    times = run_of(graph, 25_000, 0.5, [0.0, 1.0, 1.0])
    assert mean_s(times) == pytest.approx((12 - 0.5) / 8 / (1 - 0.5), rel=0.03)


def test_without_contention_an_item_takes_its_longest_path() -> None:
    """a 3 s, then b 5 s beside c 2 s twice; d waits for both: 3 + 5 + 1, exactly."""
    graph = WorkflowGraph(
        (
            WorkflowStage("a"),
            WorkflowStage("b", ("a",)),
            WorkflowStage("c", ("a",), repeat=2),
            WorkflowStage("d", ("b", "c")),
        )
    )
    jobs = expanded(graph, 3)
    seconds = {0: 3, 1: 5, 2: 2, 3: 1}
    stations = {
        stage: ServerStation(
            dict.fromkeys(jobs.of_stages([stage]).tolist(), seconds[stage] * SECOND)
        )
        for stage in seconds
    }
    times = WorkflowRun(jobs, stations, np.array([0, 1, 2], dtype=np.int64)).run()
    assert (times.end_ns - times.start_ns).tolist() == [9 * SECOND] * 3
    path = critical_path_ns(times, 4)
    assert path.tolist() == [[0, 3 * SECOND], [0, 5 * SECOND], [0, 0], [0, SECOND]]


def test_an_overhead_delays_what_follows_and_leaves_the_station_free() -> None:
    """Half of the time since a job was ready: 3 s become 4.5, and 6 s of the one behind it 9."""
    stages = (WorkflowStage("a", overhead_share=0.5), WorkflowStage("b", ("a",)))
    graph = WorkflowGraph(stages)
    jobs = expanded(graph, 2)
    stations = {
        stage: ServerStation(dict.fromkeys(jobs.of_stages([stage]).tolist(), seconds * SECOND), 1)
        for stage, seconds in ((0, 3), (1, 2))
    }
    arrival = np.zeros(2, dtype=np.int64)
    times = WorkflowRun(jobs, stations, arrival, overheads=graph.overheads).run()
    assert (times.end_ns / SECOND).tolist() == [6.5, 11.0]
    assert critical_path_ns(times, 2).sum() == (6.5 + 11.0) / 2 * SECOND


def test_clients_that_wait_start_the_next_item_when_one_has_ended() -> None:
    graph = WorkflowGraph((WorkflowStage("a"),))
    jobs = expanded(graph, 5)
    station = ServerStation(dict.fromkeys(range(5), SECOND))
    times = WorkflowRun(jobs, {0: station}, np.zeros(5, dtype=np.int64), concurrency=2).run()
    assert times.start_ns.tolist() == [0, 0, SECOND, SECOND, 2 * SECOND]


@st.composite
def graphs(draw: st.DrawFn) -> WorkflowGraph:
    """Up to five stages, each after some of those before it, with chance, copies and a loop."""
    stages: list[WorkflowStage] = []
    for number in range(draw(st.integers(1, 5))):
        names = [stage.name for stage in stages]
        after = draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else []
        stages.append(
            WorkflowStage(
                f"s{number}",
                tuple(after),
                draw(st.integers(1, 3)),
                draw(st.integers(1, 2)),
                draw(st.sampled_from([0.0, 0.5, 1.0])),
                "",
                draw(st.sampled_from([None, StageLoop(f"s{number}", 0.5, 4)])),
            )
        )
    return WorkflowGraph(tuple(stages))


@given(graphs(), st.integers(1, 6), st.integers(0, 3), st.integers(0, 2))
@examples(30)
def test_every_job_runs_once_and_after_what_it_waits_for(
    graph: WorkflowGraph, items: int, concurrency: int, servers: int
) -> None:
    jobs = expanded(graph, items, 3)
    stations = {
        stage: ServerStation(
            {job: 10 + job % 7 for job in jobs.of_stages([stage]).tolist()}, servers
        )
        for stage in range(len(graph.stages))
    }
    times = WorkflowRun(jobs, stations, np.arange(items, dtype=np.int64) * 5, concurrency).run()
    assert (times.done_ns >= times.begun_ns).all()
    assert (times.begun_ns >= times.ready_ns).all()
    for job, followers in enumerate(jobs.followers):
        assert all(times.ready_ns[each] >= times.done_ns[job] for each in followers)
    assert (times.end_ns >= times.start_ns).all()
    path = critical_path_ns(times, len(graph.stages)).sum()
    assert path == pytest.approx(float((times.end_ns - times.start_ns).mean()))


def test_a_burst_at_the_end_of_a_window_is_no_load() -> None:
    """200 jobs come in the last hundredth of a second and end after it: 200 come and none ends,
    which is no queue that grows; the same over all of the time is one.
    """
    graph = WorkflowGraph((WorkflowStage("a"),))
    jobs = expanded(graph, 200, 0)
    for first, growing in ((0.99, False), (0.0, True)):
        ready = np.linspace(first, 1.0, 200) * 1e9
        done = ready + np.linspace(0.5, 50.0, 200) * 1e9
        ready_ns, done_ns = ready.astype(np.int64), done.astype(np.int64)
        last = np.arange(200, dtype=np.int64)
        whole = ready_ns, ready_ns, done_ns
        times = WorkflowTimes(jobs, *whole, *whole, last, last)
        load = load_of(times, 0, 0, 1_000_000_000)
        assert (load is not None and load.grows) == growing


def test_servers_are_busy_within_a_span_alone() -> None:
    station = ServerStation(dict.fromkeys(range(2), 10 * SECOND), 1)
    station.ended = lambda job, now_ns: None
    for job in range(2):
        station.submit(job, 0)
    station.advance()
    assert station.busy_ns(5 * SECOND, 12 * SECOND) == 7 * SECOND
    assert station.busy_ns(25 * SECOND, 30 * SECOND) == 0
