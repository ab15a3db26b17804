"""When requests arrive, and what the prompts of users and conversations have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.core.errors import over_limit
from silicast.core.numerics import F64, I64, exp_fixed, log_fixed
from silicast.serving.traffic.lengths import ARRIVALS, PREFIXES, even_gamma, stream, unit_gamma
from silicast.serving.traffic.requests import SECOND_NS, Content, Requests

MOST_SEGMENTS = 1 << 26
"""Segments of all prompts: 16 bytes each in the end, several times that while they are made."""
_LATEST_S = 1e9


@final
@dataclass(frozen=True)
class Traffic:
    """Requests, and what was left out or assumed on the way to them."""

    requests: Requests
    remarks: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Ramp:
    """A rate that changes from the first request to the last, by the number of the request."""

    to_per_s: float
    exponential: bool = False

    def rates(self, from_per_s: float, count: int) -> F64:
        """Rate at which each of ``count`` requests is waited for.

        >>> Ramp(8.0, exponential=True).rates(2.0, 3).round(6).tolist()
        [2.0, 4.0, 8.0]
        """
        progress = np.arange(count) / max(count - 1, 1)
        if not self.exponential:
            linear: F64 = from_per_s + (self.to_per_s - from_per_s) * progress
            return linear
        growth = log_fixed(np.array([self.to_per_s]))[0] - log_fixed(np.array([from_per_s]))[0]
        exponential: F64 = from_per_s * exp_fixed(growth * progress)
        return exponential


def arrivals(
    count: int,
    rate_per_s: float,
    seed: int = 0,
    *,
    cv: float = 1.0,
    burst: int = 1,
    ramp: Ramp | None = None,
    exact_rate: bool = False,
    even: bool = False,
) -> I64:
    """Times of ``count`` arrivals in nanoseconds; the first comes after a gap of its own.

    Gaps are gamma numbers of mean 1 divided by the rate, so that one seed gives the same pattern
    at every rate, faster or slower. Without a ramp, ``exact_rate`` and ``even`` the first k do not
    depend on how many there are.

    Args:
        rate_per_s: arrivals a second in the mean.
        cv: coefficient of variation of the gaps; 1 = a Poisson process.
        burst: arrivals at the same moment; gaps are between bursts.
        exact_rate: stretch the gaps so that the last arrival comes at count / rate_per_s.
        even: gaps from all parts of their distribution alike (:func:`.even_gamma`).

    Raises:
        SilicastError: the last one would arrive after more than 30 years.

    >>> arrivals(4, 2.0, cv=0.0).tolist()
    [500000000, 1000000000, 1500000000, 2000000000]
    """
    bursts = -(-count // burst)
    rate = np.full(bursts, rate_per_s) if ramp is None else ramp.rates(rate_per_s, bursts)
    drawn = (even_gamma if even else unit_gamma)(stream(seed, ARRIVALS), bursts, cv)
    with np.errstate(over="ignore", invalid="ignore"):  # at a rate next to nothing
        times = np.cumsum(drawn * (burst / rate))
        if exact_rate and times[-1] > 0.0:
            times *= count / rate_per_s / times[-1]
    last = float(np.nan_to_num(times[-1], nan=np.inf))
    if not last < _LATEST_S:
        raise over_limit(
            f"the last of {count} requests arrives after {last:.3g} s",
            "rate_per_s",
            "a higher rate, or fewer requests",
        )
    at = np.rint(times * SECOND_NS).astype(np.int64)
    return np.repeat(at, burst)[:count] if burst > 1 else at


@final
@dataclass(frozen=True)
class RateStage:
    """Arrivals at one rate for a time.

    >>> RateStage(2.5, 4.0).count
    10
    """

    rate_per_s: float
    duration_s: float

    @property
    def count(self) -> int:
        """Arrivals, rounded; at least one."""
        return max(round(self.rate_per_s * self.duration_s), 1)


def staged_arrivals(
    stages: Sequence[RateStage], seed: int = 0, *, cv: float = 1.0, burst: int = 1
) -> I64:
    """Times of all arrivals of stages one after the other, in nanoseconds: each stage has its
    number of them, the last at its end.

    >>> staged_arrivals([RateStage(2.0, 1.0), RateStage(4.0, 1.0)], cv=0.0).tolist()
    [500000000, 1000000000, 1250000000, 1500000000, 1750000000, 2000000000]
    """
    times, start_s = [], 0.0
    for number, stage in enumerate(stages):
        rate_per_s = stage.count / stage.duration_s
        within = arrivals(
            stage.count, rate_per_s, seed + number, cv=cv, burst=burst, exact_rate=True
        )
        times.append(within + round(start_s * SECOND_NS))
        start_s += stage.duration_s
    return np.concatenate(times)


@final
@dataclass(frozen=True)
class Prefixes:
    """Which text each prompt begins with, and for how many tokens; arrays of shape (n,), int64."""

    group: I64
    tokens: I64

    @staticmethod
    def of_length(prompts: I64, length: int, groups: int = 1, seed: int = 0) -> Prefixes:
        """``groups`` texts of ``length`` tokens; each prompt begins with one, all as likely.

        A prompt shorter than that is a part of it.
        """
        drawn = stream(seed, PREFIXES).random(len(prompts)) * groups
        return Prefixes(np.floor(drawn).astype(np.int64), np.minimum(prompts, length))

    @staticmethod
    def of_ratio(prompts: I64, hit_ratio: float) -> Prefixes:
        """One text, of which each prompt begins with as much as ``hit_ratio`` of its tokens."""
        shared = np.rint(prompts * hit_ratio).astype(np.int64)
        return Prefixes(np.zeros(len(prompts), dtype=np.int64), shared)


@final
@dataclass(frozen=True)
class Turns:
    """Conversations: request i is turn i % count + 1 of conversation i // count.

    Attributes:
        count: turns of a conversation; the last one may have fewer.
        think_ns: from an answer to the next prompt.
        users: each has one conversation after the other; 0 = conversations come by themselves.
    """

    count: int
    think_ns: int = 0
    users: int = 0

    def prompts(self, new: I64, outputs: I64) -> I64:
        """Tokens of each prompt: all that was said before in its conversation, and its own.

        >>> one, two = np.array([10, 20, 30, 40]), np.array([1, 2, 3, 4])
        >>> Turns(3).prompts(one, two).tolist()
        [10, 31, 63, 40]
        """
        before = np.cumsum(new + outputs) - new - outputs
        start, _ = self._places(len(new))
        prompts: I64 = before - before[start] + new
        return prompts

    def waits(self, count: int) -> tuple[I64, I64]:
        """(the request whose answer each of ``count`` waits for or -1, the pause after it in ns).

        >>> [each.tolist() for each in Turns(2, think_ns=5, users=1).waits(4)]
        [[-1, 0, 1, 2], [0, 5, 0, 5]]
        """
        order, (_, turn) = np.arange(count), self._places(count)
        earlier = order - self.users * self.count + self.count - 1
        has_earlier = (order >= self.users * self.count) & (self.users > 0)
        after = np.where(turn > 0, order - 1, np.where(has_earlier, earlier, -1))
        return after, np.where(turn > 0, self.think_ns, 0)

    def starts(self, times: I64, count: int) -> I64:
        """Times of the conversations, for each of ``count`` requests."""
        return np.repeat(times, self.count)[:count]

    def _places(self, count: int) -> tuple[I64, I64]:
        """(first request of its conversation, turn from 0) of each request."""
        order = np.arange(count)
        turn = order % self.count
        return order - turn, turn

    def content(self, new: I64, outputs: I64, prefixes: Prefixes | None) -> Content | None:
        """What the prompts have in common; None = nothing.

        Args:
            new: tokens that each prompt adds; of a first turn its prefix is a part.
            prefixes: of first turns; those of later ones are not read.

        Raises:
            SilicastError: more segments than are kept in memory.
        """
        count = len(new)
        start, turn = self._places(count)
        order = np.arange(count)
        if prefixes is None:
            group = shared = np.zeros(count, dtype=np.int64)
        else:
            group, shared = prefixes.group, np.where(turn == 0, prefixes.tokens, 0)
        if self.count == 1 and not shared.any():
            return None
        # A text that no later prompt repeats needs no name: those of a conversation's last turn.
        last = (turn == self.count - 1) | (order == count - 1)
        texts, answers = np.where(last, 0, new - shared), np.where(last, 0, outputs)
        first = int(group.max()) + 1
        names = np.stack((group, first + 2 * order, first + 2 * order + 1), axis=1).ravel()
        tokens = np.stack((shared, texts, answers), axis=1).ravel()
        sizes = (
            3 * turn + 2
        )  # (prefix, text, answer) of each turn before, prefix and text of its own
        total = int(sizes.sum())
        if total > MOST_SEGMENTS:
            raise over_limit(
                f"{count} prompts of up to {self.count} turns consist of {total} texts, "
                f"of which at most {MOST_SEGMENTS} are kept",
                "turns",
                "fewer turns or requests",
            )
        begin = np.cumsum(sizes) - sizes
        chain = np.arange(total) - np.repeat(begin - 3 * start, sizes)
        filled = tokens[chain] > 0
        ends = np.cumsum(np.add.reduceat(filled, begin, dtype=np.int64))
        chain = chain[filled]
        return Content(
            names[chain],
            tokens[chain],
            np.concatenate((np.zeros(1, dtype=np.int64), ends)),
            np.where(last, -1, first + 2 * order + 1),
        )
