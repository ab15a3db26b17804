"""Sets of sizes that several states share: told apart one by one as in one go."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.step import timer
from tests.sampling import seeds


@pytest.mark.parametrize("seed", seeds(30))
def test_few_rows_as_many(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(seed)
    symbols = {name: draw.integers(0, 3, 20) for name in "abc"[: 1 + seed % 3]}
    rows = np.sort(draw.choice(20, int(draw.integers(1, timer.FEW + 1)), replace=False))
    used, place = timer._distinct(tuple(symbols), symbols, rows)
    for name, values in symbols.items():
        assert used[name][place].tolist() == values[rows].tolist()
    monkeypatch.setattr(timer, "FEW", 0)
    other, at = timer._distinct(tuple(symbols), symbols, rows)
    assert at.tolist() == place.tolist()
    assert {n: v.tolist() for n, v in other.items()} == {n: v.tolist() for n, v in used.items()}
