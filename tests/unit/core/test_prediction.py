"""Predictions: intervals, error factors and parts that add up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.prediction import (
    ErrorFactors,
    Part,
    Prediction,
    Quantity,
    to_picoseconds,
    weakest_tier,
    worst_domain,
)


def test_parts_must_add_up_exactly() -> None:
    leaves = (Part("a", 3), Part("b", 4))
    assert Part.group("whole", leaves).exposed_ps == 7
    with pytest.raises(ValueError, match="do not add up"):
        Part("whole", 8, children=leaves)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_a_group_is_the_sum_of_its_children_to_the_picosecond(seconds: list[float]) -> None:
    children = [Part(str(i), to_picoseconds(s)) for i, s in enumerate(seconds)]
    assert Part.group("g", children).exposed_ps == sum(c.exposed_ps for c in children)


def test_independent_errors_shrink_in_a_sum_and_shared_ones_do_not() -> None:
    shared = ErrorFactors({"device": 0.1})
    error_factors = ErrorFactors({}, independent=0.1)
    assert ErrorFactors.of_sum([(1.0, shared)] * 4).log_sd == pytest.approx(0.1)
    assert ErrorFactors.of_sum([(1.0, error_factors)] * 4).log_sd == pytest.approx(0.05)


@given(
    st.lists(
        st.tuples(st.floats(1e-6, 1.0), st.floats(1e-9, 1), st.floats(1e-9, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_error_of_a_sum_is_never_larger_than_its_worst_term(
    terms: list[tuple[float, float, float]],
) -> None:
    factors = [(t, ErrorFactors({"device": a, "family:x": b})) for t, a, b in terms]
    worst_device = max(f.loadings["device"] for _, f in factors)
    assert ErrorFactors.of_sum(factors).loadings["device"] <= worst_device * (1 + 1e-12)


def test_interval_never_reaches_below_the_bound() -> None:
    part = Part("k", exposed_ps=1_000, bound_ps=950)
    latency = Prediction(part, ErrorFactors({}, independent=0.5)).latency_s
    assert latency.p05 == pytest.approx(950e-12)
    assert latency.p05 <= latency.estimate <= latency.p95


def test_ninety_percent_interval_of_a_known_spread() -> None:
    q = Quantity.around(1.0, 0.1)
    assert q.p95 == pytest.approx(math.exp(0.16448536269514722))
    assert q.p05 * q.p95 == pytest.approx(1.0)


def test_quantity_refuses_what_is_no_interval() -> None:
    with pytest.raises(ValueError, match="not an interval"):
        Quantity(1.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="not an interval"):
        Quantity(float("nan"), 0.0, 1.0)


def test_a_whole_is_as_weak_and_as_far_as_its_worst_part() -> None:
    assert weakest_tier(["calibrated", "analytic"]) == "analytic"
    assert worst_domain(["in", "out", "near"]) == "out"
