"""How many replicas are wanted: policies that scale a fleet by what they see of it.

A policy answers with a rate: the load that the fleet should be able to carry. Replicas follow from
it. What a policy compares is relative to a replica that carries as much as its objective allows,
so that replicas of different devices count by what they do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np

from silicast.core.errors import unknown_name
from silicast.core.numerics import F64

TOLERANCE = 0.1
"""By how much a metric may be off its target before replicas change, as Kubernetes' autoscaler."""
SEEN_S, SMOOTH_S = 7200.0, 60.0
"""What a forecast looks back on, and what it takes the mean of."""


@final
class FleetView:
    """What a policy sees of a fleet at the end of a period.

    Attributes:
        period_s: between decisions; ready_s: from a decision until a new replica serves.
        capacity_per_s: that ready replicas carry under the objective; planned_per_s: with those
            that start.
        flight, kv_share: the load at which as many requests are not answered, or as much of the
            cache is in use, as predicted; over what the objective allows. More than that counts in
            proportion.
        backlog: requests that wait for a fleet that has all it can do.
        rates: requests a second of all periods so far, the last one last.
    """

    def __init__(
        self, period_s: float, ready_s: float, rates: Sequence[float] = (), backlog: float = 0.0
    ) -> None:
        self.period_s, self.ready_s = period_s, ready_s
        self.capacity_per_s = self.planned_per_s = 0.0
        self.flight = self.kv_share = 0.0
        self.backlog = backlog
        self.rates: Sequence[float] | F64 = rates


class ScalingPolicy(ABC):
    """Says what load a fleet should carry.

    Args:
        headroom: share of what replicas carry that is to be left.

    Attributes:
        name: as scenarios name it.
    """

    name: ClassVar[str]

    def __init__(self, headroom: float) -> None:
        self.headroom = headroom

    @abstractmethod
    def wanted_per_s(self, view: FleetView) -> float:
        """The rate that replicas should carry."""

    def _proportional(self, view: FleetView, used: float) -> float:
        """As much more or less as a metric is off its target."""
        ratio = used / (1.0 - self.headroom)
        if abs(ratio - 1.0) <= TOLERANCE:
            return max(view.capacity_per_s, view.planned_per_s)
        return view.capacity_per_s * ratio


@final
class QueuePolicy(ScalingPolicy):
    """By requests that are not answered, waiting ones among them."""

    name: ClassVar[str] = "queue"

    def wanted_per_s(self, view: FleetView) -> float:
        return self._proportional(view, view.flight)


@final
class UtilisationPolicy(ScalingPolicy):
    """By the use of the KV cache, which is full at most."""

    name: ClassVar[str] = "utilisation"

    def wanted_per_s(self, view: FleetView) -> float:
        return self._proportional(view, view.kv_share)


@final
class PredictedPolicy(ScalingPolicy):
    """By the load when a replica that starts now serves: the present one, and the growth over
    such a time that was not exceeded nine times of ten; and what waits, within that time.
    """

    name: ClassVar[str] = "predicted"
    QUANTILE: ClassVar[float] = 0.9

    def wanted_per_s(self, view: FleetView) -> float:
        ahead = max(math.ceil((view.ready_s + view.period_s) / view.period_s), 1)
        width = max(round(SMOOTH_S / view.period_s), 1)
        rates = np.asarray(view.rates[-(round(SEEN_S / view.period_s) + ahead + width) :])
        recent_per_s = float(np.mean(rates[-width:]))
        forecast = recent_per_s
        if len(rates) >= 2 * width + ahead:
            sums = np.concatenate(([0.0], np.cumsum(rates)))
            means = (sums[width:] - sums[:-width]) / width
            grown = _quantile(means[ahead:] - means[:-ahead], self.QUANTILE)
            forecast = recent_per_s + max(grown, 0.0)
        waiting = view.backlog / max(view.ready_s, view.period_s)
        return (forecast + waiting) / (1.0 - self.headroom)


def _quantile(values: F64, share: float) -> float:
    """As numpy's, in a tenth of its time for a few hundred values.

    >>> _quantile(np.array([4.0, 1.0, 3.0]), 0.75)
    3.5
    """
    left = math.floor(share * (len(values) - 1))
    right = min(left + 1, len(values) - 1)
    parted = np.partition(values, (left, right))
    low, high = float(parted[left]), float(parted[right])
    return low + (share * (len(values) - 1) - left) * (high - low)


POLICIES: Mapping[str, type[ScalingPolicy]] = {
    policy.name: policy for policy in (QueuePolicy, UtilisationPolicy, PredictedPolicy)
}


def policies_named(names: Sequence[str], field_name: str) -> list[type[ScalingPolicy]]:
    """The policies of some names.

    Raises:
        SilicastError: one is not known.
    """
    for name in names:
        if name not in POLICIES:
            raise unknown_name(f"no policy {name!r:.40}", field_name, f"of {', '.join(POLICIES)}")
    return [POLICIES[name] for name in dict.fromkeys(names)]
