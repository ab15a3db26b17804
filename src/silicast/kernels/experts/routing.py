"""How many tokens each expert of the busiest rank gets, under the routing distributions in use.

A distribution is a name: ``balanced`` (every expert gets as much, as kernels are usually timed),
``uniform`` (tokens choose at random among equally popular experts, what a balancing loss trains a
router for: some experts stay unused, and one rank has most), ``power_law_<alpha>`` (measurement
campaigns of aiconfigurator draw expert popularities from a power law between 1 and 0.8 tokens,
round them to whole tokens and measure the rank with the largest sum), the same with ``_eplb``
(ranks balanced by replicas, experts not), or a histogram with one share an expert.

The loads of one rank are given as a few points with weights: sums over experts become sums over
points, whatever the number of experts. Everything here is elementwise or in a fixed order.

>>> from silicast.workload.graphs.op import Variant
>>> loads = busiest_loads("balanced", *(np.array([x]) for x in (64, 8, 2, 4)))
>>> [round(float(x), 2) for x in (loads.experts_hit()[0], loads.tokens()[0])]
[2.0, 32.0]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import final

import numpy as np
from msgspec import Struct

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.numerics import F64, I64, exp_fixed, folded, log_fixed

POINTS = 24
"""Points that stand for the experts of a rank under a power law or a long histogram."""

DRAWS = 24
"""Random assignments of experts to ranks over which the busiest rank's make-up is averaged."""

REFERENCE_RANGE = 1000.0
"""Largest over smallest popularity at which the busiest rank's make-up is found."""

LARGEST_SHARE = 0.8
"""Of all tokens, to the most popular expert, before normalisation (aiconfigurator's choice)."""

SPARSE_RANGE = (0.01, 2.0)
"""Popularities where there are no more assignments than experts (aiconfigurator's choice)."""

_POWER_LAW = re.compile(r"power_law(?:_sampled)?_(\d+(?:\.\d+)?)(_eplb)?")
_NORMAL = (
    -1.8627, -1.3180, -1.0100, -0.7764, -0.5798, -0.4023, -0.2372, -0.0784,
    0.0784, 0.2372, 0.4023, 0.5798, 0.7764, 1.0100, 1.3180, 1.8627,
)  # fmt: skip
"""Midpoint quantiles of the standard normal distribution, 16 of equal weight."""


@final
class ExpertLoads(Struct, frozen=True):
    """Tokens of the experts of one rank: arrays of shape (points, rows).

    Attributes:
        tokens_each: of the experts that a point stands for; 0 = not used.
        weight: how many experts it stands for.
    """

    tokens_each: F64
    weight: F64

    def tokens(self) -> F64:
        """Assignments of the rank, shape (rows,)."""
        return folded(self.tokens_each * self.weight)

    def experts_hit(self) -> F64:
        """Experts with at least one token, shape (rows,); below one token, its probability."""
        return folded(np.minimum(self.tokens_each, 1.0) * self.weight)

    def experts(self) -> F64:
        """Experts of the rank, shape (rows,)."""
        return folded(self.weight + np.zeros_like(self.tokens_each))

    def tiles(self, sizes: F64) -> F64:
        """Tiles that all experts of the rank need, padding included.

        Args:
            sizes: tokens in one tile, shape (sizes,).

        Returns:
            Shape (sizes, rows).
        """
        rows = self.tokens_each[:, None, :]
        whole = np.minimum(np.ceil(rows * (1.0 / sizes)[:, None]), rows)
        return folded(whole * self.weight[:, None, :])


def check_distribution(name: str) -> None:
    """Refuses a name that is no distribution.

    Raises:
        SilicastError: what is known.
    """
    if name in ("balanced", "uniform") or _POWER_LAW.fullmatch(name):
        return
    if name.startswith("histogram:"):
        _histogram(name)
        return
    raise unknown_name(
        f"unknown routing distribution {name!r}",
        "distribution",
        "balanced, uniform, power_law_1.01, power_law_1.2, ... or one share an expert",
    )


