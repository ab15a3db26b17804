"""V-Half and V-Min: less memory than 1F1B, from one building block repeated for each micro-batch.

A rank holds a stage on the way down the ranks and one on the way up. A building block says in which
slot each rank runs the four passes of a micro-batch, if all passes take one slot; that of the next
micro-batch begins six slots later, as a rank has four passes and two weight gradients of each. A
weight gradient takes the first free slot. The shorter a block, the fewer micro-batches are held.
What is left of the slots is their order: each action runs as soon as it can.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import ClassVar, final

from silicast.distributed.schedules.order import FORWARD, INPUT, WEIGHT, Action, Placement
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register

PERIOD = 6
"""Slots between two micro-batches."""
PASSES = ((FORWARD, 0), (FORWARD, 1), (INPUT, 1), (INPUT, 0))
"""Kind and chunk, in the order in which a micro-batch comes by."""


class BuildingBlock(PipelineSchedule):
    """A block repeated.

    Class attributes:
        down, up: slots from a rank to the next one, on the way down the ranks and up.
    """

    chunks = 2
    splits_backward = True
    source = "Qi et al. 2024, arXiv 2405.15362"
    down: ClassVar[int]
    up: ClassVar[int] = 1

    @abstractmethod
    def rests(self, ranks: int) -> tuple[int, int]:
        """Slots between forward and backward on the first rank, and where backward turns on the
        last one, so that no rank has two passes in a slot.
        """

    @abstractmethod
    def idle_slots(self, ranks: int) -> int:
        """Of each rank, where all passes take one slot."""

    def placement(self, ranks: int, chunks: int) -> Placement:
        """The first rank holds the first and the last stage."""
        return Placement.v_shaped(ranks)

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """Exact where all three are equal; else that of their mean, and a rank also waits once a
        micro-batch.
        """
        return self.idle_slots(ranks) * (forward + input_gradient + weight_gradient) / 3

    def slots(self, rank: int, ranks: int) -> tuple[int, int, int, int]:
        """Of the first micro-batch's passes on a rank."""
        turn, back = self.rests(ranks)
        above, last = ranks - 1 - rank, ranks - 1
        second = self.down * last + 1
        third = second + self.up * last + 1 + turn
        fourth = third + self.down * last + 1 + back
        return (
            self.down * rank,
            second + self.up * above,
            third + self.down * rank,
            fourth + self.up * above,
        )

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """The passes in order of their slots, weight gradients in those between."""
        taken: dict[int, Action] = {
            slot + PERIOD * number: (kind, number, chunk)
            for slot, (kind, chunk) in zip(self.slots(rank, ranks), PASSES, strict=True)
            for number in range(micro_batches)
        }
        actions: list[Action] = []
        later: deque[Action] = deque()
        for slot in range(max(taken) + 1):
            if slot in taken:
                kind, *position = action = taken[slot]
                actions.append(action)
                if kind == INPUT:
                    later.append((WEIGHT, position[0], position[1]))
            elif later:
                actions.append(later.popleft())
        return [*actions, *later]


@register
@final
class VHalf(BuildingBlock):
    """Half the memory of 1F1B, and three fifths of its bubble."""

    name = "v_half"
    down = 2

    def rests(self, ranks: int) -> tuple[int, int]:
        """Three slots where the ranks are even; always one on the last rank."""
        return (0 if ranks % 2 else 3), 1

    def idle_slots(self, ranks: int) -> int:
        return 7 * (ranks // 2) - (0 if ranks % 2 else 2)


@register
@final
class VMin(BuildingBlock):
    """A third of the memory of 1F1B, and two thirds of its bubble; the more passes differ in time,
    the longer a rank waits for every micro-batch.
    """

    name = "v_min"
    down = 1

    def rests(self, ranks: int) -> tuple[int, int]:
        """Two slots where three divides the ranks."""
        return (0 if ranks % 3 else 2), 0

    def idle_slots(self, ranks: int) -> int:
        return max(4 * ranks - (5 if ranks % 3 else 3), 0)
