"""Schedules of whole passes: 1F1B, GPipe, and 1F1B with several stages a rank."""

from __future__ import annotations

from typing import final

from silicast.distributed.schedules.order import BACKWARD, FORWARD, Action
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


@register
@final
class OneForwardOneBackward(PipelineSchedule):
    """After a short start a rank alternates between forward and backward passes.

    Bubble of GPipe, but rank r holds at most ranks - r micro-batches.
    """

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


@register
@final
class GPipe(PipelineSchedule):
    """All forward passes, then all backward passes: every micro-batch is held, the last runs
    backward first.
    """

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


@register
@final
class Interleaved(PipelineSchedule):
    """Bubble of 1F1B divided by the number of chunks; more micro-batches in flight."""

    name = "interleaved"
    chunks = None
    source = (
        "Narayanan et al. SC 2021, arXiv 2104.04473, section 2.2; order of Megatron-core's "
        "forward_backward_pipelining_with_interleaving"
    )

    def refusal(self, ranks: int, micro_batches: int, chunks: int) -> str:
        """Micro-batches come in groups of one a rank."""
        if ranks > 1 and chunks > 1 and micro_batches % ranks:
            return (
                f"interleaved needs a multiple of {ranks} micro-batches, one a rank; "
                f"there are {micro_batches}"
            )
        return ""

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p - 1)(f + b), of one of v chunks: 1/v of 1F1B's."""
        return (ranks - 1) * (forward + input_gradient + weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """A group of micro-batches passes all chunks of a rank before the next group begins."""
        group = min(ranks, micro_batches)
        passes = [
            (i, chunk)
            for begin in range(0, micro_batches, group)
            for chunk in range(chunks)
            for i in range(begin, min(begin + group, micro_batches))
        ]
        forward: list[Action] = [(FORWARD, i, chunk) for i, chunk in passes]
        backward: list[Action] = [(BACKWARD, i, chunks - 1 - chunk) for i, chunk in passes]
        ahead = ranks - rank - 1
        if chunks > 1:
            ahead = 2 * ahead + (chunks - 1) * group
        ahead = min(ahead, len(passes))
        result = forward[:ahead]
        for pair in zip(forward[ahead:], backward, strict=False):
            result += pair
        return result + backward[len(passes) - ahead :]
