"""Steps whose collectives cross uplinks that carry less than what is below them: packets matter
there, which the times of their collectives do not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from silicast.communication.flows.packets import PacketEffects, effects_by_rates, widened
from silicast.composition.step.stage_graph import topology
from silicast.core.prediction import Domain, Part, Quantity
from silicast.scenario.answers.training.training_runs import TrainingRun

EXCHANGED = ("weights_", "gradients_")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
LEAST = 0.005
"""Of a step, the share on such links from which it is told."""


@final
@dataclass(frozen=True)
class OverUplinks:
    """What of a step is on uplinks that carry less than what is below them.

    Attributes:
        share: of its time; effects: why packets matter there, None = they do not.
    """

    share: float = 0.0
    effects: PacketEffects | None = None

    def widened(self, step: Quantity) -> Quantity:
        """A step whose upper end holds packets too."""
        return step if self.effects is None else widened(step, self.share)

    @property
    def domain(self) -> Domain:
        """Near where packets matter, of which nothing measured says what they add to a step."""
        return "in" if self.effects is None else "near"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know."""
        if self.effects is None:
            return ()
        return (f"{self.share:.1%} of the step crosses uplinks: {self.effects.remark}",)


def over_uplinks(run: TrainingRun) -> OverUplinks:
    """Of one step: sums of gradients and gathers of weights, whose groups span the devices of a
    pipeline stage.
    """
    plan = run.rank.plan
    between = topology(run.rank.deployment.machine, plan.gpus // plan.pp)
    effects = effects_by_rates(between)
    if effects is None or not effects.uplinks:
        return OverUplinks()
    part = run.without_loading.part
    share = _exchanged_ps(part) / max(part.exposed_ps, 1)
    return OverUplinks(share, effects) if share > LEAST and effects.reasons else OverUplinks()


def _exchanged_ps(part: Part) -> int:
    """What the data ranks' collectives add."""
    if part.name.startswith(EXCHANGED) and part.name.endswith(COLLECTIVES):
        return part.exposed_ps
    return sum(_exchanged_ps(child) for child in part.children)
