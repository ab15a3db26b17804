"""Drafted tokens: how many of them a step keeps.

A step verifies drafted tokens of each decoding sequence: the first ones are kept until one is not
what the model says itself, and that one takes its place, so that a step brings at least one token.
Whether a draft is kept is drawn for each request and the number of tokens that it has: the same
request gains the same tokens whatever runs beside it, at any pace. Some texts are foreseen better
than others: each request draws a class with an acceptance length of its own. All tokens over all
steps are the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import mul
from statistics import NormalDist
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64, mixed_bits, uniform_of

_COUNTED = 128
"""Tokens of a sequence up to which its steps are counted one by one."""
_NEVER = 1e-12
_CLASSES = 64
_NORMAL_CLASSES = np.array([NormalDist().inv_cdf((i + 0.5) / _CLASSES) for i in range(_CLASSES)])
"""Of a normal quantity, the middle of each of so many equally frequent classes."""


@final
@dataclass(frozen=True)
class Acceptance:
    """Chances that drafted tokens are kept.

    Attributes:
        rates: of each drafted token by its place, where all before it were kept; 0 to 1.
        seed: of the draws.
        log_sd: standard deviation of the log of the true acceptance length over :attr:`mean`.
        request_log_sd: of requests' acceptance lengths around it.

    >>> Acceptance((0.8, 0.5)).mean        # 1 + 0.8 + 0.8 x 0.5
    2.2
    >>> Acceptance((1.0, 1.0)).tokens(np.array([0, 7]), np.array([1, 5])).tolist()
    [3, 3]
    """

    rates: tuple[float, ...]
    seed: int = 0
    log_sd: float = 0.0
    request_log_sd: float = 0.0

    @property
    def mean(self) -> float:
        """Acceptance length: tokens that a step brings on average, the model's own included."""
        return 1.0 + math.fsum(accumulate(self.rates, mul))

    def tokens(self, requests: I64, made: I64) -> I64:
        """Tokens that a step brings to each of n requests, shape (n,), from 1 to drafts + 1.

        Args:
            requests: their numbers; ``made``: tokens that each has.
        """
        start = mixed_bits(np.full(len(requests), self.seed, dtype=np.int64).view(np.uint64))
        state = mixed_bits(mixed_bits(start ^ requests.view(np.uint64)) ^ made.view(np.uint64))
        accepted, tokens = (
            np.ones(len(requests), dtype=bool),
            np.ones(len(requests), dtype=np.int64),
        )
        rates = class_rates(self.rates, self.request_log_sd)
        drawn = uniform_of(mixed_bits(mixed_bits(~start) ^ requests.view(np.uint64)))
        kind = (drawn * len(rates)).astype(np.int64)
        for index in range(len(self.rates)):
            state = mixed_bits(state)
            accepted &= uniform_of(state) < rates[kind, index]
            tokens += accepted
        return tokens


@cache
def steps_until(acceptance: Acceptance, tokens: int, sequences: int) -> float:
    """Expected steps until the slowest of independent sequences has so many tokens, >= 1 each.

    Summed over the number of tokens after each step up to :data:`_COUNTED` tokens; beyond, a
    sequence's steps are normal, with the mean and variance of a renewal process whose last step may
    bring more than is needed.

    >>> steps_until(Acceptance((0.5,)), 2, 1)        # half of the first steps bring both
    1.5
    >>> steps_until(Acceptance((0.5,)), 2, 2)        # a quarter of the pairs needs one step
    1.75
    """
    rates = class_rates(acceptance.rates, acceptance.request_log_sd)
    reached = np.concatenate((np.ones((len(rates), 1)), rates.cumprod(axis=1)), axis=1)
    chances = reached - np.concatenate((reached[:, 1:], np.zeros((len(rates), 1))), axis=1)
    if tokens > _COUNTED:
        return _normal_steps(chances, tokens, sequences)
    made = np.zeros((len(rates), tokens))
    made[:, 0] = 1.0
    steps, unfinished = 0.0, 1.0
    while unfinished > _NEVER:
        steps += unfinished
        after = np.zeros_like(made)
        for brought in range(1, min(chances.shape[1], tokens - 1) + 1):
            after[:, brought:] += chances[:, brought - 1, None] * made[:, :-brought]
        made = after
        late = min(float(made.sum(axis=1).mean()), 1.0)
        unfinished = -math.expm1(sequences * math.log1p(-late)) if late < 1.0 else 1.0
    return steps


def _normal_steps(chances: F64, tokens: int, sequences: int) -> float:
    """:func:`steps_until` of many tokens; ``chances``: of one token, two, ..., (classes, n)."""
    brought = np.arange(1.0, chances.shape[1] + 1.0)
    mean, square = chances @ brought, chances @ brought**2
    usual = tokens / mean + (square - mean) / (2.0 * mean**2)
    variance = np.maximum(square - mean**2, 0.0)
    sd = np.maximum(np.sqrt(tokens * variance / mean**3), 1e-9 * usual)
    low, high = float((usual - 8.0 * sd).min()), float((usual + 8.0 * sd).max())
    grid = np.linspace(low, high, 1025)
    below = np.array(
        [
            np.mean([_normal_below((each - m) / s) for m, s in zip(usual, sd, strict=True)])
            for each in grid
        ]
    )
    late = 1.0 - below**sequences
    return low + float((late[1:] + late[:-1]).sum() / 2.0 * (high - low) / (len(grid) - 1))


def _normal_below(deviation: float) -> float:
    return 0.5 * math.erfc(-deviation / math.sqrt(2.0))


@cache
def class_rates(rates: tuple[float, ...], request_log_sd: float) -> F64:
    """Rates of equally frequent classes of requests, shape (classes, drafts)."""
    usual = np.array(rates, dtype=np.float64)
    mean = 1.0 + float(usual.cumprod().sum())
    most = 1.0 + float((usual > 0.0).cumprod().sum())
    if not request_log_sd or not 1.0 < mean < most or usual.max() >= 1.0:
        return usual[None, :]
    spread = np.exp(request_log_sd * _NORMAL_CLASSES)
    # all requests have as many tokens, so that their steps add up: the mean is harmonic
    scale = _root(lambda log: mean / _harmonic(_bound(math.exp(log) * spread, most)) - 1.0)
    lengths = _bound(math.exp(scale) * spread, most)
    return np.array([_with_length(usual, float(length)) for length in lengths])


def _bound(lengths: F64, most: float) -> F64:
    result: F64 = np.clip(lengths, 1.0 + 1e-6, most - 1e-6)
    return result


def _harmonic(lengths: F64) -> float:
    return float(1.0 / np.mean(1.0 / lengths))


def _with_length(rates: F64, length: float) -> F64:
    """Rates to one power, with an acceptance length."""

    def power(log: float) -> F64:
        result: F64 = rates ** math.exp(-log)
        return result

    log = _root(lambda log: length - 1.0 - float(power(log).cumprod().sum()))
    return power(log)


def _root(falls: Callable[[float], float]) -> float:
    """Where a falling function is 0."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if falls(middle) > 0.0 else (low, middle)
    return low
