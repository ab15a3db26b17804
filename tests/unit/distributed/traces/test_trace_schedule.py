"""Activities that wait for each other and share resources."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from silicast.distributed.traces.trace_replay import NEVER, Activity, least_seconds, scheduled


@st.composite
def _programs(draw: st.DrawFn) -> tuple[list[Activity], list[float]]:
    count = draw(st.integers(1, 12))
    activities = [
        Activity(
            tuple(draw(st.sets(st.integers(0, index - 1), max_size=3))) if index else (),
            draw(st.sampled_from((None, "device", "link"))),
        )
        for index in range(count)
    ]
    return activities, draw(st.lists(st.floats(0, 10), min_size=count, max_size=count))


@given(_programs())
def test_dependencies_and_resources_hold(program: tuple[list[Activity], list[float]]) -> None:
    activities, seconds = program
    start, end = scheduled(activities, seconds)
    for index, each in enumerate(activities):
        assert end[index] == start[index] + seconds[index]
        assert all(start[index] >= end[other] for other in each.waits)
    for name in ("device", "link"):
        spans = sorted(
            (start[i], end[i]) for i, each in enumerate(activities) if each.resource == name
        )
        assert all(late[0] >= early[1] for early, late in pairwise(spans))
    assert least_seconds(activities, seconds) <= max(end) + 1e-9
    assert max(end) <= sum(seconds) + 1e-9


def test_a_circle_never_starts() -> None:
    _, end = scheduled([Activity((1,)), Activity((0,)), Activity(())], [1.0, 1.0, 1.0])
    assert end[:2] == [NEVER, NEVER]


def test_what_ends_together_frees_before_others_choose() -> None:
    """Of two that become ready at one moment the earlier one runs first."""
    activities = [
        Activity((), "a"), Activity((), "b"), Activity((1,), "c"), Activity((0,), "c"),
    ]  # fmt: skip
    start, _ = scheduled(activities, [1.0, 1.0, 1.0, 1.0])
    assert start[2:] == [1.0, 2.0]
