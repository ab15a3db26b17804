"""Whole models on boards that have more of something, mostly under limits that bind.

Pairs are those of ``benchmarks.more_work --whole-models``: cores, clock, bandwidth and limits from
near idle to twice the board's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.more_work_of_models import KINDS, changed, dips, held
from silicast.composition.power.clock import TOLERANCE
from silicast.hardware.catalog import device_index, find_device
from silicast.kernels.physics.power import MIN_CLOCK_SHARE
from tests.sampling import seeds

SLOWER = 0.01
"""By what share of the time more may take longer: times are evaluated at some clocks only."""
PAIRS = 30
DRAWN = 0.88
"""Of its limit, at least: a board that it slows draws it by the law of the clock, and by that of
energy as far as large products stand for all of a pass."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(20, quick=1))
def test_more_of_anything_makes_no_whole_model_slower(kind: str, seed: int) -> None:
    index = device_index()
    records = list(dips(PAIRS, seed, tuple(map(index.get, index.names)), kind))
    # below the slowest clock limits are not held
    records = [pair for pair in records if min(pair["clocks"]) > MIN_CLOCK_SHARE]
    assert records
    slower = [pair for pair in records if pair["dip"] > SLOWER]
    assert not slower
    for pair in records:
        for board_, watts in zip(pair["boards"], pair["power_w"], strict=True):
            assert watts <= board_["power_w"] + 0.1
    assert all(share >= DRAWN for pair in records for share in drawn_shares(pair))


def drawn_shares(pair: dict[str, Any]) -> Iterator[float]:
    """What those boards of a pair that their limit slows draw of it; of boards with fewer cores
    than they were built with, which draw less, none.
    """
    built = find_device(pair["device"]).cores
    for board_, clock, watts in zip(pair["boards"], pair["clocks"], pair["power_w"], strict=True):
        if clock < 1.0 - TOLERANCE and board_["cores"] >= built:
            yield watts / board_["power_w"]


@pytest.mark.parametrize(
    "name",
    ["A100-PCIE-80GB", "H100", "L4", "MI300X", "P4", "RTX 4090 Laptop", "RTX PRO 6000 Max-Q"],
)
def test_a_prefill_that_the_limit_slows_draws_the_limit(name: str) -> None:
    """Also where no kernel's power was measured."""
    device = find_device(name)
    step = held(device, "Qwen2.5-1.5B", 8, 1024)["prefill"]
    assert device.power_cap_w is not None
    assert step.clock < 0.99
    assert step.power_w > 0.97 * device.power_cap_w


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
