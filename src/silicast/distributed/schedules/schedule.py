"""The one interface of pipeline schedules, and their registry.

A schedule is one file that subclasses :class:`PipelineSchedule` and registers itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

from numpy.typing import NDArray

from silicast.core.errors import SilicastError
from silicast.core.registry import Registry
from silicast.distributed.schedules.order import Action, Order, Placement

Times = NDArray[Any] | float


class PipelineSchedule(ABC):
    """In which order the ranks of a pipeline run their passes.

    Class attributes:
        name: as users write it.
        chunks: stages that a rank holds; None = as many as the user says.
        splits_backward: whether input and weight gradients are actions of their own.
        source: where it is described.
    """

    name: ClassVar[str]
    chunks: ClassVar[int | None] = 1
    splits_backward: ClassVar[bool] = False
    source: ClassVar[str]

    @abstractmethod
    def actions(self, rank: int, ranks: int, micro_batches: int, chunks: int) -> list[Action]:
        """What one rank runs, in order."""

    @abstractmethod
    def bubble(
        self, ranks: int, chunks: int, forward: Times, input_gradient: Times, weight_gradient: Times
    ) -> Times:
        """Idle time of the rank that waits most, in the published closed form.

        It counts from a rank's first action to its last. All stages take the times given, transfers
        none, there are micro-batches enough to fill the pipeline, and weight gradient <= forward
        <= input gradient; what more a schedule asks stands with it.
        """

    def placement(self, ranks: int, chunks: int) -> Placement:
        """Where the stages lie."""
        return Placement.interleaved(ranks, chunks)

    def refusal(self, ranks: int, micro_batches: int, chunks: int) -> str:
        """Why there is no such schedule; "" = there is."""
        return ""

    def order(self, ranks: int, micro_batches: int, chunks: int | None = None) -> Order:
        """What all ranks run.

        Args:
            ranks: of the pipeline.
            chunks: stages on each rank; None = the schedule's own number, else 1.

        Raises:
            SilicastError: the schedule is not made for these numbers.

        >>> order = schedule("1f1b").order(ranks=2, micro_batches=2)
        >>> [order.named(i) for i in range(order.first[0], order.first[1])][1:3]
        ['forward of micro-batch 1', 'backward of micro-batch 0']
        """
        count = chunks if chunks is not None else self.chunks or 1
        for field, value in (("pp", ranks), ("micro_batches", micro_batches), ("chunks", count)):
            if value < 1:
                raise SilicastError(f"is {value}, expected at least 1", field=field)
        if self.chunks not in (None, count):
            raise SilicastError(
                f"is {count}, but a rank holds {self.chunks} under schedule {self.name}",
                field="chunks",
            )
        refusal = self.refusal(ranks, micro_batches, count)
        if refusal:
            raise SilicastError(refusal, field="schedule")
        return _order(self, ranks, micro_batches, count)


@lru_cache(maxsize=64)
def _order(schedule: PipelineSchedule, ranks: int, micro_batches: int, chunks: int) -> Order:
    lists = [schedule.actions(rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    return Order.from_actions(schedule.placement(ranks, chunks), micro_batches, lists)


_KNOWN: Registry[PipelineSchedule] = Registry(
    "silicast.distributed.schedules", "pipeline schedule", "schedule"
)
register = _KNOWN.register
schedules = _KNOWN.all
"""All schedules by name."""
schedule = _KNOWN.named
"""The schedule called ``name``. Raises SilicastError where there is none of that name."""
