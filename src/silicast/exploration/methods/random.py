"""Designs at random, each at most once."""

from __future__ import annotations

from typing import ClassVar, final

from silicast.core.numerics import I64
from silicast.exploration.history import History
from silicast.exploration.method import METHODS, Method, generator


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
