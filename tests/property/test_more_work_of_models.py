"""Whole models on boards that have more of something, mostly under limits that bind.

Pairs are those of ``benchmarks.more_work --whole-models``: cores, clock, bandwidth and limits from
near idle to twice the board's own.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.more_work_of_models import KINDS, changed, dips, held
from silicast.hardware.catalog import device_index, find_device
from silicast.kernels.physics.power import MIN_CLOCK_SHARE
from tests.sampling import seeds

SLOWER = 0.01
"""By what share of the time more may take longer: times are evaluated at some clocks only."""
MOST = 0.03
"""What few pairs may: libraries choose kernels by bandwidth, clock and cores in steps."""
RARE = 1 / 14
"""Of the pairs of one draw."""
PAIRS = 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(20, quick=1))
def test_more_of_anything_makes_no_whole_model_slower(kind: str, seed: int) -> None:
    index = device_index()
    records = list(dips(PAIRS, seed, tuple(map(index.get, index.names)), kind))
    # below the slowest clock limits are not held
    records = [pair for pair in records if min(pair["clocks"]) > MIN_CLOCK_SHARE]
    assert records
    slower = [pair for pair in records if pair["dip"] > SLOWER]
    assert len(slower) <= RARE * len(records), slower
    assert all(pair["dip"] <= MOST for pair in slower), slower
    for pair in records:
        for board_, watts in zip(pair["boards"], pair["power_w"], strict=True):
            assert watts <= board_["power_w"] + 0.1


@pytest.mark.parametrize("name", ["A100-SXM-80GB", "H100", "B200", "L4", "RTX 4090", "MI300X"])
@pytest.mark.parametrize("limit", [0.1, 0.3])
def test_added_cores_that_only_wait_do_not_take_the_limit(name: str, limit: float) -> None:
    """Decode waits for memory: with twice the cores, all of them clocked, half of the clock would
    be left, and what goes with the clock would take longer.
    """
    board_ = find_device(name)
    times = [
        held(changed(board_, cores=cores, limit=limit), "Llama-3.1-8B", 8, 1024)["decode"]
        for cores in (0.6, 1.0, 1.25, 1.6, 2.0)
    ]
    for less, more in pairwise(times):
        assert more.seconds <= less.seconds * (1.0 + SLOWER)
    for step in times:
        assert step.energy_j == pytest.approx(step.power_w * step.seconds, rel=1e-9)
