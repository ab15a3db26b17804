"""Dynamic batching in front of a static graph: whoever waits forms the next pass.

Source: Triton Inference Server, dynamic_batch_scheduler.cc (GetDynamicBatch) and its documentation
of ``dynamic_batching``. One pass runs at a time; when it has ended, those that wait form the next,
in order of arrival, up to ``max_num_seqs`` (``max_batch_size``).

- ``preferred_batch_size``: a number, or several as "4,8": the largest that can be formed runs at
  once.
- ``max_queue_delay_us`` (0 by default): a batch that is neither of a preferred size nor full waits
  until its oldest request has waited so long; 0 = whatever waits runs.

``instance_count`` is 1: copies of a graph that run beside each other are not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core.errors import SilicastError, unmodelled
from silicast.serving.simulation.scheduler import QueueGroup, Scheduler, StepPlan, Switch, register


@register
@final
class DynamicBatching(Scheduler):
    """Batches by size and patience."""

    name: ClassVar[str] = "dynamic-batching"
    switches: ClassVar[Mapping[str, Switch]] = {
        "preferred_batch_size": "",
        "max_queue_delay_us": 0.0,
        "instance_count": 1.0,
    }
    timed: ClassVar[bool] = True
    one_pass: ClassVar[bool] = True

    def __init__(self, group: QueueGroup) -> None:
        super().__init__(group)
        self._preferred = _sizes(self.word("preferred_batch_size"), group.limits.sequences)
        self._delay_ns = round(self.number("max_queue_delay_us") * 1e3)
        if self.number("instance_count") != 1.0:
            raise unmodelled(
                "not yet: several copies of a graph on one device", "engine.options.instance_count"
            )

    def schedule(self) -> StepPlan:
        group, plan, self.ask_ns = self.group, self.empty(), -1
        if group.running or not group.waiting:
            return plan
        count = min(len(group.waiting), group.limits.sequences)
        formed = [size for size in self._preferred if size <= count]
        if formed:
            count = formed[-1]
        elif count < group.limits.sequences and self._delay_ns:
            due_ns = group.came_ns[group.waiting[0]] + self._delay_ns
            if group.now_ns < due_ns:
                self.ask_ns = due_ns
                return plan
        for _ in range(count):
            request = group.waiting[0]
            self.admit(plan, int(group.sequences.todo[request]))
        return plan


def _sizes(text: str, most: int) -> list[int]:
    """Preferred sizes in ascending order."""
    try:
        sizes = sorted({int(each) for each in text.split(",") if each.strip()})
    except ValueError:
        sizes = [0]
    if sizes and not 1 <= sizes[0] <= sizes[-1] <= most:
        raise SilicastError(
            f"expected sizes from 1 to {most}, found {str(text)[:40]!r}",
            field="engine.options.preferred_batch_size",
            hint='one number, or several as "4,8"',
        )
    return sizes
