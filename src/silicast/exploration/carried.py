"""How many devices carry so many users, each at a speed, in closed form.

A user waits for an answer, then asks again: a closed loop
(:mod:`silicast.composition.passes.closed_loop`). Every replica takes as many users as still see
their
speed on average, up to what fits; the plan with the fewest devices is chosen. A simulation (task
``capacity``) knows more: bursts, queues, tails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, final

from silicast.composition.passes.closed_loop import ClosedLoop, closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.core.prediction import Quantity
from silicast.exploration.smallest_plan import plans_by_size
from silicast.serving.capacity.room import room_of

TOLERANCE: Final = 0.02
"""Between the most users of a replica and the fewest that are too many."""
WIDER: Final = 3
"""Plans beyond the smallest that fits that are looked at."""


@final
@dataclass(frozen=True)
class Demand:
    """What users ask for.

    Attributes:
        users: at once.
        tpot_s: of each, on average, at most.
        prompt_tokens, output_tokens: of every request.
    """

    users: int
    tpot_s: float
    prompt_tokens: int
    output_tokens: int


@final
@dataclass(frozen=True)
class Carried:
    """A deployment and how many of it.

    Attributes:
        deployment: of a replica.
        loop: of the users of the fullest replica.
        gpus: of all replicas; slow devices need more, quick ones fewer.
        room: users of a replica that fit beside the weights.
    """

    deployment: Deployment
    replicas: int
    loop: ClosedLoop
    gpus: Quantity
    room: int

    @property
    def tokens_per_s(self) -> Quantity:
        return self.loop.tokens_per_s.times(self.replicas)


def fewest_devices(deployment: Deployment, demand: Demand, *, searches: bool) -> Carried:
    """The plan that carries the demand with the fewest devices, the quicker one of two.

    Args:
        searches: other plans than the deployment's own may be taken.

    Raises:
        SilicastError: the model fits under none, or no user sees the speed under any.
    """
    carrieds: list[Carried] = []
    refusal: SilicastError | None = None
    for each in _plans(deployment) if searches else (deployment,):
        if carrieds and each.plan.gpus > min(one.gpus.estimate for one in carrieds):
            break
        try:
            carrieds.append(_carried(each, demand))
        except SilicastError as error:
            refusal = error
            continue
        if each.plan.gpus >= carrieds[0].deployment.plan.gpus << WIDER:
            break
    if not carrieds:
        assert refusal is not None
        raise refusal
    return min(carrieds, key=lambda one: (one.gpus.estimate, one.loop.tpot_s.estimate))


def _plans(deployment: Deployment) -> Iterator[Deployment]:
    for plan in plans_by_size(deployment):
        yield replace(deployment, plan=plan)


def _carried(deployment: Deployment, demand: Demand) -> Carried:
    room = room_of(deployment, demand.prompt_tokens, demand.output_tokens).sequences
    if not room:
        raise SilicastError(
            f"no request of {demand.prompt_tokens + demand.output_tokens:,} tokens fits beside the "
            f"weights on {deployment.plan.gpus} x {deployment.device.name}",
            field="parallel",
        )
    search = _Search(deployment, demand, min(room, demand.users))
    most = search.most(demand.tpot_s)
    if not most:
        alone_s = search.at(1).tpot_s.estimate
        raise SilicastError(
            f"one user alone has {1.0 / alone_s:.3g} tokens/s on {deployment.plan.gpus} x "
            f"{deployment.device.name}, not {1.0 / demand.tpot_s:.3g}",
            field="parallel",
            hint="more devices a replica, or a smaller format",
        )
    replicas = math.ceil(demand.users / most)
    loop = search.at(math.ceil(demand.users / replicas))
    tpot_s = loop.tpot_s
    # as many as a slow and a quick machine's users are under the same limit
    ends = [search.read(demand.tpot_s * tpot_s.estimate / end) for end in (tpot_s.p95, tpot_s.p05)]
    many, few = (math.ceil(demand.users / max(each, 1)) for each in ends)
    count = deployment.plan.gpus
    gpus = Quantity(replicas * count, min(few, replicas) * count, max(many, replicas) * count)
    return Carried(deployment, replicas, loop, gpus, room)


@final
class _Search:
    """Times per token of a replica, by its users."""

    def __init__(self, deployment: Deployment, demand: Demand, room: int) -> None:
        self._deployment, self._demand, self._room = deployment, demand, room
        self._known: dict[int, ClosedLoop] = {}

    def at(self, users: int) -> ClosedLoop:
        if users not in self._known:
            requested = self._demand
            self._known[users] = closed_loop(
                self._deployment, users, requested.prompt_tokens, max(requested.output_tokens, 2)
            )
        return self._known[users]

    def most(self, tpot_s: float) -> int:
        """The most users under a limit, up to what fits; 0 = not even one."""
        low, high = 1, self._room
        if self.at(high).tpot_s.estimate <= tpot_s:
            return high
        if self.at(low).tpot_s.estimate > tpot_s:
            return 0
        while high - low > max(1.0, TOLERANCE * low):
            # nearly a straight line; not so near an end that the other one never moves
            ends = [self.at(each).tpot_s.estimate for each in (low, high)]
            share = (tpot_s - ends[0]) / (ends[1] - ends[0])
            gap = high - low
            middle = low + round(gap * min(max(share, 0.02), 0.98))
            middle = min(max(middle, low + 1), high - 1)
            low, high = (
                (middle, high) if self.at(middle).tpot_s.estimate <= tpot_s else (low, middle)
            )
            if high - low > gap // 2 and high - low > 2:
                half = (low + high) // 2
                low, high = (half, high) if self.at(half).tpot_s.estimate <= tpot_s else (low, half)
        return low

    def read(self, tpot_s: float) -> int:
        """The same by straight lines between the numbers that are known."""
        knots = sorted((users, loop.tpot_s.estimate) for users, loop in self._known.items())
        if tpot_s >= knots[-1][1]:
            return knots[-1][0]
        for (few, quick), (many, slow) in pairwise(knots):
            if quick <= tpot_s < slow:
                return few + int((many - few) * (tpot_s - quick) / (slow - quick))
        return 0
