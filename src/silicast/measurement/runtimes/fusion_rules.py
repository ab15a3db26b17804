"""Which of two operators a runtime runs as one, from times of A, B and A + B under noise.

Tensors are tiny, so that an operator of its own costs about what starting one costs; one that runs
in the kernel before it costs its few operations at most. Of what starts an operator

    share = (t(A + B) - t(A)) / (t(N + R) - t(N))

is left, where N is an operator that nothing is joined with and R one that hardly computes: B is
joined if the share is clearly below a half, apart if it is clearly above, else undecided, and no
rule is made of it. Nor is one made where B behind N costs nothing: it was optimised away.

Times of a busy machine are at least those of a quiet one: the mean of the lowest of runs that take
turns is compared, and its error is that of resampled rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from silicast.core.numerics import F64

LIMIT = 0.5
ERRORS = 3.0
LOWEST, LEAST_LOWEST = 0.05, 3
"""Share of a chain's runs that count, and how many of them at least."""
RESAMPLES = 60
LEAST_ROUNDS = 8
Decision = Literal["joined", "apart", "undecided"]


@final
@dataclass(frozen=True, slots=True)
class PairTimes:
    """Times of rounds, shape (rounds, 5): A + B, A, N + B, N and N + R; seconds a repeat."""

    seconds: F64


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """What times say of a pair.

    Attributes:
        share: of the start of an operator that B costs behind A; ``error``: its standard error.
        alone: the same of B behind an operator that nothing is joined with.
    """

    decision: Decision
    share: float
    error: float
    alone: float
    rounds: int


def finding(times: PairTimes) -> Finding:
    """The decision on a pair from the rounds so far.

    >>> quiet = np.tile([5.0, 5.0, 3.0, 2.0, 3.0], (20, 1))
    >>> finding(PairTimes(quiet)).decision
    'joined'
    """
    rounds = len(times.seconds)
    share, alone = _shares(times.seconds)
    draws = np.random.default_rng(0).integers(0, rounds, (RESAMPLES, rounds))
    resampled = np.array([_shares(times.seconds[draw]) for draw in draws])
    # percentiles, for a resampled divisor near zero has no variance
    low, high = np.quantile(resampled, [0.16, 0.84], axis=0)
    error, alone_error = ((high - low) / 2.0).tolist()
    decision: Decision = "undecided"
    if rounds >= LEAST_ROUNDS and alone - ERRORS * alone_error > LIMIT:
        if share + ERRORS * error < LIMIT:
            decision = "joined"
        elif share - ERRORS * error > LIMIT:
            decision = "apart"
    return Finding(decision, share, error, alone, rounds)


def start_s(seconds: F64) -> float:
    """What starting an operator takes, from rounds of any pairs, (rounds, 5).

    >>> round(start_s(np.tile([5.0, 5.0, 3.0, 2.0, 3.5], (20, 1))), 6)
    1.5
    """
    _, _, _, neutral, start = _lowest(seconds).tolist()
    return float(max(start - neutral, 0.0))


def _lowest(seconds: F64) -> F64:
    count = max(LEAST_LOWEST, round(LOWEST * len(seconds)))
    lowest: F64 = np.sort(seconds, axis=0)[:count].mean(axis=0)
    return lowest


def _shares(seconds: F64) -> tuple[float, float]:
    both, first, control, neutral, start = _lowest(seconds).tolist()
    one = max(start - neutral, 1e-30)
    return (both - first) / one, (control - neutral) / one
