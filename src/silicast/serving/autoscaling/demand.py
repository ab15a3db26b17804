"""What a traffic asks of a fleet in each period."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import over_limit
from silicast.core.numerics import F64
from silicast.serving.traffic.requests import SECOND_NS, Requests

MOST_PERIODS = 200_000
ENOUGH, LONGEST_S = 100.0, 300.0
"""Requests over which a rate is smoothed, and the longest time of it: the noise of fewer is already
in what a replica does at a steady rate, since its requests came at random times.
"""


@final
@dataclass(frozen=True)
class PeriodDemand:
    """A traffic by periods; arrays of shape (periods,).

    Attributes:
        arrivals: requests that come; work: the same in mean requests, smoothed: a request with more
            tokens counts more.
        seen: work as it comes, which is what policies see.
    """

    period_s: float
    arrivals: F64
    work: F64
    seen: F64

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
                f"{span_s:.3g} s are {periods} periods, of which at most {MOST_PERIODS} are",
                "workload.autoscale.period_s",
                "a longer period, or a shorter traffic",
            )
        at = np.minimum(
            (requests.arrival_ns / (period_s * SECOND_NS)).astype(np.int64), periods - 1
        )
        prompts, outputs = requests.input_tokens, requests.output_tokens
        weights = prompt_share * (prompts / prompts.mean())
        weights = weights + (1.0 - prompt_share) * (outputs / outputs.mean())
        arrivals = np.bincount(at, minlength=periods).astype(np.float64)
        work: F64 = np.bincount(at, weights, minlength=periods).astype(np.float64)
        width = min(ENOUGH / max(float(arrivals.mean()), 1e-9), LONGEST_S / period_s)
        return PeriodDemand(period_s, arrivals, smoothed(work, max(round(width), 1)), work)

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
