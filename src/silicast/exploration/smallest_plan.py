"""The smallest plan under which a model fits, and the larger ones that may serve it better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
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
