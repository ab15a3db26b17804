"""Jobs on shared devices: policies by hand, and laws that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.workflow.jobs import expanded
from silicast.workflow.run import WorkflowRun, WorkflowTimes
from silicast.workflow.scheduling.cluster import ClusterStation
from silicast.workflow.scheduling.policies.pollux import _at_most, _moves
from silicast.workflow.scheduling.policies.sia import POWER
from silicast.workflow.scheduling.policy import (
    POLICIES,
    Allocation,
    ClusterJob,
    ClusterView,
    best_shares,
    policy_of,
)
from silicast.workflow.stages import WorkflowGraph, WorkflowStage
from silicast.workflow.stations.servers import ServerStation

SECOND = 1_000_000_000
GRAPH = WorkflowGraph((WorkflowStage("job"),))


def scheduled(
    policy: str,
    jobs: Sequence[tuple[float, float, Mapping[Allocation, float]]],
    devices: Sequence[int],
    round_s: float = 10.0,
    restart_s: float = 0.0,
) -> tuple[WorkflowTimes, ClusterStation]:
    """Jobs, each with when it comes (s), its work and its rates."""
    specs = {number: ClusterJob(work, rates) for number, (_, work, rates) in enumerate(jobs)}
    station = ClusterStation(specs, devices, policy_of(policy), round_s, restart_s)
    arrival_ns = np.array([round(come * SECOND) for come, _, _ in jobs], dtype=np.int64)
    run = WorkflowRun(expanded(GRAPH, len(jobs)), {0: station}, arrival_ns)
    return run.run(), station


def ends_s(times: WorkflowTimes) -> list[float]:
    ends: list[float] = (times.done_ns / SECOND).tolist()
    return ends


def on(count: int) -> dict[Allocation, float]:
    return {(0, count): 1.0}


def test_first_come_first_served_holds_back_what_would_fit() -> None:
    """4 devices: 3 for 10 s; the next needs 2 and waits, and the one of 1 device behind it too."""
    times, station = scheduled("fifo", [(0, 10, on(3)), (1, 5, on(2)), (2, 3, on(1))], [4])
    assert ends_s(times) == [10.0, 15.0, 13.0]
    assert station.busy_ns(0, 15 * SECOND) == (3 * 10 + 2 * 5 + 1 * 3) * SECOND


def test_backfill_starts_what_does_not_delay_the_first_that_waits() -> None:
    """The job of 1 device runs at once; one that would outlast the reservation of all 4 waits."""
    jobs = [(0, 10, on(3)), (1, 5, on(4)), (2, 3, on(1)), (3, 20, on(1))]
    times, _ = scheduled("backfill", jobs, [4])
    assert ends_s(times) == [10.0, 15.0, 5.0, 35.0]


def test_backfill_uses_what_the_reservation_leaves() -> None:
    """The first that waits takes 3 of 4 at 10 s: one device is free for however long."""
    jobs = [(0, 10, on(3)), (1, 5, on(3)), (2, 50, on(1)), (3, 1, on(1))]
    times, _ = scheduled("backfill", jobs, [4])
    assert ends_s(times) == [10.0, 15.0, 52.0, 16.0]


def test_gangs_take_turns() -> None:
    """Two jobs of all devices, 15 s each, slices of 10 s: 0-10 A, 10-20 B, 20-25 A, 25-30 B."""
    times, station = scheduled("gang", [(0, 15, on(2)), (0, 15, on(2))], [2])
    assert ends_s(times) == [25.0, 30.0]
    assert station.restarts == {0: 1, 1: 1}
    slower, _ = scheduled("gang", [(0, 15, on(2)), (0, 15, on(2))], [2], restart_s=1.0)
    assert ends_s(slower) == [26.0, 32.0]


def test_goodput_shares_equal_jobs_equally() -> None:
    """Speed-ups with diminishing returns: two jobs on 4 devices get 2 each, not 3 and 1."""
    rates = {(0, 1): 1.0, (0, 2): 1.8, (0, 3): 2.4, (0, 4): 2.8}
    for policy in ("pollux", "sia"):
        times, station = scheduled(policy, [(0, 18, rates), (0, 18, rates)], [4])
        assert ends_s(times) == [10.0, 10.0]
        assert {(job, count) for job, _, count, _, _ in station.spans} == {(0, 2), (1, 2)}


def test_sia_gives_quick_devices_to_who_gains_the_most() -> None:
    """Both run on either device; the second gains 4 times on the quick one, the first 1.5."""
    jobs = [(0, 10, {(0, 1): 1.5, (1, 1): 1.0}), (0, 10, {(0, 1): 4.0, (1, 1): 1.0})]
    times, station = scheduled("sia", jobs, [1, 1], round_s=1e6)
    _, first_group, *_ = next(span for span in station.spans if span[0] == 1)
    assert first_group == 0 or ends_s(times)[1] < 10.0
    shares = best_shares(
        {0: [(0, 1), (1, 1)], 1: [(0, 1), (1, 1)]},
        [1, 1],
        lambda job, given: -1.1 if given is None else -(jobs[job][2][given] ** POWER),
    )
    assert shares == {0: (1, 1), 1: (0, 1)}


@pytest.mark.parametrize("policy", ["backfill", "fifo", "gang", "pollux", "sia"])
@pytest.mark.parametrize("seed", range(6))
def test_work_is_conserved_and_devices_hold_one_job(policy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    devices = [int(n) for n in rng.integers(2, 9, size=2)]
    jobs = []
    for _ in range(25):
        counts = sorted({int(n) for n in rng.integers(1, min(devices) + 1, size=3)})
        groups = [0, 1] if rng.random() < 0.7 else [int(rng.integers(2))]
        speed = {0: 1.0, 1: float(rng.uniform(0.3, 1.0))}
        rates = {(g, n): speed[g] * n**0.8 for g in groups for n in counts}
        jobs.append((float(rng.uniform(0, 100)), float(rng.exponential(30.0)) + 1.0, rates))
    times, station = scheduled(policy, jobs, devices, round_s=7.0, restart_s=2.0)
    assert (times.done_ns > times.ready_ns).all()
    done = np.zeros(len(jobs))
    starts: dict[int, int] = {}
    for job, group, count, begun, end in sorted(station.spans, key=lambda span: span[3]):
        lost = 2 * SECOND if starts.get(job) else 0
        starts[job] = starts.get(job, 0) + 1
        done[job] += max(end - begun - lost, 0) / SECOND * jobs[job][2][group, count]
    assert done == pytest.approx([work for _, work, _ in jobs], rel=1e-6)
    for group, total in enumerate(devices):
        changes = [
            (moment, change)
            for _, its, count, begun, end in station.spans
            if its == group
            for moment, change in ((begun, count), (end, -count))
        ]
        held = 0
        for _, change in sorted(changes):
            held += change
            assert 0 <= held <= total


@pytest.mark.parametrize("servers", [1, 3])
def test_one_kind_of_jobs_and_of_devices_is_a_queue_of_servers(servers: int) -> None:
    """M/G/c: the same times as stations that serve in order, to the nanosecond."""
    rng = np.random.default_rng(5)
    seconds = rng.gamma(2.0, 1.0, size=400)
    come = np.cumsum(rng.exponential(2.2 / servers, size=400))
    jobs = [(float(t), float(s), on(1)) for t, s in zip(come, seconds, strict=True)]
    times, _ = scheduled("fifo", jobs, [servers])
    service = {job: round(s * SECOND) for job, s in enumerate(seconds.tolist())}
    plain = WorkflowRun(
        expanded(GRAPH, 400), {0: ServerStation(service, servers)}, times.arrival_ns
    ).run()
    assert abs(times.done_ns - plain.done_ns).max() <= 400  # roundings of 400 service times
    assert (times.begun_ns > times.ready_ns).mean() > 0.3


def test_unknown_policies_are_refused() -> None:
    assert list(POLICIES.all()) == ["backfill", "fifo", "gang", "pollux", "sia"]
    with pytest.raises(SilicastError, match="unknown policy 'lifo'") as refused:
        policy_of("lifo")
    assert "backfill" in refused.value.hint


@pytest.mark.parametrize(("round_s", "restart_s"), [(1e-6, 0.0), (1.0, 2.0)])
def test_rounds_that_never_end_are_refused(
    round_s: float, restart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far shorter than the jobs, or all lost to restarts."""
    monkeypatch.setattr("silicast.workflow.scheduling.cluster.MOST_ROUNDS", 500)
    jobs = [(0.0, 100.0, {(0, 1): 1.0})] * 2
    with pytest.raises(SilicastError, match="round_s"):
        scheduled("gang", jobs, [1], round_s, restart_s)


def test_pollux_weighs_a_move_by_what_restarts_have_cost() -> None:
    """A job of 100 s that moved once and would lose 10 s again: 20 of 110 s."""
    view = ClusterView(
        devices=(8,),
        jobs={0: ClusterJob(1.0, on(4))},
        running={0: (0, 4)},
        left={0: 0.5},
        age_s={0: 100.0},
        restarts={0: 1},
        restart_s=10.0,
    )
    assert _moves(view, 0, 2) == pytest.approx(20.0 / 110.0)
    assert _moves(view, 0, 4) == 0.0


def test_a_fair_share_below_the_smallest_count_has_its_part_of_the_rate() -> None:
    rates = {2: 10.0, 4: 18.0}
    assert [_at_most(rates, share) for share in (1, 2, 3, 8)] == [5.0, 10.0, 10.0, 18.0]
