"""Numbers that contradict each other are named, each with what is expected and what to do."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from silicast.hardware.check import check_device
from silicast.hardware.index import DEVICES
from tests.unit.hardware.tables import bent, refused, table

PIPES = "compute.children[0].pipes"


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        ("clocks.base_mhz", 2100, "clocks.base_mhz", "at most the boost clock, 2000"),
        ("clocks.base_mhz", 210, "clocks.boost_mhz", "at most 6 x the base clock, 210"),
        ("clocks.max_mhz", 1900, "clocks.max_mhz", "at least the boost clock, 2000"),
        ("clocks.max_mhz", 4100, "clocks.max_mhz", "at most 2 x the boost clock, 2000"),
        ("power.idle_w", 310, "power.idle_w", "below the cap, 300"),
        ("power.cap_w", 15, "power.idle_w", "below the cap, 15"),
        ("links.nvlink.bandwidth_gb_per_s", 1200, "links.nvlink.bandwidth_gb_per_s", "delivers"),
        ("memory.l2.bandwidth_bytes_per_clock", 30000, "memory.l2.bandwidth_gb_per_s", "at most"),
        ("memory.smem.bandwidth_bytes_per_clock", 5000,
         "memory.smem.bandwidth_bytes_per_clock", "of one core"),
        ("memory.dram.bandwidth_gb_per_s", 3, "memory.dram.bandwidth_gb_per_s", "for 48 GB"),
        ("compute.children.0.pipes.tensor.fp8", 9000, f"{PIPES}.tensor.fp8", "rate of bf16, 1024"),
        # the rate of the whole device, 204.8 TFLOPS at 2 GHz, given for each core
        ("compute.children.0.pipes.fma.fp32", 102400, f"{PIPES}.fma.fp32", "within 300 W"),
    ],
)  # fmt: skip
def test_each_contradiction_is_named(path: str, value: float, field: str, expected: str) -> None:
    data = bent(path, value)
    if path == "memory.dram.bandwidth_gb_per_s":
        data["links"] = {}
        data["memory"]["dram"]["capacity_gb"] = 48_000
        expected = "for 48000 GB"
    error = refused(data)
    assert error.field == field
    assert expected in error.message
    assert "found" in error.message
    assert f"correct {field}" in error.hint
    assert field in [problem.field for problem in check_device(data)]


def _with_bus(bits: float | None, rate: float | None) -> dict[str, Any]:
    data = table()
    dram = {"bus_bits": bits, "data_rate_gbit_per_s": rate}
    data["memory"]["dram"] |= {name: value for name, value in dram.items() if value is not None}
    return data


def test_a_bandwidth_is_that_of_its_bus_where_both_are_given() -> None:
    (problem,) = check_device(_with_bus(384, 18))
    assert problem.field == "memory.dram.bandwidth_gb_per_s"
    assert problem.expected == "864 = 384 bits x 18 Gbit/s / 8"
    assert problem.found == "1000"
    assert check_device(_with_bus(384, 20.8)) == []  # 998.4
    assert check_device(_with_bus(384, None)) == check_device(_with_bus(None, 18)) == []


def test_what_is_published_is_far_from_the_limits() -> None:
    """Twice as good as the best of the catalog passes too."""
    for name in ("nvidia-rubin", "amd-mi455x", "nvidia-b300-sxm-288gb", "nvidia-h100-nvl-94gb"):
        data = tomllib.loads((DEVICES / f"{name}.toml").read_text(encoding="utf-8"))
        data["power"]["cap_w"] /= 2
        assert check_device(data) == []
