"""ZB-V: two chunks a rank, down the ranks and up again, with split backward passes."""

from __future__ import annotations

from typing import final

from silicast.distributed.schedules.order import FORWARD, INPUT, WEIGHT, Action, Placement
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


@register
@final
class ZeroBubbleV(PipelineSchedule):
    """No bubble where all passes take equally long, with the memory of 1F1B."""

    name = "zbv"
    chunks = 2
    splits_backward = True
    source = "Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch's ScheduleZBVZeroBubble"

    def placement(self, ranks: int, chunks: int) -> Placement:
        """The first rank holds the first and the last stage."""
        return Placement.v_shaped(ranks)

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """2 (p - 1)(b - w), b without w: none where all three are equal."""
        return 2 * (ranks - 1) * (input_gradient - weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """What would run with enough micro-batches to fill the pipeline, without those beyond."""
        count = max(2 * ranks - 1, micro_batches)
        actions: list[Action] = []
        done = {(kind, chunk): 0 for kind in (FORWARD, INPUT, WEIGHT) for chunk in (0, 1)}

        def run(kind: int, chunk: int) -> None:
            actions.append((kind, done[kind, chunk], chunk))
            done[kind, chunk] += 1

        for _ in range(2 * (ranks - rank) - 1):
            run(FORWARD, 0)
        for _ in range(rank):
            run(FORWARD, 1)
            run(FORWARD, 0)
        for _ in range(ranks - rank):
            run(FORWARD, 1)
            run(INPUT, 1)
            run(WEIGHT, 1)
        while done[FORWARD, 1] < count:
            if done[FORWARD, 0] < count:
                run(FORWARD, 0)
            run(INPUT, 0)
            run(WEIGHT, 0)
            run(FORWARD, 1)
            run(INPUT, 1)
            run(WEIGHT, 1)
        for _ in range(rank):
            run(INPUT, 0)
            run(INPUT, 1)
        for _ in range(ranks - rank):
            run(INPUT, 0)
            run(WEIGHT, 0)
        for chunk in (1, 0):
            while done[WEIGHT, chunk] < done[INPUT, chunk]:
                run(WEIGHT, chunk)
        return [each for each in actions if each[1] < micro_batches]
