"""Results that stay in a design's memory between operations, and what is spilled."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from silicast.accelerator.design.architecture_file import design_names
from silicast.accelerator.design.device import device_of_design
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.registry import implementation_for
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, OpBatch, Variant

KIB = 1024
IMAGE = {"batch": 1, "in_channels": 64, "out_channels": 64, "height": 32, "width": 32}


def npu(tcm_kib: float, stays_in: str = "tcm") -> Device:
    """The v75 with another memory."""
    table: dict[str, Any] = tomllib.loads(design_names()["hexagon-v75"].read_text())
    table["level"][1]["capacity_kib"] = tcm_kib
    table["system"]["results_stay_in"] = stays_in
    return device_of_design(table)


def of_convolution(device: Device, cache: str = "") -> Analysis:
    """A pointwise convolution: an image of 64 KiB, a result of 128 (16 bits), weights of 4."""
    op = Op.make("conv2d", Variant("int8", cache=cache), **IMAGE, kernel=1)
    model = implementation_for("conv2d", "loop_nest")
    assert model is not None
    return model.analyse(OpBatch.from_ops([op]), device)


def main_kib(device: Device, cache: str = "") -> float:
    return float(of_convolution(device, cache).demand.level_bytes["dram"][0]) / KIB


def test_what_fits_never_reaches_main_memory() -> None:
    """Only weights do: 64 x 64 of a byte."""
    assert main_kib(npu(8192)) == pytest.approx(4.0)
    assert main_kib(npu(8192), "cold") == main_kib(npu(8192, "")) == pytest.approx(196.0)


def test_what_does_not_fit_is_spilled() -> None:
    """Of 192 KiB, 48 stay; the other 144 go through main memory."""
    assert main_kib(npu(48, "")) - main_kib(npu(48)) == pytest.approx(48.0)


def test_a_larger_memory_is_never_slower() -> None:
    op = Op.make("conv2d", Variant("int8"), **IMAGE, kernel=3, padding=1)
    kib = (64, 128, 512, 8192)
    seconds = [times([op], npu(each))[0].estimate_s for each in kib]
    assert seconds == sorted(seconds, reverse=True)


def test_the_memory_that_is_named_is_on_the_chip() -> None:
    with pytest.raises(SilicastError, match="a memory on the chip"):
        npu(8192, "ddr")


@pytest.mark.parametrize("name", [each for each in design_names() if each.startswith("hexagon")])
def test_every_generation_has_the_operations_of_its_chip(name: str) -> None:
    tops = {"v66": 7, "v68": 26, "v69": 27, "v73": 48, "v75": 55, "v79": 65, "v81": 90}
    device = find_device(name)
    expected = 1e12 * tops[name.removeprefix("hexagon-")]
    assert device.peak_per_s("tensor", "int8") == pytest.approx(expected, rel=1e-3)
