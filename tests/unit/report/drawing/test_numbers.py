"""Numbers as text keep their value and their unit."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from silicast.core.metrics import words_and_unit
from silicast.report.drawing.numbers import Shown, against, duration, rounded

positive = st.floats(1e-9, 1e12)


@given(positive)
def test_rounding_keeps_three_digits(value: float) -> None:
    shown = float(rounded(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=0.0051)


@given(positive, positive)
def test_rounding_keeps_the_order(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert float(rounded(low).replace(",", "")) <= float(rounded(high).replace(",", "")) * 1.0051


@given(st.floats(1e-9, 1e8))
def test_durations_keep_their_value(seconds: float) -> None:
    number, unit = duration(seconds).split()
    long = {"min": 60.0, "h": 3600.0, "days": 86400.0}
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9, **long}[unit]
    assert math.isclose(float(number.replace(",", "")) * factor, seconds, rel_tol=0.0051)


def test_units_of_the_contract_are_known() -> None:
    names = (
        "latency_us", "energy_mj", "bus_bandwidth_gbs", "e2e_ms", "memory_gb", "ttft_p99_ms",
        "output_tokens_per_s", "output_tokens_per_s_per_gpu", "step_time_s",
        "model_tflops_per_gpu",
    )  # fmt: skip
    assert all(words_and_unit(name)[1] for name in names)
    assert words_and_unit("mfu") == ("mfu", "")


def test_all_three_numbers_share_a_unit() -> None:
    shown = Shown("latency_us", {"estimate": 1500.0, "p05": 900.0, "p95": 2100.0})
    assert (shown.value, shown.interval) == ("1.50 ms", "0.900 – 2.10")


def test_a_known_value_is_exact() -> None:
    assert Shown("memory_gb", {"estimate": 3.0, "p05": 3.0, "p95": 3.0}).interval == "exact"


@given(st.floats(1e-5, 1e4), st.floats(1e-12, 0.1))
def test_what_differs_is_printed_apart(limit_s: float, over: float) -> None:
    """Two texts alike beside "missed" tell nobody why."""
    seconds = limit_s * (1.0 + over)
    value, limit = against(seconds, limit_s)
    assert value != limit
    assert against(limit_s, limit_s) == (duration(limit_s), duration(limit_s))
