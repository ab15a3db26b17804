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
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


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

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p/2 - 1)(f + b - 3 w + b), b the whole backward pass, where f equals b - w."""
        return (ranks // 2 - 1) * (
            forward + 2 * (input_gradient - weight_gradient) + weight_gradient
        )

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """The eight phases of DeepSeek's DualPipe."""
        position = min(rank, ranks - 1 - rank)
        inner = ranks // 2 - position - 1
        run = _RankActions(micro_batches // 2, rank >= ranks // 2)
        for _ in range(2 * inner):
            run.forward(0)
        for _ in range(position + 1):
            run.forward(0)
            run.forward(1)
        for _ in range(inner):
            run.backward(1, split=True)
            run.weight()
            run.forward(1)
        for i in range(micro_batches // 2 - ranks + position + 1):
            if i == 0 and inner == 0:  # the middle ranks wait less with these two apart
                run.forward(0)
                run.backward(1)
            else:
                run.both(0)
            run.both(1)
        for _ in range(inner):
            run.backward(1)
            run.both(1)
        whole, half = position + 1, (position + 1) // 2
        for i in range(whole):
            run.backward(1, split=i > half or (i == half and position % 2 == 1))
            run.backward(0, split=i >= half)
        for _ in range(inner):
            run.weight()
            run.backward(0, split=True)
        return run.actions + list(run.later)


@final
class _RankActions:
    """The actions of a rank so far. Directions: 0 starts nearer to the rank, 1 at the other end."""

    def __init__(self, half: int, swap: bool) -> None:
        self.actions: list[Action] = []
        self.later: deque[Action] = deque()
        self._half, self._swap = half, swap
        self._done = {(kind, chunk): 0 for kind in (FORWARD, BACKWARD) for chunk in (0, 1)}

    def forward(self, direction: int, kind: int = FORWARD) -> None:
        self.actions.append((kind, *self._next(FORWARD, direction)))

    def backward(self, direction: int, split: bool = False) -> None:
        position = self._next(BACKWARD, direction)
        self.actions.append((INPUT if split else BACKWARD, *position))
        if split:
            self.later.append((WEIGHT, *position))

    def both(self, direction: int) -> None:
        self.forward(direction, JOINED)
        self.backward(1 - direction)

    def weight(self) -> None:
        self.actions.append(self.later.popleft())

    def _next(self, kind: int, direction: int) -> tuple[int, int]:
        chunk = direction ^ self._swap
        micro_batch = self._done[kind, chunk] + chunk * self._half
        self._done[kind, chunk] += 1
        return micro_batch, chunk
