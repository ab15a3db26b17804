"""What is not known of a device widens its intervals and moves no estimate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import device_index, find_device
from silicast.hardware.device import NO_CAP, Device
from silicast.kernels.physics.formats import with_format
from silicast.kernels.physics.measured_range import Quality, knowledge_errors, software_quality
from silicast.learning.dispatch import times
from silicast.workload.graphs.op import Op, Variant

MODELLED: list[Device] = [device_index().get(name) for name in device_index().names]
OTHER_SIMT = [
    device for device in MODELLED if device.execution_model == "simt" and device.vendor != "NVIDIA"
]


def spread(device: Device, op: Op) -> float:
    time = times([op], device)[0]
    return time.p95_s / time.estimate_s


@pytest.mark.parametrize("name", ["H100", "A100", "L4", "T4", "B200", "RTX PRO 6000"])
def test_measured_architectures_add_nothing(name: str) -> None:
    assert knowledge_errors(find_device(name)) == {}


def test_each_unpublished_kind_of_number_widens_once() -> None:
    plain = find_device("MI300X")
    op = Op.make("gemm", m=4096, n=4096, k=4096)
    widths = [
        spread(dataclasses.replace(plain, name=f"MI300X {i}", unknowns=unknowns), op)
        for i, unknowns in enumerate(
            (
                (),
                ("memory.l2.bandwidth",),
                ("memory.l2.bandwidth", "memory.l2.capacity"),
                ("memory.l2.bandwidth", "clocks.boost_mhz"),
                ("memory.l2.bandwidth", "clocks.boost_mhz", "compute.children.count"),
            )
        )
    ]
    assert widths[0] < widths[1] == widths[2] < widths[3] < widths[4]


def test_links_and_power_do_not_matter_to_kernels() -> None:
    device = dataclasses.replace(find_device("H100"), unknowns=("links.nvlink", "power.cap_w"))
    assert knowledge_errors(device) == {}


def test_a_board_without_a_stated_cap_is_said_near_and_wider() -> None:
    plain = find_device("L4")
    vague = dataclasses.replace(plain, name="vague", power_cap_w=None, unknowns=(NO_CAP,))
    op = Op.make("gemm", m=4096, n=4096, k=4096)
    known, time = times([op], plain)[0], times([op], vague)[0]
    assert (known.domain, time.domain) == ("in", "near")
    assert any("power.cap_w" in text for text in time.warnings)
    assert spread(vague, op) > 1.1 * spread(plain.in_state("boost"), op)
    assert spread(vague, op) > 276 / 219  # what the cap costs a prefill of an 8B model on an L4


def test_unknowns_do_not_move_the_estimate() -> None:
    plain = find_device("MI300X")
    vague = dataclasses.replace(plain, name="vague", unknowns=("compute.children.count",))
    op = Op.make("gemm", m=1024, n=4096, k=4096)
    assert times([op], plain)[0].estimate_s == times([op], vague)[0].estimate_s


def test_quality_is_for_other_vendors_only() -> None:
    assert software_quality(find_device("H100"), "gemm", "bf16").is_plain
    assert software_quality(find_device("B300"), "attention_decode").is_plain
    assert software_quality(find_device("TPU v5p"), "gemm", "bf16").is_plain
    assert not software_quality(find_device("Arc Pro B60"), "gemm", "bf16").is_plain


@pytest.mark.parametrize("name", ["MI100", "MI300X", "MI355X"])
def test_products_with_constants_of_their_own_need_no_quality(name: str) -> None:
    for compute in ("fp32", "bf16", "fp8"):
        assert software_quality(find_device(name), "gemm", compute).is_plain


def test_a_formats_own_quality_goes_before_the_familys() -> None:
    device = find_device("MI25")
    assert software_quality(device, "gemm", "fp32").slowdown != 1.0
    assert software_quality(device, "gemm", "int4").is_plain


def test_each_term_of_a_quality_adds_what_it_says() -> None:
    base, peak = np.array([10e-6, 40e-6]), np.array([4e-6, 30e-6])
    tasks, cores = np.array([10.0, 101.0]), 50

    def time(stream: bool = False, **terms: float) -> list[float]:
        applied = Quality(**terms).applied(base, peak, tasks, cores, stream=stream)
        return [round(seconds * 1e6, 6) for seconds in applied]

    assert time() == [10.0, 40.0]
    assert time(slowdown=2.0) == [20.0, 80.0]
    assert time(extra_peaks=0.5) == [12.0, 55.0]
    assert time(extra_s=1e-6) == [11.0, 41.0]
    assert time(task_s=1e-6) == [11.0, 43.0]
    assert time(stream_extra_s=5e-6) == [10.0, 40.0]
    assert time(stream_extra_s=5e-6, stream=True) == [15.0, 45.0]
    assert time(stream_extra_s=-20e-6, stream=True) == [1.0, 20.0]  # the kernel itself remains


def test_what_a_rows_shape_leaves_open_can_be_measured() -> None:
    op = Op.make("attention_decode", batch=8, q_len=1, kv_len=4096, num_heads=32, num_kv_heads=8)
    device = find_device("B60")
    independent_log_sd = software_quality(device, "attention_decode").independent_log_sd
    assert times([op], device)[0].independent_log_sd == pytest.approx(independent_log_sd)


@pytest.mark.parametrize(
    ("name", "dtype", "substitute"),
    [("A100", "fp8", "bf16"), ("V100", "fp8", "fp16"), ("H100", "nvfp4", "bf16"),
     ("TPU v4", "fp8", "bf16"), ("M2 Ultra", "int8", "bf16"), ("EPYC 9654", "fp8", "bf16")],
)  # fmt: skip
def test_narrow_formats_without_a_unit_are_computed_in_wider_ones(
    name: str, dtype: str, substitute: str
) -> None:
    device = find_device(name)
    able, remark = with_format(device, dtype)
    assert remark == f"{device.name} has no {dtype} units: computed in {substitute}"
    pipe = device.matrix_pipe(substitute)
    assert able.rate_per_core(pipe, dtype) == device.rate_per_core(pipe, substitute)
    assert with_format(able, dtype) == (able, "")


def test_a_substitute_is_said_and_widens() -> None:
    ops = [Op.make("gemm", Variant(dtype=d), m=4096, n=4096, k=4096) for d in ("bf16", "fp8")]
    wide, narrow = times(ops, find_device("A100"))
    assert any("no fp8 units" in text for text in narrow.warnings)
    assert wide.warnings == ()
    assert narrow.p95_s / narrow.estimate_s > wide.p95_s / wide.estimate_s
    assert narrow.bound_s == wide.bound_s  # the arithmetic is the same


def test_nothing_stands_in_for_sixteen_bits() -> None:
    with pytest.raises(SilicastError, match="no bf16 matrix arithmetic"):
        times([Op.make("gemm", m=8, n=8, k=8)], find_device("V100"))


@pytest.mark.parametrize("device", OTHER_SIMT, ids=lambda device: device.name)
def test_large_products_reach_a_plausible_share_of_the_peak(device: Device) -> None:
    has_bf16 = any(device.rate_per_core(pipe, "bf16") for pipe in ("tensor", "fma"))
    dtype = "bf16" if has_bf16 else "fp16"
    time = times([Op.make("gemm", Variant(dtype=dtype), m=8192, n=8192, k=8192)], device)[0]
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    assert 0.25 < 2.0 * 8192**3 / time.estimate_s / peak < 0.95
