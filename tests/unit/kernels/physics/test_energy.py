"""Energy of kernels: what must hold on every board and for every family."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lab.scorecard.held_out import held_out
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import draw_batch
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import (
    NOMINAL,
    KernelEnergy,
    above_static_j,
    activity,
    activity_names,
    applies_to,
    dynamic_w,
    energies,
    kernel_energy,
    model_log_sd,
    of_operations,
)
from silicast.kernels.physics.power import board
from silicast.kernels.registry import families, implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

BOARDS = ("H200", "GB200", "L40S", "T4", "A100", "MI300X", "P100-PCIE-16GB")
H200 = find_device("H200")
KNOWN = load_physics("energy")


def energy_of(batch: OpBatch, device: Device) -> tuple[KernelTimes, KernelEnergy]:
    model = implementation_for(batch.family, device.execution_model)
    assert model is not None
    times = model.times(batch, device)
    result = kernel_energy(times, batch, device)
    assert result is not None
    return times, result


def product(m: int, device: Device = H200, dtype: str = "bf16") -> tuple[KernelTimes, KernelEnergy]:
    op = Op.make("gemm", Variant(dtype, library="vllm"), m=m, n=8192, k=8192)
    return energy_of(OpBatch.from_ops([op]), device)


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("board", BOARDS)
def test_energy_lies_between_a_waiting_board_and_its_limit(board: str, family: str) -> None:
    device = find_device(board)
    model = implementation_for(family, "simt")
    assert model is not None
    batch = draw_batch(model, Variant("fp16"), 40, np.random.default_rng(3))
    try:
        times, result = energy_of(batch, device)
    except SilicastError:  # it does not compute the format
        return
    cap, current = device.power_cap_w, energies(device, family, batch.variant)
    assert cap is not None
    for values in (result.estimate_j, result.p05_j, result.p95_j, result.power_w):
        assert np.isfinite(values).all()
    assert (result.p05_j <= result.estimate_j).all()
    assert (result.estimate_j <= result.p95_j).all()
    assert (result.p05_j >= current.static_w * times.p05_s * (1 - 1e-12)).all()
    assert (result.p95_j <= cap * times.p95_s).all()
    assert (result.power_w >= current.static_w * (1 - 1e-12)).all()
    assert (result.power_w <= cap).all()


@pytest.mark.parametrize("family", ["gemm", "moe", "attention_decode", "rmsnorm", "dsa_module"])
def test_a_row_is_the_same_alone_and_in_a_batch(family: str) -> None:
    model = implementation_for(family, "simt")
    assert model is not None
    batch = draw_batch(model, Variant("bf16"), 12, np.random.default_rng(5))
    _, many = energy_of(batch, H200)
    for row in range(12):
        _, one = energy_of(batch.rows(np.array([row])), H200)
        for name in ("estimate_j", "p05_j", "p95_j", "power_w"):
            assert getattr(one, name)[0] == getattr(many, name)[row]


def test_devices_without_a_power_limit_or_power_model_have_none() -> None:
    assert not applies_to(replace(H200, power_cap_w=None))
    assert not applies_to(find_device("TPU-v5p"))
    assert applies_to(H200)


def test_large_products_reach_the_limit_and_idle_kernels_do_not() -> None:
    cap = H200.power_cap_w
    assert cap is not None
    _, large = product(16384)
    tiny = Op.make("gemm", Variant("bf16", library="vllm"), m=1, n=512, k=512)
    _, small = energy_of(OpBatch.from_ops([tiny]), H200)
    assert large.power_w[0] > 0.95 * cap
    assert small.power_w[0] < 0.5 * cap


def test_more_work_costs_more_energy() -> None:
    joules = [float(product(m)[1].estimate_j[0]) for m in (64, 512, 2048, 8192, 32768)]
    assert joules == sorted(joules)


def test_narrow_formats_cost_less_energy() -> None:
    assert product(16384, dtype="fp8")[1].estimate_j < product(16384)[1].estimate_j


def test_a_slower_clock_saves_energy_of_products() -> None:
    """Voltage falls with the clock: the same work for fewer joules, in more time."""
    slow = H200.at_clock(0.6 * H200.clocks.boost_hz)
    (times, full), (longer, saved) = product(16384), product(16384, slow)
    assert longer.estimate_s > times.estimate_s
    assert saved.estimate_j < full.estimate_j
    assert saved.power_w < 0.6 * full.power_w


def test_at_the_limit_energy_is_as_uncertain_as_time() -> None:
    times, result = product(16384)
    above = result.p95_j[0] / result.estimate_j[0]
    assert above == pytest.approx(times.p95_s[0] / times.estimate_s[0], rel=0.05)


def test_unmeasured_architectures_are_said_and_wider() -> None:
    known, other = (energies(x, "mamba2", Variant()) for x in (H200, find_device("T4")))
    assert known.measured
    assert not other.measured
    assert other.spread > known.spread


def test_energy_an_action_does_not_change_with_a_users_limits() -> None:
    """The scale from a board's own power limit is of the board as it was built."""
    card = find_device("L40S")
    slow = card.at_clock(0.5 * card.clocks.boost_hz)
    full, half = (energies(device, "gemm", Variant()) for device in (card, slow))
    assert half.main_byte_j == full.main_byte_j
    assert half.operation_j < full.operation_j
    assert half.core_w < 0.5 * full.core_w


