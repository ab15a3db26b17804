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


def _capacity(device: Device, level: str, unit: int) -> float | None:
    result = device.memory.get(level)
    return result.capacity_bytes / unit if result else None


def _fp32_pipe(device: Device) -> str:
    """Tables give the matrix rate of parts whose vector units run beside a matrix engine."""
    return "tensor" if device.execution_model == "systolic" else "fma"


FIELDS: dict[str, Figure] = {
    "compute_units": lambda d: float(d.cores),
    "clock_mhz": lambda d: d.clocks.boost_hz / 1e6,
    "fp32_tflops": lambda d: d.peak_per_s(_fp32_pipe(d), "fp32") / 1e12,
    "tf32_tflops": lambda d: d.peak_per_s("tensor", "tf32") / 1e12 or None,
    "fp16_tflops": lambda d: d.peak_per_s("tensor", "fp16") / 1e12 or None,
    "bf16_tflops": lambda d: d.peak_per_s("tensor", "bf16") / 1e12 or None,
    "fp8_tflops": lambda d: d.peak_per_s("tensor", "fp8") / 1e12 or None,
    "int8_tops": lambda d: d.peak_per_s("tensor", "int8") / 1e12 or None,
    "fp4_tflops": lambda d: d.peak_per_s("tensor", "nvfp4") / 1e12 or None,
    "mem_tbs": lambda d: d.dram.bandwidth_bytes_per_s / 1e12,
    "l2_mb": lambda d: _capacity(d, "l2", 1048576),
    "smem_kb_per_cu": lambda d: _capacity(d, "smem", 1024),
    "mall_mb": lambda d: _capacity(d, "l2", 1048576),
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

REASONS |= {
    ("MI100", "int8_tops"): "the table doubles the fp16 figure; the datasheet does not",
    ("MI210", "int8_tops"): "the table doubles the fp16 figure; the datasheet does not",
    ("MI210", "l2_mb"): "8 and 16 in the sources; ROCm's documentation has 8",
    ("MI250X", "tdp_w"): "half of a board: one die is the device that programs see",
    ("TPU v3", "bf16_tflops"): "123: Norrie et al. 2021",
    ("Gaudi3", "bf16_tflops"): "1835 counts the white paper's clock",
    ("Jetson AGX Orin 64GB", "int8_tops"): "the table counts the deep-learning accelerators too",
    ("Jetson Orin NX 16GB", "int8_tops"): "the table counts the deep-learning accelerators too",
    **{
        (name, field): "half of a board: one die is the device that programs see"
        for name in ("MI250", "MI250X")
        for field in (
            "compute_units", "fp32_tflops", "fp16_tflops", "bf16_tflops", "int8_tops", "l2_mb",
            "mem_tbs",
        )
    },
    **{
        (name, "l2_mb"): "the cache that all dies share is the Infinity Cache; L2s are a die's own"
        for name in ("MI300A", "MI300X", "MI325X", "MI350X", "MI355X")
    },
}  # fmt: skip


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
