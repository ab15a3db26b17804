"""The clock that a power cap holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.physics import load_physics
from silicast.kernels.power import (
    Activity,
    board_power,
    budget,
    budget_from,
    clock_share,
    sustained_clock,
)

H100 = find_device("H100-SXM-80GB")


def test_idle_boards_run_at_their_boost_clock() -> None:
    assert float(sustained_clock(H100, Activity(0.0))) == H100.clocks.boost_hz


def test_boards_without_a_cap_are_not_slowed() -> None:
    free = replace(H100, name="free", power_cap_w=None)
    assert float(clock_share(free, Activity(1.0))) == 1.0
    assert float(clock_share(free, Activity(1.0), power_w=200.0)) < 1.0


def test_the_held_clock_uses_the_cap_up() -> None:
    weak = replace(H100, name="weak", power_cap_w=350.0)
    activity = Activity(0.8, "bf16", 0.2)
    share = float(clock_share(weak, activity))
    watts = budget(weak, "bf16")
    used = watts.idle_w + 0.2 * watts.dram_w + 0.8 * watts.core_w * share ** (8 / 3)
    assert used == pytest.approx(350.0, rel=1e-9)


def test_a_users_limit_counts_if_it_is_lower() -> None:
    activity = Activity(0.8)
    assert clock_share(H100, activity, power_w=10_000.0) == clock_share(H100, activity)
    assert clock_share(H100, activity, power_w=300.0) < clock_share(H100, activity)


def test_more_activity_never_raises_the_clock() -> None:
    clocks = sustained_clock(H100, Activity(np.linspace(0.0, 1.0, 50), "bf16", 0.3))
    assert (np.diff(clocks) <= 0).all()
    memory = sustained_clock(H100, Activity(0.9, "bf16", np.linspace(0.0, 1.0, 50)))
    assert (np.diff(memory) <= 0).all()


def test_the_law_agrees_with_itself_at_another_clock() -> None:
    """A board set to the clock that it can hold is not slowed again."""
    weak = replace(H100, name="weak", power_cap_w=450.0)
    activity = Activity(0.9)
    held = float(sustained_clock(weak, activity))
    assert held < weak.clocks.boost_hz
    again = float(clock_share(weak.at_clock(held), activity))
    assert again > 0.97


def test_narrow_formats_cost_less_energy_an_operation() -> None:
    bf16, fp8 = budget(H100, "bf16"), budget(H100, "fp8")
    assert fp8.core_w < 2.0 * bf16.core_w


def test_power_of_an_idle_and_a_busy_board() -> None:
    idle, busy = board_power(H100, Activity(np.array([0.0, 0.8]), "bf16", 0.1))
    assert idle < 200.0
    assert 400.0 < busy < 1100.0


def test_a_byte_costs_more_energy_on_gddr_than_on_hbm() -> None:
    def joules(name: str) -> float:
        board = find_device(name)
        return budget(board, "fp16").dram_w / board.dram.bandwidth_bytes_per_s

    for name in ("T4", "L20", "A40"):
        assert joules(name) > 1.3 * joules("H100-SXM-80GB"), name


def test_below_the_floor_of_voltage_power_falls_with_the_clock_alone() -> None:
    card = replace(find_device("RTX 6000 Ada"), name="card", power_cap_w=150.0)
    watts = budget(card, "bf16")
    assert 0.5 < watts.floor < 1.0
    share = float(clock_share(card, Activity(0.9)))
    assert share < watts.floor
    used = watts.idle_w + 0.9 * watts.core_w * share * watts.floor ** (5 / 3)
    assert used == pytest.approx(150.0, rel=1e-9)


def test_the_clock_falls_steadily_through_the_floor() -> None:
    card = find_device("RTX 6000 Ada")
    clocks = sustained_clock(card, Activity(np.linspace(0.3, 1.0, 400)))
    assert (np.diff(clocks) <= 0).all()
    assert np.diff(clocks).min() > -0.01 * card.clocks.boost_hz


def test_wide_cores_of_unmeasured_architectures_spend_less_an_operation() -> None:
    constants = {**load_physics("power").default}
    narrow, wide = find_device("RTX 4090"), find_device("H100")
    spent = [
        budget_from(device, "bf16", constants).core_w / device.peak_per_s("tensor", "bf16")
        for device in (wide, narrow)
    ]
    assert spent[0] < spent[1]
    slow = budget_from(H100.at_clock(0.5 * H100.clocks.boost_hz), "bf16", constants)
    assert slow.core_w < 0.25 * budget_from(H100, "bf16", constants).core_w
