"""Products on matrix units that take MFMA instructions."""

from __future__ import annotations

import numpy as np
import pytest

from lab.scorecard.suites.mfma import experts_held_out, products_held_out, stuck
from silicast.core.dtypes import RECIPES
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import constants_of, load_physics, measured_constants
from silicast.kernels.products.gemm import Gemm, GemmSetting, estimate
from silicast.kernels.products.gemm_constants import constants_for
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

LATER = ("MI300X", "MI325X", "MI308X", "MI350X", "MI355X")


def drawn(rows: int, seed: int, *, batch: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    sizes = {side: random.integers(1, 1 << random.integers(4, 15), rows) for side in "mnk"}
    return {**sizes, "batch": random.integers(1, batch + 1, rows)}


def seconds(sizes: dict[str, np.ndarray], device: str, dtype: str, cache: str = "") -> np.ndarray:
    batch = OpBatch("gemm", Variant(dtype=dtype, cache=cache), sizes)
    return Gemm().times(batch, find_device(device)).estimate_s


@pytest.mark.parametrize("device", LATER)
@pytest.mark.parametrize("dtype", ["fp8", "fp8_block", "int8"])
def test_eight_bits_are_at_most_about_twice_as_fast_as_sixteen(device: str, dtype: str) -> None:
    """The pipe is twice as wide, operands are half as large, and nothing else changes."""
    for seed in range(20):
        sizes = drawn(50, seed)
        wide = seconds(sizes, device, dtype="bf16", cache="cold")
        narrow = seconds(sizes, device, dtype=dtype, cache="cold")
        assert (wide < 2.3 * narrow).all()


@pytest.mark.parametrize("device", ["MI100", "MI210", "MI250"])
def test_a_batch_of_products_is_each_of_them_to_the_bit(device: str) -> None:
    sizes = drawn(40, 1, batch=600)
    together = seconds(sizes, device, dtype="fp32")
    for row in range(40):
        one = {name: int(column[row]) for name, column in sizes.items()}
        op = OpBatch.single(Op.make("gemm", Variant(dtype="fp32"), **one))
        assert Gemm().times(op, find_device(device)).estimate_s == together[row]


def test_deep_batches_run_the_kernel_of_a_single_product() -> None:
    """Which suits one product that is too small for the device, not hundreds of them."""
    many = {name: np.array([size]) for name, size in zip("mnk", (64, 512, 512), strict=True)}
    tall = {**many, "m": np.array([64 * 512]), "batch": np.array([1])}
    batched = seconds({**many, "batch": np.array([512])}, "MI100", dtype="fp32")
    assert batched[0] > 2.0 * seconds(tall, "MI100", dtype="fp32")[0]


def test_constants_are_those_of_the_architecture_or_its_stand_in() -> None:
    assert measured_constants("gemm", "cdna3")
    assert not measured_constants("gemm", "cdna5")
    assert constants_of("gemm", "cdna5") == constants_of("gemm", "cdna4")
    assert constants_of("gemm", "hopper") == load_physics("gemm").constants("hopper")
    assert constants_of("moe", "cdna4") != load_physics("moe").constants("cdna4")
    assert constants_of("streaming", "cdna2") == constants_of("streaming", "cdna")


def test_operands_come_faster_from_a_faster_shared_memory() -> None:
    old, new = (
        constants_for(find_device(name), RECIPES["bf16"])["operand_bytes_per_clock"]
        for name in ("MI300X", "MI355X")
    )
    assert new == pytest.approx(2.0 * old)


def test_rows_of_a_shape_are_on_one_side() -> None:
    n = np.repeat(np.arange(128, 16384, 128), 2)
    k = np.tile([1024, 5120], len(n) // 2)
    held = products_held_out(n, k)
    assert (held == products_held_out(n[::-1], k[::-1])[::-1]).all()
    assert 0.2 < held.mean() < 0.45
    assert 0.2 < experts_held_out(n, k, k // 8, k // 128).mean() < 0.45


def test_results_of_all_blocks_but_the_last_may_be_written_meanwhile() -> None:
    """One block has no main loop behind it that could hide its results; all others have."""
    device, variant = find_device("MI355X"), Variant(dtype="bf16", library="aiter")
    plain = {**constants_for(device, RECIPES["bf16"], "aiter"), "store_bytes_per_clock": 1.0}
    exposed, hidden = (
        GemmSetting.from_variant(variant, device, {**plain, "store_hidden": share})
        for share in (0.0, 1.0)
    )
    sizes = np.array([[16.0, 16.0, 64.0, 1.0], [65536.0, 65536.0, 64.0, 1.0]]).T
    one, many = estimate(hidden, *sizes)[0] / estimate(exposed, *sizes)[0]
    assert one == 1.0
    assert many < 0.5


@pytest.mark.parametrize("kernel", ["preshuffled", "a8w8_bpreshuffle_256x128", "cktile"])
def test_a_kernel_of_the_tuner_has_constants_of_its_own(kernel: str) -> None:
    """By its name in the tuner's files or by ours; on a chip without rows of it, another's."""
    op = Op.make("gemm", Variant(dtype="fp8_block", library="aiter"), m=8192, n=8192, k=8192)
    named = Op.make(
        "gemm", Variant(dtype="fp8_block", library="aiter", kernel=kernel), **dict(op.dims)
    )
    for device in ("MI300X", "MI355X"):
        usual, current = (
            Gemm().times(OpBatch.single(each), find_device(device)).estimate_s
            for each in (op, named)
        )
        assert current < usual


@pytest.mark.parametrize("dtype", ["bf16", "fp8_block"])
@pytest.mark.parametrize("family", ["gemm", "moe"])
def test_a_board_of_fewer_cores_and_the_same_memory(family: str, dtype: str) -> None:
    """MI308X has 80 of MI300X's 304 cores, at two thirds of the clock, and all of its memory: few
    rows, which read weights, take at most as much longer as its cores can have in flight less than
    the memory gives; many take as much longer as there is less arithmetic.
    """
    sizes = {
        "gemm": {"n": 16384, "k": 8192},
        "moe": {"experts": 64, "topk": 8, "hidden": 7168, "intermediate": 2048},
    }[family]
    flags = (("gated", True), ("uniform", True)) if family == "moe" else ()
    variant = Variant(dtype=dtype, library="aiter", flags=flags)
    full, few = find_device("MI300X"), find_device("MI308X")
    model = implementation_for(family, "simt")
    assert model is not None

    def longer(rows: int) -> float:
        count = {"m" if family == "gemm" else "tokens": rows}
        batch = OpBatch.single(Op.make(family, variant, **count, **sizes))
        less, more = (
            float(np.max(model.times(batch, device).estimate_s)) for device in (full, few)
        )
        return more / less

    arithmetic = full.peak_per_s("tensor", "bf16") / few.peak_per_s("tensor", "bf16")
    assert 1.0 <= longer(16) < 1.7
    assert 0.5 * arithmetic < longer(32768) < 1.2 * arithmetic


def test_rows_of_a_tuner_that_stopped_measuring_are_left_out() -> None:
    grows = [{"token": 2**i, "topk": 8, "expert": 8, "us": float(2**i)} for i in range(10)]
    stays = [{**row, "us": min(row["us"], 64.0)} for row in grows]
    assert not stuck(grows)
    assert stuck(stays)
    assert not stuck(stays[:7])
