"""Query-key pairs, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silicast.workload.graphs.op import Dim


class StepSequences(NamedTuple):
    """Sequences of one step.

    Attributes:
        prefill: (new tokens, past plus new tokens) of each sequence in prefill.
        decode: cached tokens, without the new one, of each decoding sequence.
    """

    prefill: Sequence[tuple[int, int]] = ()
    decode: Sequence[int] = ()

    @property
    def tokens(self) -> int:
        return sum(new for new, _ in self.prefill) + len(self.decode)

    def pairs(self, window: int = 0, *, chunked: bool = False) -> tuple[int, int]:
        """Causal pairs of all sequences in prefill, and of all that decode.

        Args:
            window: last keys that a query sees, 0 = all; ``chunked``: or the size of its own chunk.
        """
        chunk, reach = (window, 0) if chunked else (0, window)
        first = sum(attention_pairs(new, kv, reach, chunk) for new, kv in self.prefill)
        return first, sum(attention_pairs(1, cached + 1, reach, chunk) for cached in self.decode)

    def visible(self, ratio: int = 1, cap: int = 0) -> int:
        """Pairs of queries and compressed entries of all sequences; see :func:`visible`."""
        steps = [*self.prefill, *((1, cached + 1) for cached in self.decode)]
        return sum(visible(new, total, ratio, cap) for new, total in steps)


def attention_pairs(new: int, total: int, window: int = 0, chunk: int = 0) -> int:
    """Query-key pairs of ``new`` tokens at the end of ``total``, causal, each query seeing its
    last ``window`` keys (0 = all), or those of its own ``chunk``.

    >>> attention_pairs(4, 4), attention_pairs(1, 9), attention_pairs(4, 6, 5)
    (10, 9, 17)
    >>> attention_pairs(4, 6, chunk=4)      # the queries see 3, 4, 1 and 2 keys
    10
    """
    if chunk:
        return _chunked_pairs(total, chunk) - _chunked_pairs(total - new, chunk)
    past = total - new
    reach = window or total
    growing = min(max(reach - past, 0), new)
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * min(reach, total)


def _chunked_pairs(tokens: int, chunk: int) -> int:
    """Pairs of all of ``tokens``, each with the keys of its chunk up to itself."""
    full, remainder = divmod(tokens, chunk)
    return full * (chunk * (chunk + 1) // 2) + remainder * (remainder + 1) // 2


def visible(new: int, total: int, ratio: int = 1, cap: int = 0) -> int:
    """Pairs of ``new`` queries at the end of ``total`` tokens and the entries that they see: one
    for every ``ratio`` whole tokens up to a query's own, at most ``cap`` of them (0 = all).

    >>> visible(4, 6), visible(4, 6, 2), visible(4, 6, 1, 4)
    (18, 8, 15)
    """
    return _visible_to_first(total, ratio, cap) - _visible_to_first(total - new, ratio, cap)


def _visible_to_first(tokens: int, ratio: int, cap: int) -> int:
    """Pairs of the first ``tokens`` queries and the entries that they see."""
    growing = min(tokens, cap * ratio) if cap else tokens
    whole, remainder = divmod(growing, ratio)
    pairs = ratio * (whole * (whole - 1) // 2) + whole * (remainder + 1)
    return pairs + cap * (tokens - growing)


def sequence_lengths(dim: Dim) -> tuple[int, ...]:
    """A concrete dimension as lengths of sequences.

    Raises:
        ValueError: it is still symbolic.
    """
    if isinstance(dim, int):
        return (dim,)
    if isinstance(dim, tuple):
        return dim
    raise ValueError(f"expected lengths, found {dim!r}")
