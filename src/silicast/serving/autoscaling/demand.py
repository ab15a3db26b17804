"""What a traffic asks of a fleet in each period."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from silicast.core.errors import over_limit
from silicast.core.numerics import F64
from silicast.serving.traffic.requests import SECOND_NS, Requests

MOST_PERIODS = 20_000
ENOUGH, LONGEST_S = 100.0, 300.0
"""Requests over which a steady rate is a mean, and the longest time of it: the noise of fewer is
already in what a replica does at a steady rate, since its requests came at random times.
"""


@final
@dataclass(frozen=True)
class PeriodDemand:
    """A traffic by periods.

    Attributes:
        arrivals: requests that come in each period, shape (periods,); work: the same in mean
            requests: a request with more tokens counts more; steady: work as a mean over ``width``
            periods around each.
        at_s: of requests in order of arrival, since their period began, shape (requests,); work of
            theirs is ``weights``, that of their prompts alone ``prompts``.
    """

    period_s: float
    arrivals: F64
    work: F64
    steady: F64
    width: int
    at_s: F64
    weights: F64
    prompts: F64

    @staticmethod
    def of_requests(requests: Requests, period_s: float, prompt_share: float) -> PeriodDemand:
        """The demand of requests.

        Args:
            prompt_share: of the time of a mean request that its prompt takes.

        Raises:
            SilicastError: more periods than are simulated.
        """
        span_s = float(requests.arrival_ns.max()) / SECOND_NS
        periods = math.floor(span_s / period_s) + 1
        if periods > MOST_PERIODS:
            raise over_limit(
                f"{span_s:.3g} s are {periods:,} periods of {period_s:g} s, of which at most "
                f"{MOST_PERIODS:,} are followed",
                "workload.autoscale.period_s",
                f"{math.ceil(span_s / (MOST_PERIODS - 1))} or more, or a shorter traffic",
            )
        order = np.argsort(requests.arrival_ns, kind="stable")
        arrival_s = requests.arrival_ns[order] / SECOND_NS
        at = np.minimum((arrival_s / period_s).astype(np.int64), periods - 1)
        inputs, outputs = requests.input_tokens[order], requests.output_tokens[order]
        prompts: F64 = prompt_share * (inputs / inputs.mean())
        weights: F64 = prompts + (1.0 - prompt_share) * (outputs / outputs.mean())
        arrivals = np.bincount(at, minlength=periods).astype(np.float64)
        work: F64 = np.bincount(at, weights, minlength=periods).astype(np.float64)
        wide = min(ENOUGH / max(float(arrivals.mean()), 1e-9), LONGEST_S / period_s)
        width = max(round(wide), 1)
        steady = smoothed(work, width)
        at_s = arrival_s - at * period_s
        return PeriodDemand(period_s, arrivals, work, steady, width, at_s, weights, prompts)

    @cached_property
    def bounds(self) -> list[int]:
        """Where requests of a period begin, and where the last one's end."""
        return [0, *np.cumsum(self.arrivals).astype(np.int64).tolist()]

    @property
    def hours(self) -> float:
        return len(self.arrivals) * self.period_s / 3600.0


def smoothed(values: F64, width: int) -> F64:
    """Means over so many values around each, fewer at the ends; the sum stays.

    >>> smoothed(np.array([0.0, 3.0, 0.0, 0.0]), 3).round(6).tolist()
    [1.285714, 0.857143, 0.857143, 0.0]
    """
    width = min(width, len(values))
    if width < 2:
        return values
    ones = np.ones(width)
    count = np.convolve(np.ones(len(values)), ones, "same")
    means: F64 = np.convolve(values, ones, "same") / count
    scaled: F64 = means * (float(values.sum()) / max(float(means.sum()), 1e-300))
    return scaled


def work_ahead(at_s: F64, weights: F64, before: float, per_s: float, until_s: float) -> F64:
    """The work that is not done when each request comes, and at the end: a fluid queue.

    Args:
        at_s: when requests come, in order; before: work that is not done at 0.
        per_s: work that is done a second.

    >>> work_ahead(np.array([1.0, 1.0, 4.0]), np.array([2.0, 2.0, 2.0]), 1.0, 1.0, 5.0).tolist()
    [0.0, 2.0, 1.0, 2.0]
    """
    came = np.concatenate(([0.0], np.cumsum(weights)))
    unbounded = before + came - per_s * np.append(at_s, until_s)
    ahead: F64 = unbounded - np.minimum(np.minimum.accumulate(unbounded), 0.0)
    return ahead
