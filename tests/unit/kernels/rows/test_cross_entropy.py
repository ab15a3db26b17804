"""Cross-entropy: bytes by hand, fused against the eager chain."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.rows.cross_entropy import CrossEntropy
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100")


def loss(library: str = "", dtype: str = "bf16", *, backward: bool = False) -> Op:
    variant = Variant(dtype, library=library, flags=(("backward", backward),))
    return Op.make("cross_entropy", variant, rows=8192, vocab=128_256)


def seconds(op: Op) -> float:
    return float(CrossEntropy().times(OpBatch.from_ops([op]), H100).estimate_s[0])


@pytest.mark.parametrize("library", ["", "torch"])
def test_compulsory_bytes_by_hand(library: str) -> None:
    logits, rows = 8192 * 128_256 * 2, 8192
    assert CrossEntropy().compulsory_bytes(loss(library)) == logits + rows * 12
    both = CrossEntropy().compulsory_bytes(loss(library, backward=True))
    assert both == 2 * logits + rows * 12


def test_the_loss_alone_reads_the_logits_once() -> None:
    read_s = 8192 * 128_256 * 2 / H100.dram.bandwidth_bytes_per_s
    assert read_s < seconds(loss()) < 1.5 * read_s


def test_the_gradient_costs_a_second_reading_and_a_writing() -> None:
    assert 2.0 < seconds(loss(backward=True)) / seconds(loss()) < 4.0


def test_the_eager_chain_pays_for_its_fp32_copies() -> None:
    """Cast, log-softmax, pick: 2 bytes become 2 + 4, 4 + 4 and what is swept again."""
    assert seconds(loss("torch")) > 3.0 * seconds(loss())
    assert seconds(loss("torch", "fp32")) < seconds(loss("torch", "bf16")) * 1.05


def test_battery() -> None:
    variants = [
        Variant(dtype, library=library, flags=(("backward", backward),))
        for dtype in ("bf16", "fp32")
        for library in ("", "torch")
        for backward in (False, True)
    ]
    devices = [find_device("H100"), find_device("T4")]
    assert check_kernel(CrossEntropy(), devices, draws=160, variants=variants, scalar_rows=4) >= 160
