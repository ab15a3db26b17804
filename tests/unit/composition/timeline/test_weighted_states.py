"""Whole picoseconds of sums of states."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.timeline.weighted_states import whole_ps
from silicast.core.prediction import to_picoseconds


@pytest.mark.parametrize("most_s", [1e-3, 5e3, 4e7])
def test_sums_of_whole_picoseconds_are_exact_however_long(most_s: float) -> None:
    """4e7 s are beyond 64 bits, 400 nodes of 5e3 s together nearly."""
    seconds = np.linspace(1e-12, most_s, 1200).reshape(2, 600)
    sums = whole_ps(seconds).sum(axis=1).tolist()
    assert sums == [sum(map(to_picoseconds, row)) for row in seconds.tolist()]
    assert all(isinstance(each, int) for each in sums)
