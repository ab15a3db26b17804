"""Laws of yield, die cost and scaling between nodes."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.accelerator.design.architecture import Architecture, Compute, FanOut, Memory
from silicast.accelerator.design.architecture_file import find_design
from silicast.accelerator.design.die_cost import (
    area_of,
    clustered_yield,
    die_cost,
    dies_per_wafer,
    murphy_yield,
    poisson_yield,
)
from silicast.accelerator.design.technology import (
    NodeScaling,
    area_factor,
    cmos,
    leak_factor,
    node_energy_factor,
    voltage_energy_factor,
)
from silicast.core.errors import SilicastError
from silicast.core.prediction import Z90

DEFECTS = st.floats(1e-6, 20.0)
NODES = st.sampled_from([5.0, 7.0, 16.0, 28.0, 45.0, 65.0])


@given(DEFECTS)
def test_yields_keep_their_order(defects: float) -> None:
    assert 0 < poisson_yield(defects) <= murphy_yield(defects) <= 1
    assert poisson_yield(defects) <= clustered_yield(defects, 3.0) <= 1
    # Defects in ever more clusters are independent ones.
    assert clustered_yield(defects, 1e9) == pytest.approx(poisson_yield(defects), rel=1e-4)
    assert clustered_yield(defects, 2.0) >= clustered_yield(defects, 3.0)


@given(DEFECTS, DEFECTS)
def test_more_defects_never_leave_more_dies(one: float, other: float) -> None:
    less, more = sorted((one, other))
    for law in (poisson_yield, murphy_yield, lambda d: clustered_yield(d, 3.0)):
        assert law(more) <= law(less)


@given(st.floats(1.0, 800.0), st.floats(1.01, 2.0), NODES)
def test_a_larger_die_costs_more_than_in_proportion(area: float, more: float, node: float) -> None:
    small, large = die_cost(area, node), die_cost(area * more, node)
    assert large.dies < small.dies
    assert large.usd.estimate > small.usd.estimate * more
    for cost in (small, large):
        assert cost.usd.p05 <= cost.usd.estimate <= cost.usd.p95


@given(st.floats(200.0, 800.0))
def test_two_chiplets_cost_less_than_one_die(area: float) -> None:
    assert 2 * die_cost(area / 2, 7).usd.estimate < die_cost(area, 7).usd.estimate


def test_known_dies() -> None:
    assert dies_per_wafer(100.0, 300.0) == pytest.approx(706.86 - 66.64, abs=0.05)
    assert murphy_yield(1.0) == pytest.approx(0.3996, abs=1e-4)
    assert clustered_yield(1.0, 3.0) == pytest.approx(0.421875)


@pytest.mark.parametrize(
    ("area", "node", "more"),
    [(0.0, 7, {}), (-1.0, 7, {}), (1e5, 7, {}), (100.0, 1, {}), (100.0, 7, {"wafer_usd": -1.0}),
     (100.0, 7, {"defects_per_cm2": float("nan")})],
)  # fmt: skip
def test_odd_dies_are_refused(area: float, node: float, more: dict[str, float]) -> None:
    with pytest.raises(SilicastError):
        die_cost(area, node, **more)


@given(NODES, NODES, st.sampled_from(["logic", "sram"]))
def test_factors_turn_round_and_hold_their_intervals(one: float, other: float, kind: str) -> None:
    there = node_energy_factor(kind, one, other)  # type: ignore[arg-type]
    back = node_energy_factor(kind, other, one)  # type: ignore[arg-type]
    assert there.estimate * back.estimate == pytest.approx(1.0)
    assert (there.estimate <= 1.0) == (other <= one)
    assert area_factor(one, other).estimate * area_factor(other, one).estimate == pytest.approx(1)
    assert leak_factor(one, other).p05 <= leak_factor(one, other).p95


def test_published_operations_lie_within_the_interval() -> None:
    result = node_energy_factor("logic", 45, 7)
    assert result.p05 < 1.31 / 3.7 < result.p95
    assert result.p05 < 0.34 / 1.1 < result.p95


def test_voltage_counts_by_its_square() -> None:
    assert voltage_energy_factor(1.0, 0.8).estimate == pytest.approx(0.64)


def test_areas_that_nobody_gave_are_named() -> None:
    design = Architecture(
        "x", (Memory("dram"), FanOut("units", (4,)), Memory("register", area_um2=500.0)),
        Compute("mac", area_um2=250.0),
    )  # fmt: skip
    area = area_of(design)
    assert area.unknown == ("dram",)
    assert area.mm2 == pytest.approx(4 * 750 / 1e6)


def test_a_design_goes_to_a_node_and_back() -> None:
    chip = find_design("simba-like").architecture
    there = NodeScaling(28, 7, 1.0, 0.8).applied(chip)
    assert there.memories[0] == chip.memories[0]
    for before, after in zip(chip.memories[1:], there.memories[1:], strict=True):
        assert after.read_pj is not None
        assert before.read_pj is not None
        assert after.read_pj < before.read_pj
    back = NodeScaling(7, 28, 0.8, 1.0).applied(there)
    assert back.compute.energy_pj == pytest.approx(chip.compute.energy_pj)
    with pytest.raises(SilicastError, match="more than 0 V"):
        NodeScaling(7, 7, 1.0, 0.0).applied(chip)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.25])
def test_leakage_lies_between_the_first_and_the_third_power_of_voltage(ratio: float) -> None:
    found = leak_factor(7, 7, 0.9, 0.9 * ratio)
    assert found.estimate == pytest.approx(ratio**2)
    assert (found.p05, found.p95) == pytest.approx(tuple(sorted((ratio, ratio**3))))


@pytest.mark.parametrize("kind", ["logic", "sram"])
def test_the_interval_between_nodes_is_the_spread_of_the_table_s_operations(kind: str) -> None:
    table = cmos().energy[0]
    coarse, fine = table.nodes_nm
    steps = math.log(coarse / fine)
    pairs = (table.logic if kind == "logic" else table.sram).values()
    exponents = [math.log(before / after) / steps for before, after in pairs]
    mean, spread = statistics.mean(exponents), statistics.stdev(exponents)
    factor = node_energy_factor(kind, coarse, fine)  # type: ignore[arg-type]
    assert factor.estimate == pytest.approx(math.exp(-mean * steps))
    assert factor.p05 == pytest.approx(math.exp(-(mean + Z90 * spread) * steps), rel=1e-6)
    assert factor.p95 == pytest.approx(math.exp(-max(mean - Z90 * spread, 0.0) * steps), rel=1e-6)
