"""How a search chooses what to try next: one file a method in ``silicast.exploration.methods``.

What a method proposes follows from what was tried and from the seed alone, so that a search that
was cut off goes on as if it had not been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from silicast.core.numerics import I64
from silicast.core.registry import Registry
from silicast.exploration.history import History


class Method(ABC):
    """A way to search a space.

    Attributes:
        name: on the command line.
    """

    name: ClassVar[str]

    @abstractmethod
    def batch(self, tried: int) -> int:
        """Designs that are proposed together once ``tried`` have been."""

    @abstractmethod
    def propose(self, history: History, seed: int, count: int) -> I64:
        """Codes of designs to try next: different, none of them tried before.

        Args:
            history: all that was tried before this batch.
            seed: of the search.
            count: how many; fewer are returned only where no more are left.
        """


METHODS: Registry[Method] = Registry("silicast.exploration.methods", "method", "method")


def generator(seed: int, tried: int) -> np.random.Generator:
    """Random numbers of one batch: they depend on nothing but the seed and where the search is."""
    return np.random.default_rng([seed, tried])
