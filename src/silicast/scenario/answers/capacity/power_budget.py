"""A limit on what all devices of a fleet may draw at once: that of each, stated or the board's own,
times their number.
"""

from __future__ import annotations

import math
import sys

from silicast.composition.power.energy import limit_w
from silicast.core.errors import SilicastError
from silicast.serving.simulation.fleet import Fleet, ReplicaPool

FIELD = "workload.search.max_power_w"


def most_power_w(fleet: Fleet) -> float:
    """What the devices of a fleet draw at most; infinite where a device states no limit."""
    return math.fsum(pool.gpus * limit_w(pool.deployment.machine) for pool in fleet.pools)


def within_budget(fleet: Fleet, budget_w: float | None) -> bool:
    """Whether a fleet stays within it whatever it does."""
    return budget_w is None or most_power_w(fleet) <= budget_w


def most_within(pool: ReplicaPool, budget_w: float | None) -> int:
    """Replicas of one pool that stay within it by themselves; a very large number = no limit."""
    if budget_w is None:
        return sys.maxsize
    return int(budget_w / (pool.deployment.plan.gpus * limit_w(pool.deployment.machine)))


def check_budget(fleet: Fleet, budget_w: float | None) -> None:
    """Refuses a fleet that may draw more.

    Raises:
        SilicastError: it may, or how much it may draw is not known.
    """
    if within_budget(fleet, budget_w):
        return
    assert budget_w is not None
    most = most_power_w(fleet)
    if math.isinf(most):
        raise SilicastError(
            "the power limit of a device is not known", field=FIELD, hint="state limits.power_w"
        )
    single = fleet.gpus == 1
    raise SilicastError(
        f"{fleet.gpus} {'device' if single else 'devices'} may draw {most:,.0f} W, more than "
        f"{budget_w:,.0f} W",
        field=FIELD,
        hint=f"{'' if single else 'fewer devices, or '}limits.power_w of at most "
        f"{budget_w / fleet.gpus:,.0f} W",
    )
