"""A device's rates under the constants of a family, a style and a kind of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.movement.streaming_rates import GROUP, StreamingRates, rates_of
from silicast.kernels.physics.constants import load_physics

H100, L40S = find_device("H100"), find_device("L40S")
PLAIN = {
    name: value
    for name, value in load_physics(GROUP).constants("hopper").items()
    if "." not in name
}


def launch_s(factors: dict[str, float], family: str = "rmsnorm", style: str = "") -> float:
    """Of an H100 where only these factors stand beside the plain constants."""
    return StreamingRates.from_device(H100, family, PLAIN | factors, style=style).launch_s


def test_factors_of_memory_family_and_style_multiply() -> None:
    plain = launch_s({})
    factors = {
        "hbm.launch_cycles": 2.0, "rmsnorm.launch_cycles": 3.0, "scalar.launch_cycles": 5.0,
        "scalar.rmsnorm.launch_cycles": 7.0,
    }  # fmt: skip
    assert launch_s(factors) == pytest.approx(6.0 * plain)
    assert launch_s(factors, style="scalar") == pytest.approx(210.0 * plain)
    assert launch_s(factors, "softmax", "scalar") == pytest.approx(10.0 * plain)


def test_factors_of_another_memory_are_not_taken() -> None:
    assert launch_s({"gddr.launch_cycles": 2.0}) == launch_s({})
    on_boards = StreamingRates.from_device(L40S, "rmsnorm", PLAIN | {"gddr.launch_cycles": 2.0})
    assert on_boards.launch_s == pytest.approx(
        2.0 * StreamingRates.from_device(L40S, "rmsnorm", PLAIN).launch_s
    )


@pytest.mark.parametrize(
    "peak_and_reached",
    [
        lambda m: (m.dram_peak_per_s, m.dram_per_s),
        lambda m: (m.fma_peak_per_s, m.fma_per_s),
        lambda m: (m.xu_peak_per_s, m.xu_per_s),
        lambda m: (m.matrix_peak_per_s, m.matrix_per_s),
        lambda m: (m.port_peak_per_s, m.l2_per_s),
    ],
    ids=["dram", "fma", "xu", "matrix", "l2"],
)
@pytest.mark.parametrize("name", ["H100", "L40S", "A100", "B200", "T4"])
def test_no_rate_is_above_that_of_its_bound(
    name: str, peak_and_reached: Callable[[StreamingRates], tuple[float, float]]
) -> None:
    peak, reached = peak_and_reached(rates_of(find_device(name), "softmax"))
    assert 0.0 < reached <= peak
