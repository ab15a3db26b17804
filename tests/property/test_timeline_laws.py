"""Laws of timelines: closed forms against the recursion, and streams that share a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.step.concurrency import ResourceShares, pair_s, slowdown, together_s
from silicast.composition.timeline.timeline import (
    Launches,
    device_waits,
    one_stream,
    simulated,
    total_wait_s,
)
from silicast.core.numerics import F64
from tests.sampling import examples

RESOURCES = tuple(ResourceShares.__dataclass_fields__)

FEW = examples(60)
durations = st.one_of(st.floats(0.001, 10.0), st.just(0.0))
shares = st.floats(0.0, 1.0)


@dataclass(frozen=True)
class Drawn:
    """Kernels of several states, shape (m, n), and how the host launches them."""

    seconds: F64
    launches: Launches


@st.composite
def passes(draw: st.DrawFn, *, reads: bool = True) -> Drawn:
    count, states = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    launch = st.one_of(st.floats(0.0, 5.0), st.just(draw(st.floats(0.0, 5.0))))
    each = draw(st.lists(launch, min_size=count, max_size=count))
    read = draw(st.lists(st.booleans(), min_size=count, max_size=count)) if reads else [False]
    seconds = [draw(st.lists(durations, min_size=states, max_size=states)) for _ in range(count)]
    flags = np.broadcast_to(np.array(read), (count,))
    return Drawn(np.array(seconds), Launches(np.array(each), flags, draw(st.floats(0.001, 20.0))))


def recursion(seconds: F64, launches: Launches) -> tuple[F64, F64, F64]:
    """Issue, start and end of each kernel on one stream, one after the other."""
    items, issue, end = [], 0.0, 0.0
    for index, (duration, each) in enumerate(zip(seconds, launches.each_s, strict=True)):
        if index and launches.reads[index - 1]:
            issue = end + max(launches.round_trip_s, each)
        else:
            issue = issue + each
        start = max(end, issue)
        end = start + duration
        items.append((issue, start, end))
    issues, starts, ends = np.array(items).T
    return issues, starts, ends


@given(passes())
@FEW
def test_waits_of_many_states_are_the_recursion_of_each(drawn: Drawn) -> None:
    waits = device_waits(drawn.seconds, drawn.launches)
    for column in range(drawn.seconds.shape[1]):
        _, starts, ends = recursion(drawn.seconds[:, column], drawn.launches)
        expected = starts - np.concatenate(([0.0], ends))[:-1]
        np.testing.assert_allclose(waits[:, column], expected, rtol=1e-9, atol=1e-12 * ends[-1])


@given(passes())
@FEW
def test_a_state_waits_the_same_bits_alone_and_in_a_batch(drawn: Drawn) -> None:
    waits = device_waits(drawn.seconds, drawn.launches)
    for column in range(drawn.seconds.shape[1]):
        alone = device_waits(drawn.seconds[:, [column]], drawn.launches)
        assert alone[:, 0].tolist() == waits[:, column].tolist()


@given(passes(), st.booleans())
@FEW
def test_all_waits_of_a_state_are_the_sum_of_each(drawn: Drawn, in_line: bool) -> None:
    launches = replace(drawn.launches, in_line=in_line)
    result = total_wait_s(drawn.seconds, launches)
    waits = device_waits(drawn.seconds, launches).sum(axis=0)
    whole = drawn.seconds.sum() + launches.each_s.sum()
    np.testing.assert_allclose(result, waits, rtol=1e-9, atol=1e-12 * whole)
    for column, whole_s in enumerate(result.tolist()):
        alone = total_wait_s(drawn.seconds[:, [column]], launches)
        assert alone.tolist() == [whole_s], "the same bits alone and in a batch"


@given(passes())
@FEW
def test_one_stream_is_the_recursion(drawn: Drawn) -> None:
    line = one_stream(drawn.seconds[:, 0], drawn.launches)
    issues, starts, ends = recursion(drawn.seconds[:, 0], drawn.launches)
    atol = 1e-12 * max(float(ends[-1]), float(issues[-1]))
    np.testing.assert_allclose(line.issue_s, issues, rtol=1e-9, atol=atol)
    np.testing.assert_allclose(line.start_s, starts, rtol=1e-9, atol=atol)
    np.testing.assert_allclose(line.end_s, ends, rtol=1e-9, atol=atol)
    assert (line.start_s[1:] >= line.end_s[:-1]).all(), "kernels of a stream do not overlap"
    assert line.exposed_s.sum() + line.waited_s.sum() == pytest.approx(line.total_s, rel=1e-12)
    assert line.idle_s == pytest.approx(line.waited_s.sum(), rel=1e-9, abs=1e-9)


@given(passes())
@FEW
def test_a_pass_is_between_its_parts_and_their_sum(drawn: Drawn) -> None:
    line = one_stream(drawn.seconds[:, 0], drawn.launches)
    device, host = drawn.seconds[:, 0].sum(), drawn.launches.each_s.sum()
    trips = drawn.launches.reads[:-1].sum() * drawn.launches.round_trip_s
    assert line.total_s >= max(device, host) * (1.0 - 1e-12)
    assert line.total_s <= (device + host + trips) * (1.0 + 1e-12)


@given(passes(), st.integers(0, 40))
@FEW
def test_reading_a_result_never_saves_time(drawn: Drawn, place: int) -> None:
    launches = drawn.launches
    reads = launches.reads.copy()
    reads[place % len(reads)] = False
    fewer = Launches(launches.each_s, reads, launches.round_trip_s)
    more_s, fewer_s = (one_stream(drawn.seconds[:, 0], each).total_s for each in (launches, fewer))
    assert more_s >= fewer_s * (1.0 - 1e-12)


@given(passes())
@FEW
def test_a_thread_that_computes_adds_what_it_does_between_operations(drawn: Drawn) -> None:
    launches = Launches(drawn.launches.each_s, drawn.launches.reads, in_line=True)
    line = one_stream(drawn.seconds[:, 0], launches)
    whole = drawn.seconds[:, 0].sum() + launches.each_s.sum()
    assert line.total_s == pytest.approx(whole, rel=1e-12)
    ahead = one_stream(drawn.seconds[:, 0], Launches(launches.each_s, launches.reads))
    assert ahead.total_s <= line.total_s * (1.0 + 1e-12)


@given(passes(), st.data())
@FEW
def test_a_simulation_of_one_stream_is_the_closed_form(drawn: Drawn, data: st.DataObject) -> None:
    count = len(drawn.seconds)
    taken = np.array([[data.draw(shares) for _ in range(count)] for _ in RESOURCES])
    waits = [
        data.draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else () for i in range(count)
    ]
    result = simulated(
        drawn.seconds[:, 0], drawn.launches, [0] * count, [tuple(each) for each in waits], taken
    )
    line = one_stream(drawn.seconds[:, 0], drawn.launches)
    atol = 1e-9 * max(line.total_s, float(line.issue_s[-1]))
    for name in ("issue_s", "start_s", "end_s"):
        np.testing.assert_allclose(getattr(result, name), getattr(line, name), atol=atol)
    assert result.total_s == pytest.approx(line.total_s, rel=1e-9)


@dataclass(frozen=True)
class Queue:
    """Kernels of one stream over several states: shapes (m, n) and (resources, m, n)."""

    seconds: F64
    shares: F64


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, Queue]:
    states = draw(st.integers(1, 3))
    items = []
    for _ in range(2):
        count = draw(st.integers(1, 6))
        each = [draw(st.lists(durations, min_size=states, max_size=states)) for _ in range(count)]
        table = [
            [draw(st.lists(shares, min_size=states, max_size=states)) for _ in range(count)]
            for _ in RESOURCES
        ]
        items.append(Queue(np.array(each), np.array(table)))
    return items[0], items[1]


def beside(main: Queue, side: Queue) -> F64:
    return together_s(main.seconds, side.seconds, main.shares, side.shares)


@given(queues())
@FEW
def test_two_queues_are_a_simulation_of_two_streams(pair: tuple[Queue, Queue]) -> None:
    main, side = pair
    result = beside(main, side)
    stream = [0] * len(main.seconds) + [1] * len(side.seconds)
    free = Launches(np.zeros(len(stream)), np.zeros(len(stream), dtype=bool))
    for state in range(main.seconds.shape[1]):
        line = simulated(
            np.concatenate((main.seconds[:, state], side.seconds[:, state])),
            free,
            stream,
            [()] * len(stream),
            np.concatenate((main.shares[:, :, state], side.shares[:, :, state]), axis=1),
        )
        assert result[state] == pytest.approx(line.total_s, rel=1e-9, abs=1e-12)


@given(queues())
@FEW
def test_two_queues_take_between_the_longer_one_and_both(pair: tuple[Queue, Queue]) -> None:
    main, side = pair
    result = beside(main, side)
    alone = [queue.seconds.sum(axis=0) for queue in pair]
    assert (result >= np.maximum(*alone) * (1.0 - 1e-9)).all()
    assert (result <= (alone[0] + alone[1]) * (1.0 + 1e-9)).all(), "no share exceeds the device"
    # nor is a resource ever used faster than the device has it
    used = sum((queue.shares * queue.seconds).sum(axis=1) for queue in pair)
    assert (result >= used * (1.0 - 1e-9)).all()
    np.testing.assert_allclose(beside(side, main), result, rtol=1e-9)


@given(queues())
@FEW
def test_a_pair_of_kernels_is_two_queues_of_one(pair: tuple[Queue, Queue]) -> None:
    one, other = (Queue(queue.seconds[:1], queue.shares[:, :1]) for queue in pair)
    result = beside(one, other)
    for state in range(len(result)):
        slower = slowdown((one.shares + other.shares)[:, 0, state].tolist())
        one_s, other_s = (float(queue.seconds[0, state]) for queue in (one, other))
        assert pair_s(one_s, other_s, slower) == pytest.approx(result[state], rel=1e-12)


@given(queues())
@FEW
def test_queues_share_alike_alone_and_in_a_batch(pair: tuple[Queue, Queue]) -> None:
    result = beside(*pair)
    for state in range(len(result)):
        one = [Queue(q.seconds[:, [state]], q.shares[:, :, [state]]) for q in pair]
        assert beside(*one)[0] == result[state]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Drawn, list[int], list[tuple[int, ...]], F64]:
    """Kernels on up to three streams that wait for some earlier ones."""
    drawn = draw(passes())
    count = len(drawn.seconds)
    stream = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    waits = [
        tuple(draw(st.sets(st.integers(0, index - 1), max_size=2))) if index else ()
        for index in range(count)
    ]
    taken = [draw(st.lists(shares, min_size=count, max_size=count)) for _ in RESOURCES]
    return drawn, stream, waits, np.array(taken)


@given(streams())
@FEW
def test_streams_are_between_perfect_and_no_overlap(
    case: tuple[Drawn, list[int], list[tuple[int, ...]], F64],
) -> None:
    drawn, stream, waits, taken = case
    seconds, launches = drawn.seconds[:, 0], drawn.launches
    line = simulated(seconds, launches, stream, waits, taken)
    slack = 1e-9 * max(line.total_s, 1.0)
    assert (line.end_s - line.start_s >= seconds - slack).all()
    assert (line.start_s >= line.issue_s - slack).all()
    by_stream = [seconds[np.array(stream) == number].sum() for number in range(3)]
    assert line.total_s >= max(by_stream) - slack
    used = (taken * seconds).sum(axis=1)
    assert line.total_s >= used.max() - slack
    alone = one_stream(seconds, launches).total_s
    assert line.total_s <= alone + slack, "a second stream never costs time"
    assert line.exposed_s.sum() + line.waited_s.sum() == pytest.approx(line.total_s, rel=1e-9)
    for index, others in enumerate(waits):
        assert all(line.start_s[index] >= line.end_s[other] - slack for other in others)
        if index and launches.reads[index - 1]:
            level = line.end_s[index - 1] + max(launches.round_trip_s, launches.each_s[index])
            assert line.issue_s[index] >= level - slack
