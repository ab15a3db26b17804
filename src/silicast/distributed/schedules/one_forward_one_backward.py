"""1F1B: after a short start a rank alternates between forward and backward passes."""

from __future__ import annotations

from typing import final

from silicast.distributed.schedules.order import BACKWARD, FORWARD, Action
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


@register
@final
class OneForwardOneBackward(PipelineSchedule):
    """Bubble of GPipe, but rank r holds at most ranks - r micro-batches."""

    name = "1f1b"
    source = "PipeDream-flush: Narayanan et al. 2021, arXiv 2006.09503, section 3.2"

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p - 1)(f + b), b the whole backward pass."""
        return (ranks - 1) * (forward + input_gradient + weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """Forward passes until the first gradient arrives, pairs, backward passes."""
        ahead = min(ranks - rank - 1, micro_batches)
        actions: list[Action] = [(FORWARD, i, 0) for i in range(ahead)]
        for i in range(micro_batches - ahead):
            actions += [(FORWARD, ahead + i, 0), (BACKWARD, i, 0)]
        return actions + [(BACKWARD, i, 0) for i in range(micro_batches - ahead, micro_batches)]
