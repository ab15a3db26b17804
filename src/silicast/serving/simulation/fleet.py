"""What serves one traffic: pools of replicas, what chooses among them, what joins them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.composition.passes.deployment import Deployment
from silicast.serving.simulation.event_loop import KvLink, ReplicaSpec, Simulation
from silicast.serving.simulation.routers import RoundRobin, Router
from silicast.serving.statistics.records import Records
from silicast.serving.traffic.requests import Requests


@final
@dataclass(frozen=True)
class ReplicaPool:
    """Replicas alike.

    Attributes:
        name: of the scenario; "" = its only one.
        price_per_gpu_hour: of a device, None if not stated.
    """

    deployment: Deployment
    spec: ReplicaSpec
    count: int = 1
    name: str = ""
    price_per_gpu_hour: float | None = None

    @property
    def gpus(self) -> int:
        """Devices of all replicas."""
        return self.count * self.deployment.plan.gpus


@final
@dataclass(frozen=True)
class Fleet:
    """Pools that serve the same requests.

    Attributes:
        router: chooses among the replicas that take in requests; ``seed``: of its choices.
        link: from replicas that prefill to those that decode.
        undrafted: the pools as they are where no tokens are drafted; () = the same.
    """

    pools: tuple[ReplicaPool, ...]
    router: type[Router] = RoundRobin
    seed: int = 0
    link: KvLink | None = None
    undrafted: tuple[ReplicaPool, ...] = ()

    @property
    def specs(self) -> list[ReplicaSpec]:
        return [pool.spec for pool in self.pools for _ in range(pool.count)]

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.pools)

    @property
    def cost_per_hour(self) -> float | None:
        """Of all devices; None if the price of one is not stated."""
        prices = [(pool.price_per_gpu_hour, pool.gpus) for pool in self.pools]
        if any(price is None for price, _ in prices):
            return None
        return sum((price or 0.0) * gpus for price, gpus in prices)

    def counted(self, counts: Sequence[int]) -> Fleet:
        """With so many replicas of each pool."""
        pools, plain = (
            tuple(replace(pool, count=n) for pool, n in zip(each, counts, strict=True))
            if each
            else ()
            for each in (self.pools, self.undrafted)
        )
        return replace(self, pools=pools, undrafted=plain)

    @staticmethod
    def from_deployment(deployment: Deployment, spec: ReplicaSpec, replicas: int = 1) -> Fleet:
        """Replicas of one deployment."""
        return Fleet((ReplicaPool(deployment, spec, replicas),))

    @property
    def entry(self) -> ReplicaPool:
        """The first pool that takes in requests."""
        return next(pool for pool in self.pools if pool.spec.role != "decode")

    def replicas_of(self, pool: ReplicaPool) -> list[int]:
        """Numbers of a pool's replicas."""
        index = next(i for i, each in enumerate(self.pools) if each is pool)
        first = sum(each.count for each in self.pools[:index])
        return list(range(first, first + pool.count))

    def simulation(
        self,
        requests: Requests,
        specs: Sequence[ReplicaSpec] | None = None,
        held: NDArray[np.bool_] | None = None,
    ) -> Simulation:
        """Requests on the fleet, not yet run.

        Args:
            specs: of each replica in place of the fleet's own.
            held: see :class:`~silicast.serving.simulation.event_loop.Simulation`.
        """
        specs = specs or self.specs
        return Simulation(requests, specs, self.router, self.seed, self.link, held)

    def serve(self, requests: Requests, specs: Sequence[ReplicaSpec] | None = None) -> Records:
        """What is observed when the fleet serves requests."""
        return self.simulation(requests, specs).run()
