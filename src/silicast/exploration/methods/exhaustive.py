"""Every design in order, or designs at random, each at most once."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import I64
from silicast.exploration.history import History
from silicast.exploration.problem import METHODS, Method, generator
from silicast.exploration.space import LISTED


@final
@METHODS.register
class Exhaustive(Method):
    """Evaluates every design of the space in order."""

    name: ClassVar[str] = "exhaustive"

    def batch(self, tried: int) -> int:  # noqa: ARG002
        """How many designs are proposed at a time."""
        return 1024

    def propose(self, history: History, seed: int, count: int) -> I64:  # noqa: ARG002
        space = history.space
        if space.rows <= LISTED:
            return space.listed[len(history) : len(history) + count]
        start = int(history.codes[-1]) + 1 if len(history) else 0
        propose = np.empty(0, dtype=np.int64)
        while len(propose) < count and start < space.rows:
            codes = np.arange(start, min(start + LISTED, space.rows), dtype=np.int64)
            same = space.encode(space.canonical(space.decode(codes))) == codes
            propose = np.concatenate([propose, codes[same]])[:count]
            start += LISTED
        return propose


@final
@METHODS.register
class RandomSearch(Method):
    """What every other method has to beat."""

    name: ClassVar[str] = "random"

    def batch(self, tried: int) -> int:  # noqa: ARG002
        """As many as are worth one list of what is left."""
        return 64

    def propose(self, history: History, seed: int, count: int) -> I64:
        """Designs at random that were not evaluated before."""
        return history.space.draw(generator(seed, len(history)), count, history.codes)
