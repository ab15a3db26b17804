"""From a deployment to what a simulation runs: prices, policy, limits and cache of its replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from silicast.composition.passes.deployment import Deployment
from silicast.composition.prices.step_prices import step_prices
from silicast.composition.prices.stepper import StepPricing
from silicast.serving.kv.kv_pool import KvLayout
from silicast.serving.simulation.event_loop import ReplicaSpec
from silicast.serving.simulation.launch import Expected, limits_of, serving_table
from silicast.serving.simulation.scheduler import QueueGroup, SimulatedRequests, scheduler_named


def host_bytes(spec: ReplicaSpec) -> int:
    """Bytes of its host's memory that a group of a replica takes, for all its ranks."""
    nobody = np.zeros(0, dtype=np.int64)
    group = QueueGroup(SimulatedRequests(nobody, nobody), spec.layout, spec.limits)
    spec.policy(group)
    return group.host_bytes


def _prices(deployment: Deployment, *, one_pass: bool) -> StepPricing:
    """What steps take; of an engine that computes whole requests, its passes."""
    if one_pass:
        from silicast.composition.prices.pass_prices import pass_prices

        return pass_prices(deployment)
    return step_prices(deployment)


def replica_spec(
    deployment: Deployment, expected: Expected | None = None, **limits: Any
) -> ReplicaSpec:
    """What a replica of a deployment is made of.

    Args:
        expected: the traffic it is launched for; None = not known.
        limits: fields of :class:`~silicast.serving.simulation.scheduler.Limits` that are set, by
        name; the
            others are the engine's defaults.

    Raises:
        SilicastError: the engine does not serve, or the model does not fit.
    """
    table = serving_table(deployment)
    host, policy = deployment.machine.host.factor, scheduler_named(table.policy)
    return ReplicaSpec(
        prices=_prices(deployment, one_pass=policy.one_pass),
        policy=policy,
        limits=limits_of(deployment, expected, **limits),
        layout=KvLayout.from_deployment(deployment),
        groups=deployment.plan.attention_dp,
        front_ns=round(table.front_us * 1e3 / host),
        front_token_ns=round(table.front_token_us * 1e3 / host),
        back_ns=round(table.back_us * 1e3 / host),
    )
