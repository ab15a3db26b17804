"""One pool of identical replicas: a model on devices under an engine, with its host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from silicast.composition.engine import Engine
from silicast.composition.machine import Machine, links_of
from silicast.hardware.cluster import Cluster
from silicast.hardware.device import Device
from silicast.hardware.host import Host
from silicast.learning.tiers import ALL_SHIPPED, Evidence
from silicast.workload.model import ModelConfig, Precision
from silicast.workload.plan import Plan


def busiest_group(input_lens: Sequence[int], groups: int) -> Sequence[int]:
    """Sequences of the group with the most tokens, where groups take turns in choosing; all wait
    for it at every layer of experts.

    >>> busiest_group([100, 700, 20, 30], 2)
    [700, 30]
    """
    if groups == 1:
        return input_lens
    shares = [list(input_lens[first::groups]) for first in range(groups)]
    return max(shares, key=sum)


@final
@dataclass(frozen=True)
class Deployment:
    """What runs where.

    Attributes:
        power_w, clock_hz: limits the user set; None = the board's own.
        cluster: the links between the devices; None = the device's usual system.
        gpus_per_node: devices under one host where no cluster is given; 0 = the usual number.
        evidence: what kernel times may rest on beside the analytic models.
    """

    model: ModelConfig
    device: Device
    engine: Engine
    plan: Plan = Plan()
    precision: Precision | None = None
    host: Host = Host()
    cluster: Cluster | None = None
    gpus_per_node: int = 0
    power_w: float | None = None
    clock_hz: float | None = None
    evidence: Evidence = ALL_SHIPPED

    def __post_init__(self) -> None:
        """Puts into the plan what the engine decides."""
        own = self.engine.parallel
        plan = replace(
            self.plan,
            gathers_dense=own.gathers_dense and self.plan.attention_dp > 1,
            extra_layers=own.extra_layers,
            all_to_all=self.plan.all_to_all or self._sends_one_by_one(),
        )
        object.__setattr__(self, "plan", plan)

    def _sends_one_by_one(self) -> bool:
        """Whether tokens go to their experts' ranks one by one: to more ranks than a token has
        choices, or beyond the links of a domain. Otherwise a gather moves no more than that.
        """
        moe, ranks = self.model.moe, self.plan.tp * self.plan.attention_dp
        if moe is None or ranks == 1:
            return False
        return ranks > moe.topk or not self.links.within_domain(ranks)

    @cached_property
    def machine(self) -> Machine:
        """It without the model."""
        return Machine(
            device=self.device,
            engine=self.engine,
            plan=self.plan,
            host=self.host,
            cluster=self.cluster,
            gpus_per_node=self.gpus_per_node,
            power_w=self.power_w,
            clock_hz=self.clock_hz,
            evidence=self.evidence,
        )

    @property
    def links(self) -> Cluster:
        """The cluster, stated or usual."""
        return links_of(self.cluster, self.device, self.gpus_per_node)
