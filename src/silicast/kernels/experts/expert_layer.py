"""A layer of experts as its two products, whatever configurations run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from silicast.kernels.experts.routing import busiest_loads
from silicast.kernels.products.tile_times import Product


@final
@dataclass(frozen=True)
class ExpertLayer:
    """Sizes of a rank's share of a layer of experts.

    Attributes:
        experts: of the rank; topk: experts of a token; hidden: width of the model.
        width: of one of the rank's gate or up matrices; gated: there are both.
        distribution: of tokens over experts.
        ranks: that share ``experts``, which are then those of the whole layer; 1 = this one alone.
    """

    experts: int
    topk: int
    hidden: int
    width: int
    gated: bool = True
    distribution: str = "balanced"
    ranks: int = 1

    def products(self, tokens: int) -> tuple[Product, Product]:
        """Before and after the activation, for so many tokens entering the rank."""
        counts = (tokens, self.experts, min(self.topk, self.experts), self.ranks)
        loads = busiest_loads(self.distribution, *(np.array([size]) for size in counts))
        first = self.width * (2.0 if self.gated else 1.0)
        return (
            Product(loads, first, float(self.hidden)),
            Product(loads, float(self.hidden), float(self.width)),
        )
