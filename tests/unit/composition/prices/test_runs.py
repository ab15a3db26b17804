"""Runs of few decode steps, in numbers, are those of many, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from silicast.composition.prices import step_price
from silicast.composition.prices.decode_lengths import Lengths
from silicast.composition.prices.step_price import RunPrice, StepPrice
from silicast.composition.prices.stepper import Stepper
from tests.sampling import seeds


class _Steady:
    """Prices that rise by a line; ``asynchronous`` as given."""

    graph: Any = SimpleNamespace(stages=1, in_flight=1)
    gap_s = 3.3e-6

    def __init__(self, seed: int, *, asynchronous: bool) -> None:
        draw = np.random.default_rng(seed)
        self.asynchronous = asynchronous
        self._first, self._slope, self.waits_s = draw.uniform([1e-3, 0, 0], [2e-2, 1e-5, 1e-4])
        self.work_s = float(draw.uniform(0.0, 2e-2))

    def _at(self, number: int) -> StepPrice:
        seconds = float(self._first + self._slope * number)
        return StepPrice((seconds,), float(self.waits_s), self.work_s, 1.7e9 - number)

    def price(
        self, prefill: Sequence[tuple[int, int]], decode_kv: Lengths, elsewhere: int = -1
    ) -> StepPrice:
        del prefill, decode_kv, elsewhere
        return self._at(0)

    def run(self, decode_kv: Lengths, steps: int, elsewhere: int = -1) -> RunPrice:
        del elsewhere
        return RunPrice.from_prices(self._at, steps, float(np.asarray(decode_kv).mean()))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("seed", seeds(20))
def test_few_as_many(seed: int, asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 1 + seed % step_price.FEW
    clock = Stepper(_Steady(seed, asynchronous=asynchronous), now_ns=seed * 1_000)
    lengths = np.array([4_000, 9_000])
    few, priced = clock.run(lengths, steps), clock.prices.run(lengths, steps)
    monkeypatch.setattr(step_price, "FEW", 0)
    many = clock.run(lengths, steps)
    assert priced == clock.prices.run(lengths, steps)
    assert few == many
    assert len(few.start_ns) == steps
