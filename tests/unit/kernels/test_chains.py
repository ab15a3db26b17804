"""Row kernels as their providers run them: passes, lifetimes, times and what bounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.movement.streaming_rates import rates_of
from silicast.kernels.registry import implementation_for
from silicast.kernels.rows.chain_model import (
    ACCUMULATED,
    BACKWARD,
    BOTH,
    ChainedKernel,
    spilled_of_rows,
)
from silicast.kernels.rows.pass_chain import Chain
from silicast.kernels.rows.row_kernel import RowKernel
from silicast.workload.graphs.op import Op, OpBatch, Variant

CHAINS = {
    "rmsnorm": {"tokens": 8192, "hidden": 4096},
    "layernorm": {"tokens": 8192, "hidden": 4096},
    "softmax": {"rows": 8192, "cols": 4096},
    "silu_mul": {"tokens": 8192, "width": 8192},
    "rope": {"tokens": 8192, "num_heads": 32, "num_kv_heads": 8, "head_dim": 128},
    "embedding": {"tokens": 16384, "hidden": 4096, "vocab": 32768},
    "cross_entropy": {"rows": 4096, "vocab": 32768},
    "linear_cross_entropy": {"tokens": 4096, "hidden": 4096, "vocab": 32768},
    "linear_preference_loss": {"sequences": 4, "length": 1024, "hidden": 4096, "vocab": 32768},
    "gated_mlp": {"tokens": 4096, "hidden": 4096, "intermediate": 11008},
}
LIBRARIES = ("torch", "torch_compile", "liger")
MIB = 2**20


def model(family: str) -> ChainedKernel:
    chained_kernel = implementation_for(family, "simt")
    assert isinstance(chained_kernel, ChainedKernel)
    return chained_kernel


def op(family: str, library: str = "torch", *flags: str, dtype: str = "bf16", kernel: str = "",
       launch: str = "", version: str = "", **sizes: int) -> Op:  # fmt: skip
    variant = Variant(dtype, library=library, version=version, kernel=kernel, launch=launch,
                      cache="cold",
                      flags=tuple(sorted((flag, True) for flag in flags)))  # fmt: skip
    return Op.make(family, variant, **(sizes or CHAINS[family]))


def seconds(one: Op, device: str = "H100") -> float:
    return float(model(one.family).times(OpBatch.single(one), find_device(device)).estimate_s)


def peak_mib(one: Op, device: str = "A100") -> float:
    return float(model(one.family).peak_bytes(OpBatch.single(one), find_device(device))) / MIB


@pytest.mark.parametrize("family", CHAINS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_chain_keeps_the_promises_of_kernels(family: str, library: str) -> None:
    devices = [find_device(name) for name in ("H100", "RTX 3090")]
    variants = [
        Variant("bf16", library=library, launch=launch, cache=cache,
                flags=((flag, True),) if flag else ())
        for flag in ("", BACKWARD, BOTH)
        for launch, cache in (("", ""), ("stream", "cold"))
    ]  # fmt: skip
    assert check_kernel(model(family), devices, draws=120, variants=variants, scalar_rows=3) > 0


@pytest.mark.parametrize("family", CHAINS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_both_passes_take_as_long_as_one_and_the_other(family: str, library: str) -> None:
    forward, backward, both = (
        seconds(op(family, library, *flags)) for flags in ((), (BACKWARD,), (BOTH,))
    )
    # the second finds in the L2 what the first has left
    assert 0.7 * (forward + backward) < both <= 1.02 * (forward + backward)


OPERATORS = {"layernorm", "softmax"}
"""Of which eager code is one kernel too."""


@pytest.mark.parametrize(
    "family", [name for name in CHAINS if "linear" not in name and name not in OPERATORS]
)
def test_eager_code_is_never_quicker_than_one_kernel(family: str) -> None:
    assert seconds(op(family, "torch")) >= 0.98 * seconds(op(family, "liger"))


def test_a_chain_counts_what_is_alive() -> None:
    chain = Chain()
    operand = chain.tensor(100, 4)
    first = chain.run("pointwise", (operand,), 100, 4)
    second = chain.run("pointwise", (first,), 100, 2)
    chain.drop(first)
    chain.gradients()
    chain.run("pointwise", (second,), 50, 4)
    assert chain.forward_peak_bytes == 400 + 400 + 200
    assert chain.live_bytes == 400 + 200 + 200
    assert chain.peak_bytes == 1000
    assert [len(chain.forward), len(chain.backward)] == [2, 1]


def test_eager_rmsnorm_of_fp32_rows_by_hand() -> None:
    """Operand, its gradient of before, the result's; row times root, result; five of gradients."""
    one = op("rmsnorm", "torch", BOTH, dtype="fp32", tokens=2048, hidden=8192)
    row = 2048 * 8192 * 4 / MIB
    forward = 3 + 2
    # of the product with the root: direct and by the mean, the power's factor and their product;
    # what goes to the row is held beside them
    assert peak_mib(one) == pytest.approx((forward + 4) * row)


def test_layernorm_holds_five_tensors() -> None:
    one = op("layernorm", "torch", BOTH, dtype="fp32", tokens=4096, hidden=1024)
    assert peak_mib(one) == 5 * 4096 * 1024 * 4 / MIB


def test_a_loss_by_hand_needs_no_memory_but_the_logits() -> None:
    sizes: dict[str, Any] = {"rows": 16384, "vocab": 32768}
    logits = 16384 * 32768 * 4 / MIB
    by_hand = op("cross_entropy", "liger", BOTH, ACCUMULATED, dtype="fp32", **sizes)
    eager = op("cross_entropy", "torch", BOTH, ACCUMULATED, dtype="fp32", **sizes)
    assert peak_mib(by_hand) == logits
    assert peak_mib(eager) == 5 * logits


