"""DualPipe: micro-batches from both ends, forward passes beside backward passes."""

from __future__ import annotations

from collections import deque
from typing import final

from silicast.distributed.schedules.order import (
    BACKWARD,
    FORWARD,
    INPUT,
    JOINED,
    WEIGHT,
    Action,
    Placement,
)
from silicast.distributed.schedules.schedule import PipelineSchedule, register


@register
@final
class DualPipe(PipelineSchedule):
    """Two copies of the model; a forward pass computes while a backward pass communicates."""

    name = "dualpipe"
    chunks = 2
    splits_backward = True
    source = "DeepSeek-V3 2024, arXiv 2412.19437, section 3.2.1; order of DeepSeek's DualPipe"

    def placement(self, ranks: int, chunks: int) -> Placement:
        """Rank r holds stage r, and stage ranks - 1 - r of the other direction."""
        return Placement.both_ends(ranks)

    def refusal(self, ranks: int, micro_batches: int, chunks: int) -> str:
        """Both halves are alike, and fill the pipeline."""
        if ranks % 2:
            return f"dualpipe needs an even number of ranks; there are {ranks}"
        if micro_batches % 2 or micro_batches < 2 * ranks:
            return (
                f"dualpipe needs an even number of micro-batches, at least {2 * ranks}; "
                f"there are {micro_batches}"
            )
        return ""

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """Eight phases; "near" is the direction that starts nearer to the rank."""
        half, swap = micro_batches // 2, rank >= ranks // 2
        place = min(rank, ranks - 1 - rank)
        inner = ranks // 2 - place - 1
        found: list[Action] = []
        later: deque[Action] = deque()
        done = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD) for chunk in (0, 1)}

        def take(kind: int, far: int) -> tuple[int, int]:
            chunk = far ^ swap
            done[kind, chunk] += 1
            return done[kind, chunk] - 1 + chunk * half, chunk

        def forward(far: int) -> None:
            found.append((FORWARD, *take(FORWARD, far)))

        def backward(far: int, split: bool = False) -> None:
            what = take(BACKWARD, far)
            found.append((INPUT if split else BACKWARD, *what))
            if split:
                later.append((WEIGHT, *what))

        def both(far: int) -> None:
            found.append((JOINED, *take(FORWARD, far)))
            found.append((BACKWARD, *take(BACKWARD, 1 - far)))

        for _ in range(2 * inner):
            forward(0)
        for _ in range(place + 1):
            forward(0)
            forward(1)
        for _ in range(inner):
            backward(1, split=True)
            found.append(later.popleft())
            forward(1)
        for i in range(half - ranks + place + 1):
            if i == 0 and inner == 0:  # the middle ranks wait less with these two apart
                forward(0)
                backward(1)
            else:
                both(0)
            both(1)
        for _ in range(inner):
            backward(1)
            both(1)
        split = False
        for i in range(place + 1):
            split = split or (i == (place + 1) // 2 and place % 2 == 1)
            backward(1, split)
            split = split or (i == (place + 1) // 2 and place % 2 == 0)
            backward(0, split)
        for _ in range(inner):
            found.append(later.popleft())
            backward(0, split=True)
        return found + list(later)
