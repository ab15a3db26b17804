"""Timelines by hand: a host that launches ahead, results that it reads, streams of one device.

The laws over random launches are in ``tests/property/test_timeline_laws.py``.
"""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.timeline.timeline import (
    Launches,
    Timeline,
    device_waits,
    one_stream,
    simulated,
)

MICRO = 1e-6


def launches(*each: float, reads: tuple[int, ...] = (), trip: float = 0.0) -> Launches:
    """Launches of ``each`` seconds; the host reads the results at the places ``reads``."""
    read = np.isin(np.arange(len(each)), reads)
    return Launches(np.array(each), read, trip)


def test_a_late_host_leaves_the_device_idle() -> None:
    line = one_stream(np.array([1.0, 1.0, 1.0]), launches(2.0, 2.0, 0.5))
    assert line.issue_s.tolist() == [2.0, 4.0, 4.5]
    assert line.start_s.tolist() == [2.0, 4.0, 5.0]
    assert line.waited_s.tolist() == [2.0, 1.0, 0.0]
    assert line.total_s == 6.0


def idle_us(seconds_us: list[float], launch_us: float, reads: tuple[int, ...] = ()) -> float:
    """Idle time of kernels with equal launches, and a round trip of 26 us."""
    each = [launch_us * MICRO] * len(seconds_us)
    line = one_stream(np.array(seconds_us) * MICRO, launches(*each, reads=reads, trip=26.0 * MICRO))
    return line.idle_s / MICRO


def test_launches_hide_behind_long_kernels() -> None:
    assert idle_us([10.0] * 4, 4.0) == pytest.approx(4.0)
    assert idle_us([10.0] * 4, 0.0) == 0.0


def test_short_kernels_wait_for_their_launches() -> None:
    assert idle_us([2.0] * 300, 8.0) == pytest.approx(300 * 8.0 + 2.0 - 300 * 2.0)


def test_a_long_kernel_lets_the_host_run_ahead() -> None:
    assert idle_us([100.0, 2.0, 2.0], 8.0) == pytest.approx(8.0)


def test_a_result_that_the_host_reads_costs_a_round_trip_and_its_lead() -> None:
    # 8 before the first; then a trip of 26 in place of the launch, and 6 before the last
    assert idle_us([100.0, 2.0, 2.0], 8.0, reads=(0,)) == pytest.approx(8.0 + 26.0 + 6.0)
    # a launch that takes longer than the trip is waited for as a whole
    assert idle_us([100.0, 2.0], 30.0, reads=(0,)) == pytest.approx(30.0 + 30.0)
    # the host reads the last result after the pass
    assert idle_us([100.0, 2.0], 8.0, reads=(1,)) == pytest.approx(8.0)


def test_a_graph_without_launches_still_waits_where_results_are_read() -> None:
    assert idle_us([10.0] * 3, 0.0, reads=(0, 1)) == pytest.approx(2 * 26.0)
    assert not launches(0.0, 0.0, reads=(0,)).free
    assert launches(0.0, 0.0).free


def test_a_thread_that_computes_launches_nothing_ahead() -> None:
    in_line = Launches(np.full(3, 0.5), np.zeros(3, dtype=bool), in_line=True)
    durations = np.array([[2.0, 1.0], [4.0, 1.0], [1.0, 1.0]])
    assert device_waits(durations, in_line).tolist() == [[0.5, 0.5]] * 3
    line = one_stream(durations[:, 0], in_line)
    assert line.start_s.tolist() == line.issue_s.tolist() == [0.5, 3.0, 7.5]
    assert line.total_s == 8.5
    streams = simulated(durations[:, 0], in_line, [0, 1, 0], [()] * 3, np.ones((3, 3)))
    assert streams.end_s.tolist() == line.end_s.tolist()
    assert streams.stream.tolist() == [0, 0, 0]


def at_once(*rows: tuple[float, int, tuple[int, ...], float, float, float]) -> Timeline:
    """Kernels that are launched for nothing: duration, stream, waits, and three shares."""
    seconds, stream, waits, *shares = zip(*rows, strict=True)
    free = launches(*(0.0 for _ in rows))
    return simulated(np.array(seconds), free, list(stream), list(waits), np.array(shares))


def test_small_kernels_run_beside_each_other_and_large_ones_do_not() -> None:
    small = at_once((4.0, 0, (), 0.4, 0.1, 0.0), (3.0, 1, (), 0.5, 0.1, 0.0))
    assert small.total_s == pytest.approx(4.0)
    assert small.exposed_s.tolist() == pytest.approx([4.0, 0.0])
    for shares in ((1.0, 0.1, 0.0), (0.2, 1.0, 0.0), (0.2, 0.1, 1.0)):
        full = at_once((4.0, 0, (), *shares), (3.0, 1, (), *shares))
        assert full.total_s == pytest.approx(7.0)
        assert full.end_s.tolist() == pytest.approx([7.0, 6.0]), "both are slower by two"


def test_what_exceeds_a_resource_slows_both_alike() -> None:
    line = at_once((4.0, 0, (), 0.9, 0.0, 0.0), (2.0, 1, (), 0.6, 0.0, 0.0))
    assert line.end_s.tolist() == pytest.approx([2.0 * 1.5 + 2.0, 2.0 * 1.5])


def test_a_kernel_waits_for_its_inputs_on_the_other_stream() -> None:
    line = at_once(
        (2.0, 0, (), 0.5, 0.0, 0.0), (1.0, 1, (0,), 0.5, 0.0, 0.0), (1.0, 0, (1,), 0.5, 0.0, 0.0)
    )
    assert line.start_s.tolist() == pytest.approx([0.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="waits for itself or a later one"):
        at_once((1.0, 0, (0,), 1.0, 0.0, 0.0))


def test_the_host_launches_no_stream_while_it_reads_a_result() -> None:
    """The second kernel of another stream is launched when the result of the first is there."""
    each = launches(1.0, 1.0, reads=(0,), trip=3.0)
    line = simulated(np.array([5.0, 1.0]), each, [0, 1], [(), ()], np.zeros((3, 2)))
    assert line.issue_s.tolist() == [1.0, 1.0 + 5.0 + 3.0]
    assert line.start_s.tolist() == [1.0, 9.0]
    assert line.waited_s.tolist() == pytest.approx([1.0, 3.0])


def test_a_communicator_runs_one_transfer_at_a_time_in_the_order_it_was_given() -> None:
    """Compute 0 and 2; a sum (1) behind the first of them, a gather (3) ahead of it."""
    free, few = launches(0.0, 0.0, 0.0, 0.0), np.full((4, 4), 0.1)
    seconds, streams, waits = np.array([4.0, 3.0, 5.0, 6.0]), [0, 2, 0, 1], [(), (0,), (), ()]
    beside = simulated(seconds, free, streams, waits, few)
    assert beside.end_s.tolist() == pytest.approx([4.0, 7.0, 9.0, 6.0])
    turns = simulated(seconds, free, streams, waits, few, [(3, 1)])
    assert turns.end_s.tolist() == pytest.approx([4.0, 9.0, 9.0, 6.0])
    late = simulated(seconds, free, streams, waits, few, [(1, 3)])
    assert late.end_s.tolist() == pytest.approx([4.0, 7.0, 9.0, 13.0])
    with pytest.raises(ValueError, match="turns contradict streams"):
        simulated(seconds, free, [0, 0, 0, 0], [()] * 4, few, [(3, 1)])
