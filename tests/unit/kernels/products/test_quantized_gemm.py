"""Products of stored weights: limits that follow from counts and datasheets."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import kernel_energy, waiting_w
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

LARGE = 16384


def time_s(m: int, dtype: str, device: str = "RTX 4090", library: str = "ggml_cuda") -> float:
    board = find_device(device)
    model = implementation_for("quantized_gemm", board.execution_model)
    assert model is not None
    op = Op.make(
        "quantized_gemm", Variant(dtype, library=library, cache="cold"), m=m, n=LARGE, k=LARGE
    )
    return float(model.times(OpBatch.from_ops([op]), board).estimate_s[0])


@pytest.mark.parametrize("dtype", ["q4_0", "q8_0", "q4_k", "fp16"])
def test_one_row_takes_the_weights_over_a_share_of_the_bandwidth(dtype: str) -> None:
    from silicast.core.dtypes import RECIPES

    constants = load_physics("quantized").constants("ggml_cuda")
    weights = LARGE * LARGE * RECIPES[dtype].weight_bits / 8.0
    streamed = weights / (1.008e12 * constants["dram_efficiency"])
    assert 1.0 <= time_s(1, dtype) / streamed <= 1.25


def test_many_rows_take_operations_over_a_share_of_the_integer_peak() -> None:
    constants = load_physics("quantized").constants("ggml_cuda")
    peak = 128 * 2048 * 2.52e9  # SMs, int8 operations of one a clock, boost clock
    computed = 2.0 * 4096 * LARGE * LARGE / (peak * constants["matrix_efficiency"])
    assert time_s(4096, "q4_k") / computed == pytest.approx(1.0, abs=0.1)


def test_volta_converts_weights_of_many_rows_and_multiplies_floats() -> None:
    """8 tensor cores x 128 operations an SM and clock for floats and none for integers: the weights
    are read, written in 16 bits, and multiplied by a dense product, from 64 rows on.
    """
    board = find_device("V100-PCIE-16GB")
    constants = load_physics("quantized").constants("ggml_cuda")
    weights = LARGE * LARGE
    peak = 80 * 1024 * board.clocks.boost_hz
    written = weights * (4.5 / 8 + 2.0) / (board.dram.bandwidth_bytes_per_s * 0.85)
    for rows in (64, 4096):
        multiplied = 2.0 * rows * weights / (peak * constants["converted_efficiency"])
        assert time_s(rows, "q4_k", board.name) == pytest.approx(multiplied + written, rel=0.05)
    unpacked = 2.0 * 63 * weights / (peak * constants["matrix_efficiency"])
    assert unpacked < time_s(63, "q4_k", board.name) < time_s(64, "q4_k", board.name)
    turing = find_device("RTX 2080 Ti")  # units for integers: no conversion
    operations = 2.0 * 4096 * weights / (68 * 2048 * turing.clocks.boost_hz)
    share = operations / time_s(4096, "q4_k", turing.name)
    assert share == pytest.approx(constants["matrix_efficiency"], rel=0.1)


def test_experts_read_the_weights_of_those_that_are_chosen() -> None:
    board = find_device("RTX 4090")
    model = implementation_for("quantized_moe", "simt")
    assert model is not None
    sizes = {"experts": 64, "topk": 4, "hidden": 2048, "intermediate": 1024}
    one = Op.make("quantized_moe", Variant("q4_0"), tokens=1, **sizes)
    bits = 4 * 3 * 2048 * 1024 * 4.5 + 2 * 4 * 2048 * 16
    assert model.compulsory_bytes(one) == bits / 8
    many = OpBatch.from_ops(
        [
            Op.make("quantized_moe", Variant("q4_0", cache="cold"), tokens=t, **sizes)
            for t in (1, 64)
        ]
    )
    moved = model.analyse(many, board).demand.level_bytes["dram"]
    assert np.all(np.diff(moved) > 0)
    assert moved[1] < 17 * moved[0]  # all 64 experts and no more


def test_a_back_end_that_nobody_measured_says_so() -> None:
    board = find_device("RX 9070 XT")
    model = implementation_for("quantized_gemm", "simt")
    assert model is not None
    assert model.is_measured(Variant("q4_k", library="ggml_cuda"), board)
    assert not model.is_measured(Variant("q4_k", library="ggml_hip"), board)


def test_dot_products_of_a_row_keep_all_cores_busy() -> None:
    """A block computes one column of one row, or 128 columns of many rows: a token of a model draws
    the power of all cores, not of the one that a block for all columns would keep busy.
    """
    board = find_device("RTX 3090")
    model = implementation_for("quantized_gemm", board.execution_model)
    assert model is not None
    variant = Variant("q4_k", library="ggml_cuda", cache="cold")
    ops = [Op.make("quantized_gemm", variant, m=m, n=4096, k=4096) for m in (1, 100)]
    times = model.times(OpBatch.from_ops(ops), board)
    rows = load_physics("quantized").constants("ggml_cuda")["tile_rows"]
    assert times.analysis.demand.tasks.tolist() == [4096.0, 32.0 * -(-100 // rows)]
    energy = kernel_energy(times, OpBatch.from_ops(ops), board)
    assert energy is not None
    per_core = board.cores * board.clocks.boost_hz
    cycles_w = load_physics("energy").constants(board.architecture)["core_cycle_j"] * per_core
    assert energy.power_w[0] > waiting_w(board) + 0.5 * cycles_w


def test_experts_have_the_columns_of_both_sides_of_the_activation() -> None:
    """Gate and up have the inner width, down the hidden size: 2 x 14,336 + 4,096 of Mixtral, not
    three times the inner width; the two calls of a layer in two have them together.
    """
    board = find_device("RTX 3090")
    model = implementation_for("quantized_moe", board.execution_model)
    assert model is not None
    sizes = {"tokens": 1, "experts": 8, "topk": 2, "hidden": 4096, "intermediate": 14336}
    whole, first, last = (
        Variant("q4_k", library="ggml_cuda", flags=flags)
        for flags in ((("gated", True),), (("gated", True), ("w13", True)), (("w2", True),))
    )

    def tasks(variant: Variant, **changes: int) -> float:
        op = Op.make("quantized_moe", variant, **{**sizes, **changes})
        demand = model.times(OpBatch.from_ops([op]), board).analysis.demand
        return float(np.ravel(demand.tasks)[0])

    assert tasks(whole) == 2 * 32768
    assert tasks(first) == 2 * 28672
    assert tasks(last) == 2 * 4096
    assert tasks(whole, tp=2) == 2 * (14336 + 4096)


def test_blocks_of_128_columns_are_those_of_llama_cpp_s_formats_alone() -> None:
    board = find_device("RTX 3090")
    model = implementation_for("quantized_gemm", board.execution_model)
    assert model is not None
    op = {"m": 100, "n": 4096, "k": 4096}
    for dtype, library, columns in (
        ("q4_k", "ggml_cuda", 128),
        ("exl3_4bit", "exllamav3", 1),
        ("affine_4bit", "mlx", 1),
    ):
        batch = OpBatch.from_ops([Op.make("quantized_gemm", Variant(dtype, library=library), **op)])
        rows = load_physics("quantized").constants(library)["tile_rows"]
        (tasks,) = model.times(batch, board).analysis.demand.tasks
        assert tasks == 4096 / columns * -(-100 // rows)
