"""Lengths of prompts and outputs, drawn from a distribution.

Each length is a number of the distribution, kept within ``min`` and ``max`` where they are given
(what lies beyond counts as the limit itself), rounded to the nearest whole number and at least 1.
The first k of n lengths are the same for every n, where they are not drawn evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from silicast.core.errors import over_limit
from silicast.core.numerics import F64, I64, exp_fixed, log_fixed
from silicast.serving.traffic.even_order import even_order

Numbers = Mapping[str, Any]
"""What a distribution takes, under the names that it has in a scenario."""
Draw = Callable[[np.random.Generator, int], F64]
"""So many numbers of a distribution, each for itself."""

MOST_TOKENS: Final = 100_000_000
ZIPF_RANKS: Final = 1 << 22
"""Lengths that a Zipf distribution may tell apart; their probabilities are kept in memory."""

CANDIDATES: Final = 32
"""Numbers of which each part of a distribution has one that is taken."""

ARRIVALS, INPUTS, OUTPUTS, PREFIXES = range(4)
"""Streams of random numbers: that of the inputs is the same whatever the outputs are."""


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Random numbers of one purpose, which do not depend on how many another one takes.

    >>> float(stream(0, INPUTS).random()) != float(stream(0, OUTPUTS).random())
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose))))


def lengths(
    kind: str, count: int, numbers: Numbers, random: np.random.Generator, even: int | None = None
) -> I64:
    """``count`` lengths in tokens.

    Args:
        kind: ``fixed`` (``value``), ``uniform`` (``min`` to ``max``, both included), ``normal`` and
            ``gamma`` (``mean``, ``std``), ``lognormal`` (``median``, ``sigma`` of the logarithm),
            ``exponential`` (``mean``), ``zipf`` (the r-th length from ``min`` on has a probability
            in proportion to r ** -``exponent``) or ``values`` (a list, in its order and over
            again).
        even: of which purpose they are, to draw them evenly (:func:`evenly`); None = one by one.

    Raises:
        SilicastError: a Zipf distribution over more lengths than are told apart.

    >>> lengths("values", 5, {"values": [7, 9]}, stream(0, INPUTS)).tolist()
    [7, 9, 7, 9, 7]
    >>> lengths("fixed", 2, {"value": 128}, stream(0, INPUTS)).tolist()
    [128, 128]
    """
    draw = _KINDS[kind]
    drawn = (
        draw(random, count, numbers)
        if even is None or kind in IN_ORDER
        else evenly(random, count, even, lambda random, count: draw(random, count, numbers))
    )
    low, high = numbers.get("min", 1), numbers.get("max", MOST_TOKENS)
    return np.rint(np.clip(drawn, low, high)).astype(np.int64)


def in_range(
    length: int, ratio: float, count: int, random: np.random.Generator, even: int | None = None
) -> I64:
    """Lengths from ``ratio`` x ``length`` (rounded down, at least 1) to ``length``, all as likely;
    ``even`` as in :func:`lengths`.

    So does the random data set of SGLang's ``bench_serving`` (``compute_random_lens``, 0.5.23).
    ``vllm bench serve`` means another thing by the same word: from (1 - ratio) to (1 + ratio) x
    length (``RandomDataset``, 0.19.0).

    >>> in_range(1024, 1.0, 2, stream(0, INPUTS)).tolist()
    [1024, 1024]
    >>> drawn = in_range(1000, 0.8, 10_000, stream(0, INPUTS))
    >>> int(drawn.min()), int(drawn.max())
    (800, 1000)
    """
    low = max(int(length * ratio), 1)
    if low == length:
        return np.full(count, length, dtype=np.int64)
    return lengths("uniform", count, {"min": low, "max": length}, random, even)


def _between(random: np.random.Generator, count: int, low: int, high: int) -> I64:
    drawn: I64 = low + np.floor(random.random(count) * (high - low + 1)).astype(np.int64)
    return drawn


def _fixed(_: np.random.Generator, count: int, numbers: Numbers) -> F64:
    return np.full(count, float(numbers["value"]))


def _uniform(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    return _between(random, count, numbers["min"], numbers["max"]).astype(np.float64)


def _normal(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    drawn: F64 = numbers["mean"] + numbers["std"] * random.standard_normal(count)
    return drawn


def _lognormal(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    drawn: F64 = numbers["median"] * exp_fixed(numbers["sigma"] * random.standard_normal(count))
    return drawn


def _gamma(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    mean, std = numbers["mean"], numbers["std"]
    drawn: F64 = mean * unit_gamma(random, count, std / mean)
    return drawn


def unit_gamma(random: np.random.Generator, count: int, cv: float) -> F64:
    """Gamma numbers of mean 1 and coefficient of variation ``cv``; 1 = exponential, 0 = all 1."""
    if cv * cv < np.finfo(np.float64).tiny:
        return np.ones(count)
    shape = 1.0 / (cv * cv)
    drawn: F64 = random.standard_gamma(shape, count) / shape
    return drawn


def even_gamma(random: np.random.Generator, count: int, cv: float) -> F64:
    """As :func:`unit_gamma`, evenly (:func:`evenly`).

    >>> drawn = even_gamma(stream(0, ARRIVALS), 1000, 1.0)
    >>> abs(int((drawn < -np.log(0.9)).sum()) - 100) < 6
    True
    """
    return evenly(random, count, ARRIVALS, lambda random, count: unit_gamma(random, count, cv))


def evenly(random: np.random.Generator, count: int, purpose: int, draw: Draw) -> F64:
    """Numbers of a distribution, one of each of ``count`` parts of it that are as likely (Saliby,
    "Descriptive sampling: a better approach to Monte Carlo simulation", J. Opl Res. Soc. 41, 1990),
    in an order that mixes neighbours evenly too (:func:`.even_order`). What rests on single numbers
    and on runs of a few then differs little from one seed to the next.

    Args:
        draw: so many numbers of the distribution, each for itself.
    """
    parts = np.sort(draw(random, count * CANDIDATES)).reshape(count, CANDIDATES)
    chosen = parts[np.arange(count), random.integers(CANDIDATES, size=count)]
    ordered: F64 = chosen[even_order(random, count, purpose)]
    return ordered


def _exponential(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    return float(numbers["mean"]) * unit_gamma(random, count, 1.0)


def _zipf(random: np.random.Generator, count: int, numbers: Numbers) -> F64:
    ranks = numbers["max"] - numbers["min"] + 1
    if ranks > ZIPF_RANKS:
        raise over_limit(
            f"{ranks} lengths, of which a Zipf distribution tells at most {ZIPF_RANKS} apart",
            "max",
            "another kind of distribution, or a smaller max",
        )
    powers = -numbers["exponent"] * log_fixed(np.arange(1.0, ranks + 1.0))
    weights = exp_fixed(powers * 0.125) ** 2  # the eighth power: exp_fixed ends at -20
    total = np.cumsum((weights * weights) ** 2)
    drawn: F64 = numbers["min"] + np.searchsorted(
        total, random.random(count) * total[-1], side="right"
    ).astype(np.float64)
    return drawn


def _values(_: np.random.Generator, count: int, numbers: Numbers) -> F64:
    return np.resize(np.array(numbers["values"], dtype=np.float64), count)


IN_ORDER: Final = ("fixed", "values")
"""Kinds of lengths that are not drawn."""

_KINDS: dict[str, Callable[[np.random.Generator, int, Numbers], F64]] = {
    "fixed": _fixed,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "gamma": _gamma,
    "exponential": _exponential,
    "zipf": _zipf,
    "values": _values,
}
