"""Prices of decode steps in which sequences leave the model early.

A model with exits tests each token after some of its layers, and those that pass go no further. A
step runs the layers up to the first exit for all of its sequences, those up to the next for the
ones that are left, and so on: with T_k(n) the time of a step of n sequences through the layers up
to exit k alone, head included,

    T = T_1(n_1) + sum over k > 1 of (T_k(n_k) - T_(k-1)(n_k)) + tests

where n_k sequences reach the layers before exit k. A test is a head's product and what follows it,
2 T_1 - T_2 of equally deep parts. Where each token leaves is drawn from its sequence's place in the
step and its length, so that the same step takes the same time at any pace. Steps with prompts run
all layers. Keys and values of layers that a token skipped are taken as computed beside the later
ones (state propagation), which takes no time here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_prices import RunPrice, StepPrice
from silicast.composition.prices.stepper import StepPricing
from silicast.composition.step.stage_graph import StageGraph
from silicast.core.numerics import I64, mixed_bits, uniform_of

ROUNDED = 16
"""Tokens to which the mean length of the sequences in a part is rounded."""


@final
class ExitPrices:
    """Steps of a model with exits.

    Args:
        depths: prices of the layers up to each exit, equally deep parts; the last are the model's.
        shares: of tokens that leave at each exit; they sum to 1.
        seed: of the draws.
    """

    def __init__(
        self, depths: Sequence[StepPricing], shares: Sequence[float], seed: int = 0
    ) -> None:
        self.depths: tuple[StepPricing, ...] = tuple(depths)
        self.shares: tuple[float, ...] = tuple(shares)
        self.whole: StepPricing = depths[-1]
        self._until = np.cumsum(np.array(shares))[:-1]
        self._seed = seed
        self._known: dict[tuple[int, int, int], float] = {}

    @property
    def never(self) -> bool:
        """Whether no token leaves before the last layer."""
        return not any(self.shares[:-1])

    @property
    def graph(self) -> StageGraph:
        """The stage graph of a step through all layers."""
        return self.whole.graph

    @property
    def asynchronous(self) -> bool:
        """Whether the host prepares a step while the device runs the one before."""
        return self.whole.asynchronous

    @property
    def gap_s(self) -> float:
        return self.whole.gap_s

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        """One step."""
        price = self.whole.price(prefill, decode_kv, elsewhere)
        if prefill or self.never:
            return price
        full = sum(price.stages_s)
        cached = np.asarray(decode_kv)
        share = min(self._pass_s(cached) / self._depth_s(len(self.depths) - 1, cached), 1.0)
        *before, last = price.stages_s
        return price._replace(stages_s=(*before, last - full * (1.0 - share)))

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        """Steps one after another, each token by its own draws."""
        if self.never:
            return self.whole.run(decode_kv, steps, elsewhere)
        run = self.whole.run(decode_kv, steps, elsewhere)
        last, cached = len(self.depths) - 1, np.asarray(decode_kv)
        shares = [
            min(self._pass_s(cached + step) / self._depth_s(last, cached + step), 1.0)
            for step in range(steps)
        ]
        stages_s = [
            [seconds * share for seconds, share in zip(stage, shares, strict=True)]
            for stage in run.stages_s
        ]
        return run._replace(stages_s=stages_s)

    def _pass_s(self, decode_kv: I64) -> float:
        """A step, its parts at the mean length of its sequences."""
        exits = self.exits_of(decode_kv)
        total = self._depth_s(0, decode_kv)
        for depth in range(1, len(self.depths)):
            if self.shares[depth - 1]:  # there is an exit in front of this part, and a test
                total += max(
                    2.0 * self._depth_s(0, decode_kv[exits >= depth - 1])
                    - self._depth_s(1, decode_kv[exits >= depth - 1]),
                    0.0,
                )
            left = decode_kv[exits >= depth]
            total += max(self._depth_s(depth, left) - self._depth_s(depth - 1, left), 0.0)
        return total

    def exits_of(self, decode_kv: I64) -> I64:
        """The exit at which each sequence of a step leaves, shape (n,)."""
        positions = np.arange(len(decode_kv), dtype=np.int64)
        start = mixed_bits(np.full(len(decode_kv), self._seed, dtype=np.int64).view(np.uint64))
        state = mixed_bits(start ^ decode_kv.astype(np.int64).view(np.uint64))
        state = mixed_bits(state ^ positions.view(np.uint64))
        exits: I64 = np.searchsorted(self._until, uniform_of(state), side="right")
        return exits

    def _depth_s(self, depth: int, decode_kv: I64) -> float:
        """A step of so many sequences through the layers up to an exit; none takes no time."""
        count = len(decode_kv)
        if not count:
            return 0.0
        mean = -(-int(decode_kv.sum()) // (count * ROUNDED)) * ROUNDED
        key = (depth, count, mean)
        seconds = self._known.get(key)
        if seconds is None:
            alike = np.full(count, mean, dtype=np.int64)
            seconds = self._known[key] = sum(self.depths[depth].price((), alike).stages_s)
        return seconds
