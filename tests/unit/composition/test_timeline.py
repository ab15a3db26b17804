"""Timelines: closed form against the recursion, streams that share a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.timeline import Timeline, one_stream, several_streams

times = st.floats(0.001, 10.0)
kernels = st.lists(st.tuples(times, times), min_size=1, max_size=40)


def recursion(durations: np.ndarray, issues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts, ends, end = [], [], 0.0
    for duration, issue in zip(durations, issues, strict=True):
        start = max(end, issue)
        end = start + duration
        starts.append(start)
        ends.append(end)
    return np.array(starts), np.array(ends)


@given(kernels)
def test_the_closed_form_is_the_recursion(drawn: list[tuple[float, float]]) -> None:
    durations = np.array([d for d, _ in drawn])
    issues = np.cumsum([gap for _, gap in drawn])
    line = one_stream(durations, issues)
    starts, ends = recursion(durations, issues)
    np.testing.assert_allclose(line.start_s, starts, rtol=1e-12)
    np.testing.assert_allclose(line.end_s, ends, rtol=1e-12)
    assert (line.start_s[1:] >= line.end_s[:-1]).all()


@given(kernels)
def test_exposed_and_waited_times_add_up(drawn: list[tuple[float, float]]) -> None:
    durations = np.array([d for d, _ in drawn])
    line = one_stream(durations, np.cumsum([gap for _, gap in drawn]))
    assert line.exposed_s.sum() + line.waited_s.sum() == pytest.approx(line.total_s, rel=1e-12)
    assert line.idle_s == pytest.approx(line.waited_s.sum(), rel=1e-9, abs=1e-9)


def test_a_late_host_leaves_the_device_idle() -> None:
    line = one_stream(np.array([1.0, 1.0, 1.0]), np.array([2.0, 4.0, 4.5]))
    assert line.start_s.tolist() == [2.0, 4.0, 5.0]
    assert line.waited_s.tolist() == [2.0, 1.0, 0.0]
    assert line.total_s == 6.0


def streams(*rows: tuple[float, float, int, tuple[int, ...], float, float]) -> Timeline:
    return several_streams(*(list(column) for column in zip(*rows, strict=True)))


@given(kernels)
def test_one_of_several_streams_is_one_stream(drawn: list[tuple[float, float]]) -> None:
    durations = np.array([d for d, _ in drawn])
    issues = np.cumsum([gap for _, gap in drawn])
    line = streams(*((d, i, 0, (), 1.0, 0.5) for d, i in zip(durations, issues, strict=True)))
    np.testing.assert_allclose(line.end_s, one_stream(durations, issues).end_s, rtol=1e-9)


def test_small_kernels_run_beside_each_other_and_large_ones_do_not() -> None:
    small = streams((4.0, 0.0, 0, (), 0.4, 0.1), (3.0, 0.0, 1, (), 0.5, 0.1))
    assert small.total_s == pytest.approx(4.0)
    large = streams((4.0, 0.0, 0, (), 1.0, 0.1), (3.0, 0.0, 1, (), 1.0, 0.1))
    assert large.total_s == pytest.approx(7.0)
    memory = streams((4.0, 0.0, 0, (), 0.2, 1.0), (3.0, 0.0, 1, (), 0.2, 1.0))
    assert memory.total_s == pytest.approx(7.0)


def test_a_kernel_waits_for_its_inputs_on_the_other_stream() -> None:
    line = streams(
        (2.0, 0.0, 0, (), 0.5, 0.0), (1.0, 0.0, 1, (0,), 0.5, 0.0), (1.0, 0.0, 0, (1,), 0.5, 0.0)
    )
    assert line.start_s.tolist() == pytest.approx([0.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="waits for itself or a later one"):
        streams((1.0, 0.0, 0, (0,), 1.0, 0.0))


@given(
    st.lists(
        st.tuples(times, times, st.integers(0, 2), st.floats(0.05, 1.0), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=25,
    ),
    st.randoms(use_true_random=False),
)
def test_streams_are_between_perfect_and_no_overlap(drawn: list, chance: object) -> None:
    issues = np.cumsum([gap for _, gap, *_ in drawn]).tolist()
    rows = []
    for index, (duration, _, stream, cores, dram) in enumerate(drawn):
        waits = tuple(i for i in range(index) if chance.random() < 0.1)  # type: ignore[attr-defined]
        rows.append((duration, issues[index], stream, waits, cores, dram))
    line = streams(*rows)
    durations = np.array([row[0] for row in rows])
    assert (line.end_s - line.start_s >= durations * (1 - 1e-9)).all()
    assert (line.start_s >= np.array(issues) - 1e-12).all()
    by_stream = [sum(r[0] for r in rows if r[2] == s) for s in range(3)]
    assert line.total_s >= max(by_stream) * (1 - 1e-9)
    assert line.total_s <= issues[-1] + durations.sum() * 3
    assert line.exposed_s.sum() + line.waited_s.sum() == pytest.approx(line.total_s, rel=1e-9)
    for index, row in enumerate(rows):
        assert all(line.start_s[index] >= line.end_s[i] - 1e-9 for i in row[3])