def test_kernels_that_were_not_measured_count_as_their_family() -> None:
    c = KNOWN.default
    names = activity_names("moe", Variant("bf16", library="vllm", kernel="vllm_fused_moe"))
    assert all(name in c for name in names)
    assert activity("moe", Variant("bf16", library="other"), c) == c["activity.moe"]
    assert activity("unheard_of", Variant(), c) == 1.0


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_libraries_that_were_not_measured_count_as_the_mean_of_those_that_were(dtype: str) -> None:
    c = KNOWN.default
    other = Variant(dtype, library="other")
    measured = [
        activity("gemm", Variant("bf16", library=library), c) for library in ("trtllm", "vllm")
    ]
    assert activity("gemm", other, c) == c["activity.gemm"]
    card = find_device("H100")
    mean = activity("gemm", other, c, measured_on=card)
    assert mean == pytest.approx(math.sqrt(math.prod(measured)))
    unmeasured = Variant("bf16", kernel="of_no_row")
    assert activity("moe", unmeasured, c, measured_on=card) == c["activity.moe"]


def test_formats_that_were_not_measured_count_as_those_multiplied_alike() -> None:
    """4-bit weights are widened to 16 bits on Hopper, whichever scales they have; Blackwell
    multiplies nvfp4 as it is, and has no rows of 4-bit weights beside 16-bit activations.
    """
    for name, alike in (("H100", True), ("B200", False)):
        card = find_device(name)
        c = KNOWN.constants(card.architecture)
        widened, measured = (
            activity("gemm", Variant(dtype), c, measured_on=card)
            for dtype in ("w4a16_mxfp4", "nvfp4")
        )
        assert (widened == measured) is alike


@pytest.mark.parametrize("name", ["H100", "H200", "B200", "A100", "L4", "MI300X"])
@pytest.mark.parametrize("family", ["gemm", "moe"])
def test_large_products_of_models_draw_what_the_law_of_the_clock_says(
    name: str, family: str
) -> None:
    """Rows show no more than that they reach the limit; both laws leave it aside here."""
    device, variant = find_device(name), Variant("bf16")
    current, clocked = energies(device, family, variant), board(device, "bf16")
    busy, rate = NOMINAL["tensor"], device.peak_per_s("tensor", "bf16")
    operation_j = current.operation_j * of_operations(device, family, variant)
    watts = current.activity * (current.core_w + busy * rate * operation_j)
    assert current.static_w + watts == pytest.approx(clocked.idle_w + busy * clocked.matrix_w)
    assert operation_j > current.operation_j


def test_operations_take_no_less_in_models() -> None:
    """Large products of these boards leave room under their limit: their cores alone draw more by
    the law of energy than products by that of the clock.
    """
    assert of_operations(find_device("V100"), "gemm", Variant("fp16")) == 1.0


def test_a_product_takes_more_in_a_model_than_its_rows_say() -> None:
    """Beyond what the board draws while it waits: by what an operation takes more, and no more."""
    times, _ = product(4096)
    batch = OpBatch.from_ops(
        [Op.make("gemm", Variant("bf16", library="vllm"), m=4096, n=8192, k=8192)]
    )
    joules = above_static_j(times, batch, H200)
    current = energies(H200, "gemm", batch.variant)
    more = of_operations(H200, "gemm", batch.variant) - 1.0
    plain_j = dynamic_w(times.analysis, batch, H200, times.estimate_s) * times.estimate_s
    operations_j = current.activity * current.operation_j * 2.0 * 4096 * 8192 * 8192
    assert joules is not None
    assert joules == pytest.approx(plain_j + more * operations_j, rel=1e-3)


def test_transfer_constants_leave_their_architecture_out() -> None:
    bodies = held_out("energy")
    assert sorted(bodies) == sorted(KNOWN.architectures)
    for name, body in bodies.items():
        assert name not in body.architectures
        assert body.default.keys() >= {"operation_j", "core_cycle_j", "unmeasured_log_sd"}


def test_errors_of_single_kernels_average_out_over_runs() -> None:
    """Of a board, less than those of a kernel; more where nothing of an architecture was measured,
    and where a board's power without work was not.
    """
    measured, sibling, unmeasured = (
        model_log_sd(find_device(name), 0.5) for name in ("H200", "H100", "A100")
    )
    assert 0.0 < measured < sibling < unmeasured
    assert measured < energies(H200, "gemm", Variant("bf16")).log_sd
    assert unmeasured < energies(find_device("A100"), "gemm", Variant("bf16")).log_sd
