"""Static batching: a batch is formed, runs until its last sequence ends, and then the next is.

As the servers of FasterTransformer and of frameworks do it: whoever waits when the last batch has
ended forms the next, up to ``max_num_seqs``, each with room for its longest output. A sequence
that ends early leaves; its place stays empty.
"""

from __future__ import annotations

from typing import ClassVar, final

from silicast.serving.engines.orca import Orca
from silicast.serving.simulation.scheduler import StepPlan, register


@register
@final
class Static(Orca):
    """One batch after the other."""

    name: ClassVar[str] = "static"

    def schedule(self) -> StepPlan:
        if not self.group.running:
            return super().schedule()
        plan = self.empty()
        self.decode(plan)
        return plan
