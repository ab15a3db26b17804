"""The catalog against the collected device tables: every difference has a reason."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.hardware.index import device_names

TOLERANCE = 0.04
Figure = Callable[[Device], float | None]
FIELDS: dict[str, Figure] = {
    "compute_units": lambda d: float(d.cores),
    "clock_mhz": lambda d: d.clocks.boost_hz / 1e6,
    "fp32_tflops": lambda d: d.peak_per_s("fma", "fp32") / 1e12,
    "tf32_tflops": lambda d: d.peak_per_s("tensor", "tf32") / 1e12 or None,
    "fp16_tflops": lambda d: d.peak_per_s("tensor", "fp16") / 1e12 or None,
    "bf16_tflops": lambda d: d.peak_per_s("tensor", "bf16") / 1e12 or None,
    "fp8_tflops": lambda d: d.peak_per_s("tensor", "fp8") / 1e12 or None,
    "int8_tops": lambda d: d.peak_per_s("tensor", "int8") / 1e12 or None,
    "fp4_tflops": lambda d: d.peak_per_s("tensor", "nvfp4") / 1e12 or None,
    "mem_tbs": lambda d: d.dram.bandwidth_bytes_per_s / 1e12,
    "l2_mb": lambda d: d.l2.capacity_bytes / 1048576,
    "smem_kb_per_cu": lambda d: d.memory["smem"].capacity_bytes / 1024,
    "tdp_w": lambda d: d.power_cap_w,
}
REASONS = {
    ("H100-SXM-80GB", "fp32_tflops"): "67 counts the largest clock",
    ("H100-SXM-80GB", "clock_mhz"): "1980 is the largest clock",
    ("H100-PCIE-80GB", "fp32_tflops"): "51 counts the largest clock",
    ("H200-SXM-141GB", "fp32_tflops"): "67 counts the largest clock",
    ("GH200-144GB", "fp32_tflops"): "67 counts the largest clock",
    ("B200-SXM-180GB", "fp32_tflops"): "80 is GB200's",
    ("B300-SXM-288GB", "fp32_tflops"): "80 is GB300's",
    ("B300-SXM-288GB", "fp4_tflops"): "12.6 to 14 PFLOPS in the sources; 13.5 is 1.5 x B200",
    ("B300-SXM-288GB", "int8_tops"): "cut; another source lists B200's",
    ("GB300", "int8_tops"): "cut; another source lists GB200's",
    ("B300-SXM-288GB", "tdp_w"): "1000 and 1100 in the sources",
    ("H200-SXM-141GB", "l2_mb"): "six memory stacks as H20: 60 MiB",
    ("P4", "compute_units"): "counted as 64 cores each",
    ("P100-PCIE-16GB", "clock_mhz"): "1380 is no clock of this part",
    ("RTX PRO 5000 Blackwell", "tf32_tflops"): "the page gives the GeForce rate",
    ("RTX PRO 5000 Blackwell", "fp16_tflops"): "the page gives the GeForce rate",
    ("RTX PRO 5000 Blackwell", "bf16_tflops"): "the page gives the GeForce rate",
    ("RTX PRO 5000 Blackwell", "fp8_tflops"): "the page gives the GeForce rate",
}


def _rows() -> Iterator[tuple[str, str, float]]:
    root = Path(__file__).resolve().parents[3]
    data = Path(os.environ.get("SILICAST_DATA", root.parent / "shared" / "data"))
    path = data / "hardware" / "device_spec_values.csv"
    if not path.is_file():
        pytest.skip(f"no device tables at {path}: set SILICAST_DATA")
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["field"] in FIELDS:
                yield row["device"], row["field"], float(row["value"])


@pytest.mark.data
def test_every_difference_has_a_reason() -> None:
    differing, compared = {}, 0
    for name, field, theirs in _rows():
        if device_names().get(name).missing:
            continue
        device = find_device(name)
        ours = FIELDS[field](device)
        compared += ours is not None
        if ours is not None and abs(ours / theirs - 1.0) > TOLERANCE:
            differing[device.name, field] = (ours, theirs)
    assert compared > 200
    assert {key: value for key, value in differing.items() if key not in REASONS} == {}
    assert [key for key in REASONS if key not in differing] == [], "no longer different"