def test_forward_needs_less_memory_than_training() -> None:
    for family in CHAINS:
        assert peak_mib(op(family)) <= peak_mib(op(family, "torch", BOTH))


def test_a_residual_is_read_added_and_written() -> None:
    for library in ("torch", "liger"):
        plain, added = (
            seconds(op("rmsnorm", library, tokens=8192, hidden=4096, residual=residual))
            for residual in (0, 1)
        )
        assert added > (1.5 if library == "liger" else 1.05) * plain


def test_a_frameworks_own_norm_is_one_kernel() -> None:
    written_out = op("rmsnorm", "torch")
    operator = op("rmsnorm", "torch", kernel="fused")
    assert seconds(operator) < 0.5 * seconds(written_out)


def test_gather_of_a_framework_computes_each_elements_place() -> None:
    """So that wide rows take twice what copying them does, whatever the memory's rate."""
    assert seconds(op("embedding", "torch"), "A100") > 2.0 * seconds(
        op("embedding", "liger"), "A100"
    )


def test_long_rows_of_losses_miss_the_cache_when_they_are_swept_again() -> None:
    """All sweeps come from memory, where those of short rows wait for the L2."""
    short, long = (
        seconds(op("cross_entropy", "torch", dtype="fp32", rows=4096, vocab=vocab), "A100")
        for vocab in (8192, 131072)
    )
    assert long > 1.04 * 16 * short


def test_registers_hold_rows_up_to_a_width() -> None:
    widths = np.array([1024, 2048, 8192, 16384, 32768])
    assert spilled_of_rows(widths, 3).tolist() == [0, 0, 0, 0, 3 * 32768 - 65536]
    assert spilled_of_rows(32768, 1) == 0


def test_small_gradients_wait_for_the_host() -> None:
    sizes: dict[str, Any] = {"tokens": 64, "hidden": 1024}
    queued, alone = (
        seconds(op("rmsnorm", "liger", BACKWARD, launch=launch, **sizes))
        for launch in ("graph", "stream")
    )
    assert alone > 5.0 * queued


def test_the_cache_holds_what_a_pass_before_has_written() -> None:
    """Passes over a small tensor take little more than their launches."""
    small, large = (
        seconds(op("rmsnorm", "torch", tokens=tokens, hidden=4096)) for tokens in (256, 65536)
    )
    assert large > 30.0 * small


def test_products_of_a_gated_mlp_set_its_bound() -> None:
    """Three products forward, six of the same size backward."""
    forward, backward, both = (
        model("gated_mlp").flops(op("gated_mlp", "torch", *flags))
        for flags in ((), (BACKWARD,), (BOTH,))
    )
    product = 2 * 4096 * 4096 * 11008
    assert forward // product == 3
    assert backward // product == 6
    assert both == forward + backward


def test_a_fused_linear_loss_trades_time_for_memory() -> None:
    """All three products are in its forward pass; logits are there a chunk at a time."""
    eager, fused = (op("linear_cross_entropy", library) for library in ("torch", "liger"))
    assert seconds(fused) > 2.5 * seconds(eager)
    trained = [op("linear_cross_entropy", library, BOTH) for library in ("torch", "liger")]
    assert peak_mib(trained[0]) - peak_mib(trained[1]) > 0.9 * 3 * 4096 * 32768 * 2 / MIB - 256
    assert 0.7 < seconds(trained[1]) / seconds(trained[0]) < 1.5


def test_rows_of_one_batch_may_have_a_residual_or_none() -> None:
    for library in ("torch", "liger", "vllm"):
        ops = [op("rmsnorm", library, tokens=4096, hidden=h, residual=r)
               for h, r in ((4096, 0), (4096, 1), (1024, 0), (2048, 1))]  # fmt: skip
        together = model("rmsnorm").times(OpBatch.from_ops(ops), find_device("H100")).estimate_s
        assert together.tolist() == [seconds(one) for one in ops]


def test_a_fused_kernel_is_one_stream_in_any_engine() -> None:
    """A framework's operator is one too; a release may have another gradient."""
    norm = model("rmsnorm")
    assert isinstance(norm, RowKernel)
    for library, alone in (("", True), ("vllm", True), ("torch", False), ("liger", False)):
        assert norm.is_stream(Variant("bf16", library=library)) == alone
    layer_norm = model("layernorm")
    assert isinstance(layer_norm, RowKernel)
    assert layer_norm.is_stream(Variant("fp32", library="torch", version="2.4"))
    old, new = (
        seconds(op("layernorm", "torch", BACKWARD, version=version)) for version in ("2.4", "")
    )
    assert old > 1.3 * new


def test_gradients_in_graphs_are_those_of_the_norm() -> None:
    sizes: dict[str, Any] = {"tokens": 8192, "hidden": 4096}
    for library in ("", "torch_compile", "cudnn"):
        gradient = seconds(op("norm_backward", library, **sizes))
        assert gradient == seconds(op("rmsnorm", library, BACKWARD, **sizes))


def test_every_pass_over_tensors_waits_for_its_first_bytes() -> None:
    """Eager RMSNorm of fp32 rows: square, mean and two products are passes; of the reciprocal root
    and the sum in between, over a number a row, no trip counts.
    """
    board, kernel = find_device("H100"), model("rmsnorm")
    batch = OpBatch.single(op("rmsnorm", dtype="fp32"))
    known = kernel.constants(board)
    once, twice = (
        float(kernel.analyse_with(batch, board, {**known, "trips": trips}).time_s)
        for trips in (1.0, 2.0)
    )
    trip_s = rates_of(board, "elementwise").trip_s
    assert twice - once == pytest.approx(4 * trip_s, rel=1e-9)
