"""Zero-bubble schedules: weight gradients fill the time in which a rank would wait."""

from __future__ import annotations

from typing import final

from silicast.distributed.schedules.order import FORWARD, INPUT, WEIGHT, Action, Placement
from silicast.distributed.schedules.schedule import PipelineSchedule, Times, register


@register
@final
class ZeroBubbleH1(PipelineSchedule):
    """The memory of 1F1B; rank r puts off r weight gradients to the end."""

    name = "zb_h1"
    splits_backward = True
    source = "Qi et al. 2023, arXiv 2401.10241, section 2.1 and figure 3"

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p - 1)(f + b - w), b without w."""
        return (ranks - 1) * (forward + input_gradient - weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """As many micro-batches ahead as 1F1B."""
        return _put_off(ranks - rank, rank, micro_batches)


@register
@final
class ZeroBubbleH2(PipelineSchedule):
    """Nearly twice the memory of 1F1B; rank r puts off 2 r weight gradients to the end."""

    name = "zb_h2"
    splits_backward = True
    source = "Qi et al. 2023, arXiv 2401.10241, section 2.2 and figure 3"

    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """(p - 1)(f + b - 2 w), b without w; the last rank ends (p - 1) f later than the first."""
        return (ranks - 1) * (forward + input_gradient - 2 * weight_gradient)

    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """As many micro-batches ahead as fill the time until the first gradient comes."""
        return _put_off(2 * (ranks - rank) - 1, 2 * rank, micro_batches)


def _put_off(ahead: int, late: int, micro_batches: int) -> list[Action]:
    """``ahead`` forward passes, then pairs; weight gradients ``late`` behind the input's."""
    ahead = min(ahead, micro_batches)
    actions: list[Action] = [(FORWARD, i, 0) for i in range(ahead)]
    for i in range(micro_batches):
        actions.append((INPUT, i, 0))
        if i >= late:
            actions.append((WEIGHT, i - late, 0))
        if ahead + i < micro_batches:
            actions.append((FORWARD, ahead + i, 0))
    return actions + [(WEIGHT, i, 0) for i in range(max(micro_batches - late, 0), micro_batches)]


@register
@final
class ZeroBubbleV(PipelineSchedule):
    """Two chunks a rank, down the ranks and up again: no bubble where all passes take equally long,
    with the memory of 1F1B.
    """

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
