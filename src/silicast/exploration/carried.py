"""How many devices carry so many users, each at a speed, in closed form.

A user waits for an answer, then asks again: a closed loop
(:mod:`silicast.composition.passes.closed_loop`). Every replica takes as many users as still see
their
speed on average, up to what fits; the plan with the fewest devices is chosen. A simulation (task
``capacity``) knows more: bursts, queues, tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

from silicast.composition.passes.closed_loop import ClosedLoop, closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.core.monotone import largest
from silicast.core.prediction import Quantity
from silicast.serving.capacity.room import room_of
from silicast.workload.transformers.plan import Plan

MOST_STAGES = 16


def plans_by_size(deployment: Deployment) -> Iterator[Plan]:
    """Plans from the smallest on: tensor parallelism within a node, by doubling, then stages over
    nodes; whether the model can be cut so is not asked.
    """
    node = max(deployment.machine.links.gpus_per_node, 1)
    degree = 1
    while degree <= node:
        yield replace(deployment.plan, tp=degree)
        degree *= 2
    stages = 2
    while stages <= MOST_STAGES:
        yield replace(deployment.plan, tp=degree // 2, pp=stages)
        stages *= 2


def smallest_plan(deployment: Deployment, fits: Callable[[Deployment], bool]) -> Plan | None:
    """The first of :func:`plans_by_size` that fits and into which the model can be cut; None where
    none does.
    """
    for plan in plans_by_size(deployment):
        try:
            if fits(replace(deployment, plan=plan)):
                return plan
        except SilicastError:
            continue  # the model cannot be cut so finely
    return None


WIDER: Final = 3
"""Plans beyond the smallest that fits that are looked at."""


@final
@dataclass(frozen=True)
class UserDemand:
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
        replica: one of them, with any number of users.
        replicas: that carry the demand.
        loop: of the users of the fullest replica.
    """

    replica: DeployedReplica
    replicas: int
    loop: ClosedLoop

    @property
    def deployment(self) -> Deployment:
        return self.replica.deployment

    @property
    def room(self) -> int:
        """Users of a replica that fit beside the weights."""
        return self.replica.room

    @property
    def devices(self) -> int:
        return self.replicas * self.deployment.plan.gpus

    @cached_property
    def gpus(self) -> Quantity:
        """Devices of all replicas; slow ones need more, quick ones fewer."""
        demand, tpot_s = self.replica.demand, self.loop.tpot_s
        # as many as a slow and a quick machine's users are under the same limit
        limits = [demand.tpot_s * tpot_s.estimate / end for end in (tpot_s.p95, tpot_s.p05)]
        many, few = (math.ceil(demand.users / max(self.replica.most(limit), 1)) for limit in limits)
        count = self.deployment.plan.gpus
        return Quantity(
            self.devices, min(few, self.replicas) * count, max(many, self.replicas) * count
        )


def fewest_devices(deployment: Deployment, demand: UserDemand, *, searches: bool) -> Carried:
    """The plan that carries the demand with the fewest devices, the quicker one of two.

    Args:
        searches: other plans than the deployment's own may be taken.

    Raises:
        SilicastError: the model fits under none, or no user sees the speed under any.
    """
    candidates: list[Carried] = []
    refusal: SilicastError | None = None
    for each in _plans(deployment) if searches else (deployment,):
        if candidates and each.plan.gpus > min(carried.devices for carried in candidates):
            break
        try:
            candidates.append(DeployedReplica.from_deployment(each, demand).carried())
        except SilicastError as error:
            refusal = error
            continue
        if each.plan.gpus >= candidates[0].deployment.plan.gpus << WIDER:
            break
    if not candidates:
        assert refusal is not None
        raise refusal
    return min(candidates, key=lambda carried: (carried.devices, carried.loop.tpot_s.estimate))


def _plans(deployment: Deployment) -> Iterator[Deployment]:
    for plan in plans_by_size(deployment):
        yield replace(deployment, plan=plan)


@final
@dataclass(frozen=True, eq=False)
class DeployedReplica:
    """One deployment with any number of users.

    Attributes:
        room: users that fit beside the weights.
    """

    deployment: Deployment
    demand: UserDemand
    room: int

    @staticmethod
    def from_deployment(deployment: Deployment, demand: UserDemand) -> DeployedReplica:
        """With room for at least one user.

        Raises:
            SilicastError: for none.
        """
        room = room_of(deployment, demand.prompt_tokens, demand.output_tokens).sequences
        if not room:
            raise SilicastError(
                f"no request of {demand.prompt_tokens + demand.output_tokens:,} tokens fits beside "
                f"the weights on {deployment.plan.gpus} x {deployment.device.name}",
                field="parallel",
            )
        return DeployedReplica(deployment, demand, room)

    def carried(self) -> Carried:
        """As many as the demand needs.

        Raises:
            SilicastError: one user alone does not see the speed.
        """
        demand = self.demand
        most = self.most(demand.tpot_s)
        if not most:
            alone_s = self.at(1).tpot_s.estimate
            raise SilicastError(
                f"one user alone has {1.0 / alone_s:.3g} tokens/s on {self.deployment.plan.gpus} x "
                f"{self.deployment.device.name}, not {1.0 / demand.tpot_s:.3g}",
                field="parallel",
                hint="more devices a replica, or a smaller format",
            )
        replicas = math.ceil(demand.users / most)
        return Carried(self, replicas, self.at(math.ceil(demand.users / replicas)))

    @cached_property
    def _known(self) -> dict[int, ClosedLoop]:
        return {}

    def at(self, users: int) -> ClosedLoop:
        """The closed loop of ``users`` users on the deployment."""
        if users not in self._known:
            demand = self.demand
            self._known[users] = closed_loop(
                self.deployment, users, demand.prompt_tokens, max(demand.output_tokens, 2)
            )
        return self._known[users]

    def most(self, tpot_s: float) -> int:
        """The most users under a limit, up to what fits and is asked for; 0 = not even one."""
        most = min(self.room, self.demand.users)
        if self.at(most).token_s <= tpot_s:
            return most
        return largest(lambda users: tpot_s - self.at(users).token_s, most - 1, guess=1)
