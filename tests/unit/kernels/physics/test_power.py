"""The clock that a power limit holds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.held_clock import CLOCKS, clock_share, step_below, weight_of
from silicast.kernels.physics.power import (
    MIN_CLOCK_SHARE,
    LimitedBoard,
    board,
    board_from,
    drawn,
    limits,
    rated_hz,
    top_hz,
)
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100-SXM-80GB")
BUDGET = LimitedBoard(350.0, 50.0, 900.0, 400.0, 5e-11, 1e-3, 0.7)


def share(current: LimitedBoard, core_w: float | F64, memory_w: float | F64 = 0.0) -> F64:
    core, memory = np.broadcast_arrays(np.atleast_1d(core_w), np.atleast_1d(memory_w))
    return clock_share(current, core.astype(float), memory.astype(float))


def draw_of(device: Device, op: Op) -> tuple[float, float]:
    model, batch = implementation_for(op.family, "simt"), OpBatch.from_ops([op])
    assert model is not None
    result = model.times(batch, device.in_state("boost"))
    draw = drawn(result.analysis, op.variant.dtype, device, result.estimate_s)
    return float(draw.core_w[0]), float(draw.memory_w[0])


def product(dtype: str = "bf16", size: int = 8192) -> Op:
    return Op.make("gemm", Variant(dtype), m=size, n=size, k=size)


def test_boards_without_a_limit_are_not_slowed() -> None:
    assert float(share(replace(BUDGET, limit_w=math.inf), 1e6)[0]) == 1.0
    assert not limits(replace(H100, power_cap_w=None))
    assert not limits(H100.in_state("boost"))
    assert limits(H100)


def test_the_held_clock_uses_the_limit_up() -> None:
    held = float(share(BUDGET, 500.0, 60.0)[0])
    assert held > BUDGET.floor
    drawn_w = BUDGET.idle_w + (500.0 * held**1.625 + 60.0) * held
    assert drawn_w == pytest.approx(350.0, rel=1e-9)


def test_work_that_waits_for_memory_holds_the_clock_of_a_lower_voltage() -> None:
    """It takes as long at any clock: what falls is the energy of its operations."""
    held = clock_share(
        BUDGET, np.array([400.0]), np.array([60.0]), lambda _, rows: np.ones(len(rows))
    )
    drawn_w = BUDGET.idle_w + 400.0 * float(held[0]) ** 1.625 + 60.0
    assert drawn_w == pytest.approx(350.0, rel=1e-9)


def test_below_the_floor_of_voltage_power_falls_with_the_clock_alone() -> None:
    held = float(share(BUDGET, 1000.0)[0])
    assert MIN_CLOCK_SHARE < held < BUDGET.floor
    used = BUDGET.idle_w + 1000.0 * held * BUDGET.floor**1.625
    assert used == pytest.approx(350.0, rel=1e-9)


def test_more_work_never_raises_the_clock() -> None:
    for held in (
        share(BUDGET, np.linspace(0.0, 2000.0, 400), np.full(400, 20.0)),
        share(BUDGET, np.full(400, 400.0), np.linspace(0.0, 500.0, 400)),
    ):
        assert (np.diff(held) <= 0).all()
        assert np.diff(held).min() > -0.1
    assert float(share(BUDGET, 250.0, 20.0)[0]) == 1.0


def test_the_law_agrees_with_itself_at_another_clock() -> None:
    """A board set to the clock that it can hold is not slowed again."""
    weak = replace(H100, name="weak", power_cap_w=450.0)
    held = float(share(board(weak, "bf16"), *draw_of(weak, product()))[0])
    assert held < 0.95
    slow = weak.at_clock(held * weak.clocks.boost_hz)
    assert float(share(board(slow, "bf16"), *draw_of(slow, product()))[0]) > 0.96


def test_what_runs_above_boost_leaves_it_for_the_clock_that_draws_the_limit() -> None:
    """Not for a clock below boost: it is charged for the clock it runs at, and slows down little by
    little.
    """
    card = find_device("RTX 4090").in_state("hot")
    boost, top, batch = card.clocks.boost_hz, top_hz(card), OpBatch.from_ops([product()])
    model = implementation_for("gemm", "simt")
    assert model is not None
    core_w, memory_w = draw_of(card, product())
    at_boost = board(card, "bf16", boost)
    assert board(card, "bf16").matrix_w / at_boost.matrix_w == pytest.approx((top / boost) ** 1.625)
    free, idle_w = model.estimates(batch, card.in_state("boost")), at_boost.idle_w
    for part in (0.999, 0.9, 0.75):
        limited = replace(
            card, power_cap_w=idle_w + part * (core_w + memory_w), idle_power_w=idle_w
        )
        held = model.estimates(batch, replace(limited, base="", name="unknown"))
        assert held.clock_share is not None
        clock_hz = float(held.clock_share[0]) * top
        longer = float(held.estimate_s[0] / free.estimate_s[0])
        assert boost < clock_hz < top
        watts = core_w * (clock_hz / top) ** 1.625 + memory_w
        assert watts / longer == pytest.approx(part * (core_w + memory_w), rel=1e-3)


def test_between_boost_and_the_top_only_what_runs_above_boost_is_held_back() -> None:
    card = find_device("RTX 4090")
    boost, top = card.clocks.boost_hz, top_hz(card)
    middle = card.at_clock(0.5 * (boost + top))
    assert (middle.clocks.boost_hz, middle.memory) == (boost, card.memory)
    assert top_hz(middle) == 0.5 * (boost + top)
    assert top_hz(card.at_clock(2.0 * top)) == top
    assert top_hz(card.at_clock(0.9 * boost)) == 0.9 * boost


def test_energy_counts_the_clock_of_a_board_without_a_limit_as_its_boost() -> None:
    card = find_device("RTX 4090")
    boost, top = card.clocks.boost_hz, top_hz(card)
    assert rated_hz(card) == pytest.approx(boost)
    for share in (0.95, 0.6):
        assert rated_hz(card.at_clock(share * top)) == pytest.approx(share * boost)


def test_one_watt_below_a_boards_limit_takes_little_of_the_clock() -> None:
    """Watts of work that waits for memory fall with the clock from the top down: were they the same
    from the top to boost, one watt would take all of that range.
    """
    card, model = find_device("RTX 5090").in_state("hot"), implementation_for("gemm", "simt")
    assert model is not None
    assert card.power_cap_w is not None
    limited = replace(card, power_cap_w=card.power_cap_w - 1.0)
    for rows in (1, 32):
        op = Op.make("gemm", Variant("bf16"), m=rows, n=28_672, k=8192, batch=1)
        held = model.estimates(OpBatch.from_ops([op]), limited)
        assert held.clock_share is not None
        assert float(held.clock_share[0]) > 0.97, rows


def test_narrow_formats_cost_less_energy_an_operation() -> None:
    assert board(H100, "fp8").matrix_w < 2.0 * board(H100, "bf16").matrix_w


def test_power_of_a_large_product() -> None:
    core_w, memory_w = draw_of(H100, product())
    assert 400.0 < core_w + memory_w < 1100.0
    assert core_w > 5.0 * memory_w


def test_products_on_fma_units_draw_power() -> None:
    for name in ("L4", "T4", "H100"):
        device = find_device(name)
        core_w, _ = draw_of(device, product("fp32"))
        assert core_w > 0.4 * board(device, "fp32").fma_w, name


def test_streams_draw_the_power_of_memory() -> None:
    core_w, memory_w = draw_of(H100, Op.make("rmsnorm", tokens=65536, hidden=8192))
    assert memory_w > core_w


def test_a_byte_costs_more_energy_on_gddr_than_on_hbm() -> None:
    for name in ("T4", "L20", "A40"):
        assert board(find_device(name), "fp16").byte_j > 1.3 * board(H100, "fp16").byte_j, name


def test_wide_cores_of_unmeasured_architectures_spend_less_an_operation() -> None:
    constants = {**load_physics("power").default}
    narrow, wide = find_device("RTX 4090"), find_device("H100")
    spent = [
        board_from(device, "bf16", constants).matrix_w / device.bound_per_s("tensor", "bf16")
        for device in (wide, narrow)
    ]
    assert spent[0] < spent[1]
    slow = board_from(H100.at_clock(0.5 * H100.clocks.boost_hz), "bf16", constants)
    assert slow.matrix_w < 0.5 * board_from(H100, "bf16", constants).matrix_w


def test_a_share_lies_between_two_clocks() -> None:
    for each in (1.0, 0.9999, 0.9, 0.5, 0.31, 0.1):
        position = step_below(each)
        assert CLOCKS[position] >= each >= CLOCKS[position + 1]
        weight = float(weight_of(position, np.float64(each)))  # type: ignore[arg-type]
        assert 0.0 <= weight <= 1.0
        between = (1.0 - weight) / CLOCKS[position] + weight / CLOCKS[position + 1]
        assert 1.0 / between == pytest.approx(each)


def test_a_hot_board_is_slower_than_a_cool_one_the_more_the_shorter_the_kernel() -> None:
    model = implementation_for("gemm", "simt")
    assert model is not None
    ratio = []
    for size in (4096, 6144, 16384):
        batch = OpBatch.from_ops([product(size=size)])
        boost, cool, hot = (
            float(model.times(batch, H100.in_state(state)).estimate_s[0])
            for state in ("boost", "cool", "hot")
        )
        assert boost <= cool <= hot
        ratio.append(hot / cool)
    assert ratio[0] > 1.03
    assert ratio[0] > ratio[1] > ratio[2]
