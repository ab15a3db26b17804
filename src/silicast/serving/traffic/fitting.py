"""What a scenario states of a traffic, fitted to requests that were seen, with the fit's error.

Every distribution that a scenario has is tried with the moments of what was seen; the one that is
nearest is taken. The error is measured on draws of it, by the code that draws requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64, I64
from silicast.serving.traffic.lengths import INPUTS, lengths, stream
from silicast.serving.traffic.requests import SECOND_NS, Requests
from silicast.serving.traffic.traffic import arrivals

DRAWN: Final = 20_000
SEED: Final = 20261129
POISSON_CV: Final = (0.9, 1.1)
"""Coefficients of variation of gaps that are taken for those of a Poisson process."""
PIECES: Final = 10
"""Parts of the time whose rates are compared."""
QUANTILES: Final = (0.5, 0.9, 0.99)


@final
@dataclass(frozen=True)
class FittedValues:
    """A distribution for what was seen.

    Attributes:
        fields: as a scenario states it.
        distance: the largest difference of the two distribution functions (Kolmogorov, Smirnov).
        errors: "mean", "p50", "p90", "p99" -> that of the fit over what was seen, less 1.
    """

    fields: Mapping[str, Any]
    distance: float
    errors: Mapping[str, float]


@final
@dataclass(frozen=True)
class FittedTraffic:
    """A traffic as a scenario states it.

    Attributes:
        requests: that were seen; arrivals: None where no times are known.
        prefix_share: tokens of prompts that an earlier prompt began with, of all; None = unknown.
        busiest: the rate in the busiest tenth of the time over the mean rate.
        tool_s: from an answer to the next request of its conversation; None = unknown.
    """

    requests: int
    inputs: FittedValues
    outputs: FittedValues
    arrivals: FittedValues | None = None
    prefix_share: float | None = None
    busiest: float = 1.0
    tool_s: FittedValues | None = None

    def workload(self) -> dict[str, Any]:
        """The table ``workload`` of a scenario, without an objective."""
        table: dict[str, Any] = {
            "arrival": dict(self.arrivals.fields if self.arrivals else {"kind": "poisson"}),
            "input_len": dict(self.inputs.fields),
            "output_len": dict(self.outputs.fields),
        }
        if self.prefix_share:
            table["prefix"] = {"hit_ratio": round(self.prefix_share, 4)}
        return table


def fitted_traffic(
    requests: Requests, *, timed: bool = True, tool_s: F64 | None = None
) -> FittedTraffic:
    """Fits what was seen.

    Args:
        timed: arrivals mean something.
        tool_s: waits of clients between an answer and their next request.

    Raises:
        SilicastError: fewer than two requests.
    """
    if len(requests) < 2:
        raise SilicastError("has one request: a traffic needs two at least")
    gaps = busiest = None
    if timed and requests.arrival_ns.max() > requests.arrival_ns.min():
        gaps, busiest = _fitted_gaps(requests.arrival_ns), _busiest(requests.arrival_ns)
    return FittedTraffic(
        requests=len(requests),
        inputs=fitted_lengths(requests.input_tokens),
        outputs=fitted_lengths(requests.output_tokens),
        arrivals=gaps,
        prefix_share=_prefix_share(requests),
        busiest=busiest or 1.0,
        tool_s=None if tool_s is None or len(tool_s) < 2 else _fitted_waits(tool_s),
    )


def fitted_lengths(seen: I64) -> FittedValues:
    """The distribution that is nearest to some lengths.

    >>> fitted_lengths(np.array([128, 128, 128])).fields
    {'kind': 'fixed', 'value': 128}
    """
    if seen.min() == seen.max():
        return FittedValues({"kind": "fixed", "value": int(seen[0])}, 0.0, _errors(seen, seen))
    fits = []
    for fields in _candidates(seen):
        numbers = {name: value for name, value in fields.items() if name != "kind"}
        drawn = lengths(fields["kind"], DRAWN, numbers, stream(SEED, INPUTS))
        fits.append(FittedValues(fields, _distance(seen, drawn), _errors(seen, drawn)))
    return min(fits, key=lambda each: each.distance)


def _candidates(seen: I64) -> Iterator[dict[str, Any]]:
    low, high = int(seen.min()), int(seen.max())
    mean, sd = float(seen.mean()), float(seen.std())
    logs = np.log(seen)
    bounds = {"min": low, "max": high}
    yield {"kind": "uniform", **bounds}
    yield {"kind": "normal", "mean": round(mean, 2), "std": round(sd, 2), **bounds}
    yield {"kind": "gamma", "mean": round(mean, 2), "std": round(sd, 2), **bounds}
    yield {"kind": "exponential", "mean": round(mean, 2), **bounds}
    median, sigma = float(np.exp(logs.mean())), float(logs.std())
    yield {"kind": "lognormal", "median": round(median, 2), "sigma": round(sigma, 4), **bounds}


def _fitted_gaps(at_ns: I64) -> FittedValues:
    """Poisson arrivals, or gaps of a gamma distribution with their own variation."""
    gaps = np.diff(at_ns) / SECOND_NS
    rate = len(gaps) / float(gaps.sum())
    cv = float(gaps.std() / gaps.mean())
    fields: dict[str, Any] = {"kind": "poisson", "rate_per_s": round(rate, 6)}
    if not POISSON_CV[0] <= cv <= POISSON_CV[1]:
        fields = {"kind": "gamma", "rate_per_s": round(rate, 6), "cv": round(cv, 4)}
    drawn = np.diff(arrivals(DRAWN, rate, SEED, cv=float(fields.get("cv", 1.0)))) / SECOND_NS
    return FittedValues(fields, _distance(gaps, drawn), _errors(gaps, drawn))


def _fitted_waits(seen: F64) -> FittedValues:
    """The mean of waits: a scenario states one number for all of them."""
    mean = float(seen.mean())
    alike = np.full(len(seen), mean)
    return FittedValues({"think_time_s": round(mean, 4)}, _distance(seen, alike), {})


def _busiest(at_ns: I64) -> float:
    counts, _ = np.histogram(at_ns, bins=PIECES)
    return float(counts.max() / counts.mean())


def _prefix_share(requests: Requests) -> float | None:
    """Tokens of prompts that an earlier one began with, of all."""
    content = requests.content
    if content is None:
        return None
    repeated = repeated_tokens(content.prompt(request) for request in range(len(requests)))
    return repeated / int(requests.input_tokens.sum())


def repeated_tokens(prompts: Iterable[Iterable[tuple[Hashable, int]]]) -> int:
    """Tokens of prompts that an earlier one began with: what a cache without a limit would hit.

    Args:
        prompts: in their order; of each its pieces: what it is, and its tokens.

    >>> repeated_tokens([[("system", 9), ("a", 3)], [("system", 9), ("b", 3)], [("b", 3)]])
    9
    """
    seen: dict[tuple[int, Hashable], int] = {}
    hits = 0
    for pieces in prompts:
        node = 0
        is_known = True
        for identity, tokens in pieces:
            step = (node, identity)
            if step not in seen:
                seen[step] = len(seen) + 1
                is_known = False
            hits += tokens if is_known else 0
            node = seen[step]
    return hits


def _distance(seen: F64 | I64, drawn: F64 | I64) -> float:
    """The largest difference of two empirical distribution functions.

    >>> _distance(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    at = np.unique(np.concatenate([seen, drawn]))
    first, second = (
        np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (seen, drawn)
    )
    return float(np.abs(first - second).max())


def _errors(seen: F64 | I64, drawn: F64 | I64) -> dict[str, float]:
    pairs = {"mean": (seen.mean(), drawn.mean())}
    pairs |= {f"p{q * 100:g}": (np.quantile(seen, q), np.quantile(drawn, q)) for q in QUANTILES}
    return {name: float(b / a - 1.0) for name, (a, b) in pairs.items() if a > 0.0}
