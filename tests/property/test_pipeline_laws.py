"""Pipeline schedules: the published closed forms and monotonicity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.distributed.pipeline.dependencies import WAITS, Waits, dependencies, producers
from silicast.distributed.pipeline.pipeline import Durations, pipeline_times
from silicast.distributed.schedules.controllable_memory import PERIOD, BuildingBlock
from silicast.distributed.schedules.schedule import schedule, schedules
from tests.property.schedule_battery import check_schedule

TIMES = st.floats(0.05, 2.0)
NAMES = sorted(schedules())
BLOCKS = ("v_half", "v_min")


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_keeps_its_promises(name: str) -> None:
    assert check_schedule(schedule(name)) > 0


@pytest.mark.parametrize("name", NAMES)
@given(
    pairs=st.integers(1, 4), groups=st.integers(2, 5), chunks=st.integers(1, 4),
    times=st.tuples(TIMES, TIMES, TIMES),
)  # fmt: skip
def test_the_bubble_equals_the_published_form(
    name: str, pairs: int, groups: int, chunks: int, times: tuple[float, float, float]
) -> None:
    rule, ranks = schedule(name), 2 * pairs
    weight, forward, part = sorted(times)
    if name == "dualpipe":
        part = forward  # the paper counts them as equal
    if name in BLOCKS:
        weight = part = forward  # slots are alike
    order = rule.order(ranks, ranks * groups, chunks if rule.chunks is None else None)
    result = pipeline_times(order, Durations.equal(order.placement, forward, part, weight))
    form = rule.bubble(ranks, order.placement.chunks, forward, part, weight)
    waits = float((result.span - result.busy).max())
    assert waits == pytest.approx(max(form, 0.0), rel=1e-9, abs=1e-9 * result.makespan)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("waits", WAITS[:2])
def test_every_level_of_the_graph_has_nodes_and_each_node_one(name: str, waits: Waits) -> None:
    rule = schedule(name)
    graph = dependencies(rule.order(4, 8, 2 if rule.chunks is None else None), waits)
    assert graph.depth[0] == 0
    assert (np.diff(graph.depth) > 0).all()
    assert graph.depth[-1] == len(graph.action)
    for edges in graph.edges:  # what a node waits for is on a level before its own
        level = np.searchsorted(graph.depth, np.arange(len(graph.action)), side="right")
        here = edges.source < len(graph.action)
        assert (level[edges.source[here]] < level[here]).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("waits", WAITS[:2])
@given(seed=st.integers(0, 2**32 - 1), ranks=st.sampled_from((2, 4)), groups=st.integers(2, 4))
def test_times_obey_the_schedule(
    name: str, waits: Waits, seed: int, ranks: int, groups: int
) -> None:
    rule, random = schedule(name), np.random.default_rng(seed)
    order = rule.order(ranks, ranks * groups, 2 if rule.chunks is None else None)
    parts = random.integers(0, 1000, (3, order.placement.stages))
    durations = Durations.of_stages(order.placement, *parts)
    transfer = random.integers(0, 200, (ranks, ranks))
    result = pipeline_times(order, durations, transfer, waits)
    taken = producers(order)
    has = taken >= 0
    sender, receiver = order.rank[taken[has]], order.rank[has]
    late = np.where(sender == receiver, 0, transfer[sender, receiver])
    assert (result.start[has] >= result.end[taken[has]] + late).all()
    assert result.makespan == result.critical.by_rank.sum() + result.critical.transfers
    chain = result.critical.actions.tolist()
    assert all(result.end[a] <= result.start[b] for a, b in pairwise(chain))
    kind, rank = int(random.integers(4)), int(random.integers(ranks))
    longer = durations.each.copy()
    longer[kind, rank] += int(random.integers(1000))
    assert pipeline_times(order, Durations(longer), transfer, waits).makespan >= result.makespan


def test_memory_peaks_are_those_of_the_papers() -> None:
    def peak(name: str, chunks: int | None = None) -> list[float]:
        return [float(each) for each in schedule(name).order(8, 32, chunks).peak()]

    assert peak("gpipe") == [32] * 8
    assert peak("1f1b") == [8 - rank for rank in range(8)]
    assert peak("interleaved", 3) == [2 * (7 - rank) + 2 * 8 + 1 for rank in range(8)]
    assert peak("zb_h1") == [8] * 8
    assert max(peak("zb_h2")) == 15
    assert peak("zbv") == [16] * 8  # of half a rank's layers each
    assert max(peak("dualpipe")) == 9


@pytest.mark.parametrize("ranks", range(1, 14))
def test_building_blocks_hold_what_their_length_says(ranks: int) -> None:
    def peak(name: str) -> set[float]:
        return set(schedule(name).order(ranks, 4 * ranks).peak().tolist())

    assert peak("v_half") == {2.0 * (ranks // 2 + 1)}  # the same on every rank
    assert max(peak("v_min")) == 2.0 * -(-(ranks + 2) // 3)
    assert max(peak("zbv")) == 2.0 * ranks  # 1F1B's, in stages half as large


@pytest.mark.parametrize("name", BLOCKS)
@given(ranks=st.integers(1, 40))
def test_no_rank_has_two_passes_of_blocks_in_a_slot(name: str, ranks: int) -> None:
    block = schedule(name)
    assert isinstance(block, BuildingBlock)
    for rank in range(ranks):
        slots = block.slots(rank, ranks)
        assert len({slot % PERIOD for slot in slots}) == len(slots)
        assert list(slots) == sorted(slots)


def test_joined_passes_hide_each_other() -> None:
    order = schedule("dualpipe").order(8, 32)
    plain = Durations.equal(order.placement, 1.0, 1.0, 0.5)
    joined = Durations(plain.each, np.full((8, 2, 2), 1.8))
    assert pipeline_times(order, joined).makespan < pipeline_times(order, plain).makespan