def busiest_loads(name: str, tokens: I64, experts: I64, topk: I64, ep: I64) -> ExpertLoads:
    """Loads of the experts on the busiest rank; all arguments of shape (rows,).

    Args:
        name: the distribution.
        tokens: entering the layer over its expert-parallel group.
        experts, topk: of the whole layer; no more than ``experts`` are chosen.
        ep: ranks that share the experts; where it does not divide them, the rank with most.

    Raises:
        SilicastError: an unknown distribution, or a histogram for another number of experts.
    """
    check_distribution(name)
    chosen = np.minimum(topk, experts)
    if name == "balanced":
        return _balanced(tokens, experts, chosen, ep)
    if name == "uniform":
        return _uniform(tokens, experts, chosen, ep)
    if name.startswith("histogram:"):
        return _from_histogram(name, tokens, experts, chosen, ep)
    match = _POWER_LAW.fullmatch(name)
    assert match is not None
    return _power_law(float(match[1]), bool(match[2]), tokens, experts, chosen, ep)


def _balanced(tokens: I64, experts: I64, topk: I64, ep: I64) -> ExpertLoads:
    """Every expert gets the same number of tokens, or one more."""
    assignments = tokens * topk
    local = -(-experts // ep)
    even, left = np.divmod(assignments, experts)
    more = np.minimum(-(-left // ep), local)
    values = np.stack((even, even + 1)).astype(np.float64)
    return ExpertLoads(values, np.stack((local - more, more)).astype(np.float64))


def experts_used(tokens: I64, experts: I64, topk: I64) -> F64:
    """Expected experts of a layer that get a token at all, where tokens choose at random.

    >>> round(float(experts_used(np.array([32]), np.array([128]), np.array([4]))[0]), 1)
    81.7
    """
    missed = np.maximum(1.0 - topk / experts, 1e-9)
    return experts * (1.0 - exp_fixed(np.maximum(tokens * log_fixed(missed), -20.0)))


def _uniform(tokens: I64, experts: I64, topk: I64, ep: I64) -> ExpertLoads:
    """Independent choices: a normal spread of loads; below one token, a share of the experts.

    Of ``ep`` ranks the one with most assignments is also taken to be the one with most experts in
    use: their expected largest, both a sum of nearly independent counts.
    """
    assignments = (tokens * topk).astype(np.float64)
    share = topk / experts
    mean = assignments / experts
    variance = mean * np.maximum(1.0 - share, 0.0)
    local = (-(-experts // ep)).astype(np.float64)
    hit = experts_used(tokens, experts, topk) / experts
    used = largest_count(local * hit, local * hit * (1.0 - hit), 1.0 - 2.0 * hit, ep)
    used = np.minimum(np.minimum(used, local), assignments)
    most = largest_count(local * mean, local * variance, np.ones_like(mean), ep)
    total = np.minimum(np.minimum(np.maximum(most, used), assignments), used * tokens)
    points = np.array(_NORMAL)[:, None]
    spread = np.maximum(mean / hit + points * np.sqrt(variance), 1.0)
    # an expert in use has one token; what there is beyond that spreads over them
    beyond = spread - 1.0
    spare = np.maximum(total / used - 1.0, 0.0)
    scale = spare / np.maximum(folded(beyond) * (1.0 / len(_NORMAL)), 1e-12)
    loads = np.minimum(1.0 + beyond * scale, tokens)
    loads = np.concatenate((loads, np.zeros_like(loads[:1])))
    weight = np.concatenate(
        (np.broadcast_to(used / 16.0, spread.shape), np.maximum(local - used, 0.0)[None, :])
    )
    return ExpertLoads(loads, weight)


def largest_count(mean: F64, variance: F64, skew: F64, of: I64) -> F64:
    """Expected largest of ``of`` alike counts, each a sum of many rare events.

    The normal quantile with the first term of Cornish and Fisher (1938); ``skew`` is the third
    central moment over the variance: 1 for Poisson counts, 1 - 2 p for binomial ones.
    """
    z = largest_normal(of)
    deviation = np.sqrt(variance)
    tail = np.where(of > 1, (z * z - 1.0) * skew * (1.0 / 6.0), 0.0)
    largest_count: F64 = mean + z * deviation + np.maximum(tail, 0.0)
    return largest_count


def largest_normal(count: I64) -> F64:
    """Expected largest of ``count`` standard normal draws, within 5 %, from four on 2 %.

    Blom's position (1958) at the quantile of Abramowitz and Stegun 26.2.23.

    >>> [round(float(x), 2) for x in largest_normal(np.array([1, 2, 8, 64]))]
    [0.0, 0.59, 1.43, 2.34]
    """
    beyond = 0.625 / (count + 0.25)
    t = np.sqrt(-2.0 * log_fixed(np.minimum(beyond, 0.5)))
    value = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    )
    return np.where(count > 1, value, 0.0)


def _power_law(
    alpha: float, level: bool, tokens: I64, experts: I64, topk: I64, ep: I64
) -> ExpertLoads:
    """Loads of the busiest rank; see the module's description."""
    assignments = (tokens * topk).astype(np.float64)
    sparse = assignments <= experts
    smallest = np.where(sparse, SPARSE_RANGE[0], 1.0)
    largest = np.where(sparse, SPARSE_RANGE[1], LARGEST_SHARE * tokens)
    span = np.maximum(largest / smallest, 1.0)
    even = ((np.arange(POINTS) + 0.5) / POINTS)[:, None]
    positions = even + np.zeros(len(tokens))
    weight = (-(-experts // ep)).astype(np.float64) / POINTS + np.zeros_like(positions)
    if level or (ep == 1).all():
        popularity = _quantile(positions, span, alpha)
        busiest = popularity
    else:
        positions, scale = _places(experts, ep, alpha)
        both = _quantile(np.concatenate((even + np.zeros_like(positions), positions)), span, alpha)
        popularity, busiest = both[:POINTS], both[POINTS:] * scale
    unit = assignments / (folded(popularity) * (1.0 / POINTS) * experts)
    rounded = np.minimum(np.floor(popularity * unit + 0.5), tokens)
    missing = assignments - folded(rounded) * (1.0 / POINTS) * experts
    loads = np.floor(busiest * unit + 0.5)
    # what rounding lost goes to the most popular experts, one token each, over and over
    width = experts * (1.0 / POINTS)
    first = np.minimum(np.maximum(missing, 0.0), experts)
    rank = (1.0 - positions) * experts - 0.5 * width
    loads = loads + np.minimum(np.maximum((first - rank) / width, 0.0), 1.0)
    return ExpertLoads(np.minimum(np.maximum(loads, 0.0), tokens), weight)


def _quantile(positions: F64, span: F64, alpha: float) -> F64:
    """Value over the smallest of a power law between 1 and ``span``, at ``positions`` in (0, 1)."""
    log_span = log_fixed(span)
    if alpha == 1.0:
        return exp_fixed(positions * log_span)
    slope = 1.0 - alpha
    inner = 1.0 + positions * (exp_fixed(slope * log_span) - 1.0)
    return exp_fixed(log_fixed(inner) * (1.0 / slope))


def _places(experts: I64, ep: I64, alpha: float) -> tuple[F64, F64]:
    """Places in the popularity order of the busiest rank's experts, and their scale."""
    columns = [
        _composition(int(e), int(p), alpha)
        for e, p in zip(experts.tolist(), ep.tolist(), strict=True)
    ]
    positions = np.stack([column[0] for column in columns], axis=1)
    return positions, np.array([column[1] for column in columns])


@lru_cache(maxsize=4096)
def _composition(experts: int, ep: int, alpha: float) -> tuple[F64, float]:
    """Where in the popularity order the experts of the busiest of ``ep`` ranks lie.

    Found once per group size from fixed draws. The scale makes up for the sum of all popularities
    being larger where the busiest rank's are.
    """
    even = (np.arange(POINTS) + 0.5) / POINTS
    local = experts // ep
    if ep == 1 or local == 0:
        return even, 1.0
    generator = np.random.default_rng(20_25)
    draws = max(DRAWS, -(-2 * POINTS // local))
    positions = generator.random((draws, ep, local))
    span = np.full(positions.size, REFERENCE_RANGE)
    popularity = _quantile(positions.reshape(-1), span, alpha).reshape(positions.shape)
    sums = folded(np.moveaxis(popularity, 2, 0))
    busiest = np.argmax(sums, axis=1)
    rows = np.arange(draws)
    share = float(folded((sums[rows, busiest] / folded(sums.T))[:, None])[0]) / draws
    pooled = np.sort(positions[rows, busiest].reshape(-1))
    middle = pooled[((np.arange(POINTS) + 0.5) * (len(pooled) / POINTS)).astype(np.int64)]
    flat = _quantile(even, np.full(POINTS, REFERENCE_RANGE), alpha)
    quantile = _quantile(middle, np.full(POINTS, REFERENCE_RANGE), alpha)
    naive = float(folded(quantile[:, None])[0] / folded(flat[:, None])[0]) / ep
    return middle, share / naive


def histogram_name(shares: Iterable[float]) -> str:
    """The name of a histogram: the form in which an op's variant carries it.

    >>> histogram_name((3, 1.5))
    'histogram:3,1.5'
    """
    return "histogram:" + ",".join(f"{share:.9g}" for share in shares)


def routing_name(
    stated: str | Sequence[float] | None, experts: int | None = None, field: str = "routing"
) -> str:
    """The name of a distribution as a user states it.

    Args:
        stated: a name, or one share an expert; None = balanced.
        experts: that a histogram must have shares for, where they are known.
        field: where it is stated.

    Raises:
        SilicastError: no such distribution, shares that are none, or of another number of experts.

    >>> routing_name(None), routing_name([3, 1])
    ('balanced', 'histogram:3,1')
    """
    name = stated or "balanced"
    name = name.strip().casefold() if isinstance(name, str) else histogram_name(name)
    try:
        check_distribution(name)
    except SilicastError as error:
        raise SilicastError(error.message, field=field, hint=error.hint) from None
    shares = name.count(",") + 1
    if experts is not None and name.startswith("histogram:") and shares != experts:
        raise SilicastError(
            f"expected one share for each of {experts} experts, found {shares}",
            field=field,
            hint="of one rank's experts, where ranks share them",
        )
    return name


@lru_cache(maxsize=256)
def _histogram(name: str) -> F64:
    try:
        shares = np.array([float(x) for x in name.removeprefix("histogram:").split(",")])
    except ValueError:
        shares = np.array([-1.0])
    total = folded(shares[:, None])[0]
    if not ((shares >= 0.0).all() and np.isfinite(total) and total > 0.0):
        raise SilicastError(
            "a histogram holds one share an expert, none negative and not all of them zero",
            field="distribution",
            hint="for example [3, 1, 1, 1]",
        )
    histogram: F64 = shares / total
    return histogram


def _from_histogram(name: str, tokens: I64, experts: I64, topk: I64, ep: I64) -> ExpertLoads:
    """Contiguous ranks of experts; the rank with the largest sum."""
    shares = _histogram(name)
    if (experts != len(shares)).any():
        raise SilicastError(
            f"a histogram of {len(shares)} shares for {int(experts[experts != len(shares)][0])} "
            "experts",
            field="distribution",
        )
    columns = [_busiest_shares(name, int(p)) for p in ep.tolist()]
    points = max(len(column) for column in columns)
    table = np.stack([np.pad(c, (0, points - len(c))) for c in columns], axis=1)
    loads = np.minimum(table * (tokens * topk), tokens)
    return ExpertLoads(loads, np.ones_like(loads))


@lru_cache(maxsize=1024)
def _busiest_shares(name: str, ep: int) -> F64:
    shares = _histogram(name)
    local = -(-len(shares) // ep)
    ranks = np.pad(shares, (0, local * ep - len(shares))).reshape(ep, local)
    busiest: F64 = ranks[int(np.argmax(folded(np.ascontiguousarray(ranks.T))))]
    return busiest
