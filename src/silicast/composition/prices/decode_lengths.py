"""Cached tokens of the sequences in decode of one step, of which three numbers are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from silicast.core.numerics import I64


@final
class DecodeLengths:
    """What prices ask of the cached tokens of decoding sequences, without the array of them.

    An int64 array of shape (sequences,) answers the same questions; ``np.asarray`` makes one.

    Args:
        count: sequences; ``total``: their tokens, ``longest``: of the longest.
        each: the array; asked for only where a price needs it.

    >>> import numpy as np
    >>> lengths = DecodeLengths(2, 30, 20, lambda: np.array([10, 20])) + 5
    >>> len(lengths), lengths.sum(), lengths.max(), np.asarray(lengths).tolist()
    (2, 40, 25, [15, 25])
    >>> lengths_of(np.array([10, 20])).total
    30
    """

    __slots__ = ("_each", "_more", "count", "longest", "total")

    def __init__(
        self, count: int, total: int, longest: int, each: Callable[[], I64], more: int = 0
    ) -> None:
        self.count, self.total, self.longest = count, total, longest
        self._each, self._more = each, more

    def __len__(self) -> int:
        return self.count

    def sum(self) -> int:
        """Tokens of all."""
        return self.total

    def max(self) -> int:
        """Tokens of the longest."""
        return self.longest

    def __add__(self, tokens: int) -> DecodeLengths:
        """Each so much longer."""
        total = self.total + tokens * self.count
        return DecodeLengths(
            self.count, total, self.longest + tokens, self._each, self._more + tokens
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> I64:
        each: I64 = (self._each() + self._more).astype(dtype or self._each().dtype)
        return each


Lengths = I64 | DecodeLengths
"""Cached tokens of each decoding sequence, without the new one."""


def lengths_of(cached: Lengths) -> DecodeLengths:
    """The same of an array."""
    if isinstance(cached, DecodeLengths):
        return cached
    count = len(cached)
    if not count:
        return DecodeLengths(0, 0, 0, lambda: cached)
    return DecodeLengths(count, int(cached.sum()), int(cached.max()), lambda: cached)
