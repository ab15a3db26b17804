"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from typing import final

from silicast.distributed.schedules.order import BACKWARD, FORWARD, Action
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


@register
@final
class GPipe(PipelineSchedule):
    """A rank holds every micro-batch at once; the last one runs backward first."""

    name = "gpipe"
    source = "Huang et al. 2019, arXiv 1811.06965, figure 2"

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p - 1)(f + b), b the whole backward pass."""
        return (ranks - 1) * (forward + input_gradient + weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """Forward in order, backward in reverse."""
        forward = [(FORWARD, i, 0) for i in range(micro_batches)]
        return forward + [(BACKWARD, i, 0) for i in reversed(range(micro_batches))]
