"""What a design's product moves through main memory bounds it, whatever ran before."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from silicast.hardware.catalog import device_from
from silicast.learning.dispatch import time_of
from silicast.workload.graphs.op import Op, Variant

SLOW: dict[str, Any] = {
    "name": "slow", "clock_mhz": 500,
    "level": [
        {"name": "main", "word_bits": 16, "port": [{"words_per_cycle": 1}]},
        {"name": "buffer", "capacity_kib": 64},
        {"name": "array", "mesh": [8, 8]},
    ],
    "compute": {"energy_pj": 0.2}, "vector": {"per_cycle": 16}, "system": {"memory_gb": 4.0},
}  # fmt: skip
BYTES = 2.0 * 3 * 64 * 64


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_no_product_is_quicker_than_its_operands_and_results(cache: str) -> None:
    device = device_from(SLOW)
    op = Op.make("gemm", dataclasses.replace(Variant("bf16"), cache=cache), m=64, n=64, k=64)
    time = time_of(op, device)
    least_s = BYTES / device.dram.bandwidth_bytes_per_s
    assert time.bound_s == pytest.approx(least_s)
    assert time.bound_by == "dram"
    assert least_s <= time.p05_s <= time.estimate_s
