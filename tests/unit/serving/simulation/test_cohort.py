"""What a cohort counts at once is what its sequences are, each looked at by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.cohort import Cohort
from silicast.serving.simulation.group import SimulatedRequests
from tests.sampling import seeds

COUNT = 12
BENT = KvLayout(8, 8, np.array([0, 64, 1 << 24]), np.array([0, 8_000, 9_000]))
"""A window of 64 tokens: later ones take hardly more."""


@dataclass
class Alone:
    """One sequence."""

    cached: int
    made: int
    goal: int
    held: int
    token_ns: int


def cohort_of(alone: list[Alone], layout: KvLayout) -> tuple[SimulatedRequests, Cohort]:
    columns = {name: np.array([getattr(each, name) for each in alone]) for name in vars(alone[0])}
    sequences = SimulatedRequests(columns["cached"], columns["goal"])
    sequences.cached_then[:] = columns["cached"]
    sequences.made_then[:] = columns["made"]
    sequences.held_then[:] = columns["held"]
    return sequences, Cohort(sequences, layout, columns["goal"], columns["token_ns"])


def lacking(alone: list[Alone], members: list[int], layout: KvLayout, steps: int) -> list[int]:
    return [
        max(layout.of_one(alone[each].cached + steps) - alone[each].held, 0) for each in members
    ]


@pytest.mark.parametrize("layout", [KvLayout.plain(1), KvLayout.plain(16), BENT])
@pytest.mark.parametrize("seed", seeds(40))
def test_a_cohort_is_its_sequences(seed: int, layout: KvLayout) -> None:
    draw = np.random.default_rng(seed)
    alone = []
    for _ in range(COUNT):
        cached, made = int(draw.integers(0, 90)), int(draw.integers(0, 5))
        reserved = int(draw.integers(0, 200)) if draw.random() < 0.4 else 0
        goal, held = made + int(draw.integers(1, 60)), layout.of_one(cached + reserved)
        alone.append(Alone(cached, made, goal, held, int(draw.integers(0, 3))))
    sequences, cohort = cohort_of(alone, layout)
    waiting = list(range(COUNT))
    members: list[int] = []
    for now_ns in range(10, 200, 10):
        if members and draw.random() < 0.1:  # one is preempted
            cohort.leave(members.pop(int(draw.integers(len(members)))))
        while waiting and draw.random() < 0.5:
            members.append(waiting.pop(0))
        if not members:
            continue
        cohort.become(members)
        lengths, tokens = cohort.lengths(), [alone[each].cached for each in members]
        assert (lengths.count, lengths.total, lengths.longest) == (
            len(tokens),
            sum(tokens),
            max(tokens),
        )
        assert np.asarray(lengths + 3).tolist() == [each + 3 for each in tokens]
        left = min(alone[each].goal - alone[each].made for each in members)
        assert cohort.left() == left
        for each in members:
            expected = alone[each].token_ns
            assert cohort.late.get(each, cohort.last_ns) == expected
        for steps in (1, 5, 40):
            assert cohort.lacking(steps) == sum(lacking(alone, members, layout, steps))
        steps = min(left, int(draw.integers(1, 30)))
        more = lacking(alone, members, layout, steps)
        assert cohort.take(steps, sum(more) - 1) == -1 or not sum(more)
        assert cohort.take(steps, sum(more)) in (0, sum(more))
        ended = cohort.run(steps, now_ns)
        for each, blocks in zip(members, more, strict=True):
            one = alone[each]
            alone[each] = Alone(
                one.cached + steps, one.made + steps, one.goal, one.held + blocks, now_ns
            )
        assert ended == [each for each in members if alone[each].made == alone[each].goal]
        members = [each for each in members if each not in ended]
        if draw.random() < 0.5:  # whether somebody reads the columns changes nothing
            assert sequences.cached.tolist() == [each.cached for each in alone]
            assert sequences.held.tolist() == [each.held for each in alone]
    assert sequences.made.tolist() == [each.made for each in alone]
    assert sequences.cached.tolist() == [each.cached for each in alone]
    assert sequences.held.tolist() == [each.held for each in alone]
