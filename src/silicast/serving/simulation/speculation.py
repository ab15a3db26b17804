"""Drafted tokens: how many of them a step keeps.

A step verifies drafted tokens of each decoding sequence: the first ones are kept until one is not
what the model says itself, and that one takes its place, so that a step brings at least one token.
Whether a draft is kept is drawn for each request and the number of tokens that it has: the same
request gains the same tokens whatever runs beside it, at any pace.
"""

from __future__ import annotations

import math
from itertools import accumulate
from operator import mul
from typing import final

import numpy as np

from silicast.core.numerics import I64, mixed_bits, uniform_of
from silicast.core.records import dataclass


@final
@dataclass(frozen=True)
class Acceptance:
    """Chances that drafted tokens are kept.

    Attributes:
        rates: of each drafted token by its place, where all before it were kept; 0 to 1.
        seed: of the draws.
        log_sd: standard deviation of the log of the true acceptance length over :attr:`mean`.

    >>> Acceptance((0.8, 0.5)).mean        # 1 + 0.8 + 0.8 x 0.5
    2.2
    >>> Acceptance((1.0, 1.0)).tokens(np.array([0, 7]), np.array([1, 5])).tolist()
    [3, 3]
    """

    rates: tuple[float, ...]
    seed: int = 0
    log_sd: float = 0.0

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
        remaining, tokens = (
            np.ones(len(requests), dtype=bool),
            np.ones(len(requests), dtype=np.int64),
        )
        for rate in self.rates:
            state = mixed_bits(state)
            remaining &= uniform_of(state) < rate
            tokens += remaining
        return tokens
