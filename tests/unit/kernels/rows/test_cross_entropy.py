"""Cross-entropy: bytes by hand, fused against the eager chain."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.rows.chain_model import BOTH
from silicast.kernels.rows.cross_entropy import CrossEntropy
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100")


def loss(library: str = "", dtype: str = "bf16", *, backward: bool = False) -> Op:
    variant = Variant(dtype, library=library, flags=((BOTH, backward),))
    return Op.make("cross_entropy", variant, rows=8192, vocab=128_256)


def seconds(op: Op) -> float:
    return float(CrossEntropy().times(OpBatch.from_ops([op]), H100).estimate_s[0])


@pytest.mark.parametrize("library", ["", "torch"])
def test_compulsory_bytes_by_hand(library: str) -> None:
    logits, rows = 8192 * 128_256 * 2, 8192
    assert CrossEntropy().compulsory_bytes(loss(library)) == logits + rows * 12
    both = CrossEntropy().compulsory_bytes(loss(library, backward=True))
    assert both == 2 * logits + rows * (12 + 2)  # and the gradient of each loss in


def test_the_loss_alone_reads_the_logits_once() -> None:
    read_s = 8192 * 128_256 * 2 / H100.dram.bandwidth_bytes_per_s
    assert read_s < seconds(loss()) < 1.5 * read_s


def test_the_gradient_costs_a_second_reading_and_a_writing() -> None:
    assert 2.0 < seconds(loss(backward=True)) / seconds(loss()) < 4.0


def test_an_eager_framework_sweeps_long_rows_again_and_writes_their_logarithms() -> None:
    """Log-softmax reads thrice and writes once what the fused kernel reads once."""
    assert seconds(loss("torch")) > 2.5 * seconds(loss())
    assert seconds(loss("torch", "fp32")) > 1.8 * seconds(loss("torch", "bf16"))


def test_battery() -> None:
    variants = [
        Variant(dtype, library=library, flags=((BOTH, backward),))
        for dtype in ("bf16", "fp32")
        for library in ("", "torch")
        for backward in (False, True)
    ]
    devices = [find_device("H100"), find_device("T4")]
    assert check_kernel(CrossEntropy(), devices, draws=160, variants=variants, scalar_rows=4) >= 160
