"""Collectives as rounds of messages: ring, binomial tree, halving-doubling, direct.

Formulas of a uniform network with latency ``a`` a message and ``B`` bytes/s a rank, for ``n`` ranks
and ``S`` bytes, are in the table of docs/explanation/network-simulation.md (Thakur, Rabenseifner
and Gropp, "Optimization of collective communication operations in MPICH", 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import numpy as np

from silicast.communication.flows.job import Round
from silicast.core.errors import SilicastError, unsupported
from silicast.core.numerics import I64

Method = Literal["ring", "tree", "halving_doubling", "direct"]


def rounds_of(op: str, method: Method, gpus: int, size: float) -> tuple[Round, ...]:
    """The rounds of a collective between ranks 0 to ``gpus`` - 1; none of one alone.

    Args:
        op: all_reduce, all_gather, reduce_scatter, all_to_all or broadcast (from rank 0).
        method: by which algorithm.
        size: bytes as nccl-tests counts them (all_gather: the output, reduce_scatter: the input,
            all_to_all: one rank's buffer).

    Raises:
        SilicastError: no such rounds, no ranks, or not a power of two for halving-doubling.

    >>> [each.repeat for each in rounds_of("all_reduce", "ring", 8, 1e6)]
    [14]
    >>> [float(each.size[0]) for each in rounds_of("reduce_scatter", "halving_doubling", 8, 8e6)]
    [4000000.0, 2000000.0, 1000000.0]
    """
    if gpus < 1:
        raise SilicastError(f"{gpus} ranks cannot communicate", field="gpus", hint="at least 1")
    if not 0.0 <= size < np.inf:
        raise SilicastError(f"a message of {size:g} bytes", field="bytes", hint="0 or more")
    result = _ROUNDS.get((op, method))
    if result is None:
        known = sorted(m for o, m in _ROUNDS if o == op)
        raise unsupported(
            f"no rounds of {op} by {method}",
            "method",
            f"{op} goes by {', '.join(known)}" if known else "unknown operation",
        )
    return result(gpus, size) if gpus > 1 else ()


def _ranks(gpus: int) -> I64:
    return np.arange(gpus, dtype=np.int64)


def _ring(passes: int) -> Callable[[int, float], tuple[Round, ...]]:
    def rounds(gpus: int, size: float) -> tuple[Round, ...]:
        ranks = _ranks(gpus)
        return (Round.from_messages(ranks, (ranks + 1) % gpus, size / gpus, passes * (gpus - 1)),)

    return rounds


def _halving(gpus: int, size: float) -> tuple[Round, ...]:
    """Halves are exchanged with a partner, quarters with the next, ...: a reduce-scatter."""
    if gpus & (gpus - 1):
        raise unsupported(
            f"halving-doubling of {gpus} ranks", "gpus", "a power of two; or take a ring"
        )
    ranks, items, apart = _ranks(gpus), list[Round](), gpus // 2
    while apart:
        size *= 0.5
        items.append(Round.from_messages(ranks, ranks ^ apart, size))
        apart //= 2
    return tuple(items)


def _doubling(gpus: int, size: float) -> tuple[Round, ...]:
    return _halving(gpus, size)[::-1]


def _down(gpus: int, size: float) -> tuple[Round, ...]:
    """A binomial tree from rank 0: who has the message sends it on, to ever nearer ranks."""
    items, apart = list[Round](), 1 << ((gpus - 1).bit_length() - 1)
    while apart:
        senders = np.arange(0, gpus - apart, 2 * apart, dtype=np.int64)
        items.append(Round.from_messages(senders, senders + apart, size))
        apart //= 2
    return tuple(items)


def _up_and_down(gpus: int, size: float) -> tuple[Round, ...]:
    down = _down(gpus, size)
    up = tuple(Round(each.target, each.source, each.size) for each in down[::-1])
    return (*up, *down)


def _direct(gpus: int, size: float) -> tuple[Round, ...]:
    """A message from every rank to every other, all at once."""
    source = np.repeat(_ranks(gpus), gpus - 1)
    target = (source + np.tile(np.arange(1, gpus, dtype=np.int64), gpus)) % gpus
    return (Round.from_messages(source, target, size / gpus),)


_ROUNDS: Final[dict[tuple[str, str], Callable[[int, float], tuple[Round, ...]]]] = {
    ("all_reduce", "ring"): _ring(2),
    ("all_gather", "ring"): _ring(1),
    ("reduce_scatter", "ring"): _ring(1),
    ("all_reduce", "halving_doubling"): lambda n, s: (*_halving(n, s), *_doubling(n, s)),
    ("all_gather", "halving_doubling"): _doubling,
    ("reduce_scatter", "halving_doubling"): _halving,
    ("all_reduce", "tree"): _up_and_down,
    ("broadcast", "tree"): _down,
    ("all_reduce", "direct"): lambda n, s: (*_direct(n, s), *_direct(n, s)),
    ("all_gather", "direct"): _direct,
    ("reduce_scatter", "direct"): _direct,
    ("all_to_all", "direct"): _direct,
}
