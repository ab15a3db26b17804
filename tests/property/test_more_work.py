"""More work takes no less time, and more cores take no more, over random kernels on every device.

Pairs are those of ``benchmarks.more_work``. Kernels that move data are monotone by their model;
others choose tiles, kernels and corrections in steps, of which few may dip.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.more_work import CLOCK, CORES, POWER, dips
from silicast.hardware.catalog import device_index
from tests.sampling import seeds

DIP = 0.02
"""By what share of its time more work may take less, and still count as no dip."""
RARE = 1 / 200
"""Of all pairs, those that may dip by over 2 %: of 20,000 one in 500 does."""
MOVING = frozenset(("rmsnorm", "layernorm", "silu_mul", "softmax", "elementwise", "optimizer"))
"""Families whose time is that of the bytes that their fullest block, core and memory move."""
CORRECTED = 0.08
"""What learned corrections and a last part of a row may still make of those."""
SEEDS = seeds(12, quick=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_work_is_not_quicker_and_more_cores_are_not_slower(seed: int) -> None:
    index = device_index()
    devices = tuple(index.get(name) for name in index.names)
    records = dips(2_000, seed, devices)
    of_time = np.array([each["dip"] for each in records])
    dipped = [each for each in records if each["dip"] > DIP]
    assert (of_time > DIP).mean() <= RARE, dipped
    moving = [each for each in dipped if each["family"] in MOVING and each["kind"] == "simt"]
    assert not [each for each in moving if each["grown"] == CORES]
    assert not [e for e in dipped if e["kind"] == "vector_cpu" and e["grown"] == CORES], dipped
    assert all(each["dip"] <= CORRECTED for each in moving), moving


@pytest.mark.parametrize("more_of", [CLOCK, POWER])
def test_no_kernel_is_slower_under_a_higher_limit(more_of: str) -> None:
    index = device_index()
    devices = tuple(index.get(name) for name in index.names)
    slower = [each for each in dips(1_000, 0, devices, more_of) if each["dip"] > DIP]
    assert not slower
