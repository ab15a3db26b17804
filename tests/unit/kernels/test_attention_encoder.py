"""Bidirectional attention without a cache: what a call holds, padding, constants of its own."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_prefill import AttentionPrefill
from silicast.kernels.attention.attention_scheduled import attention_constants
from silicast.kernels.attention.attention_schemes import padded_width, scheme_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H100 = find_device("H100")


def variant(library: str = "vllm", *, causal: bool = False) -> Variant:
    return Variant("bf16", "bf16", library, flags=(("causal", causal),))


def attend(v: Variant, length: int = 4096, width: int = 64) -> Op:
    return Op.make(
        "attention_prefill", v, batch=4, q_len=length, kv_len=length, num_heads=16,
        num_kv_heads=16, head_dim=width, window=0,
    )  # fmt: skip


def seconds(op: Op, device: Device = H100) -> float:
    return float(AttentionPrefill().times(OpBatch.from_ops([op]), device).estimate_s[0])


@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
def test_an_encoder_has_no_cache_to_write(library: str) -> None:
    scheme = scheme_for(variant(library), H100)
    assert scheme.encoder
    assert not scheme.appends
    assert not scheme.rotates
    assert not scheme_for(variant(library, causal=True), H100).encoder


def test_asking_for_the_update_makes_it_an_engine_call_again() -> None:
    v = Variant("bf16", "bf16", "vllm", flags=(("append", True), ("causal", False)))
    assert not scheme_for(v, H100).encoder


def test_every_pair_counts() -> None:
    model = AttentionPrefill()
    both, causal = (attend(variant(causal=c), length=512) for c in (False, True))
    assert model.flops(both) == 4 * 64 * 16 * 4 * 512 * 512
    assert model.flops(causal) == 4 * 64 * 16 * 4 * 512 * 513 // 2


def test_constants_of_encoders_stand_over_those_of_prefill() -> None:
    plain, current = (
        attention_constants("attention_prefill", H100, scheme_for(variant(causal=c), H100))
        for c in (True, False)
    )
    assert current["launch_cycles"] != plain["launch_cycles"]
    assert current["tensor_efficiency"] == plain["tensor_efficiency"]
    assert attention_constants("attention_decode", H100, scheme_for(variant(), H100)) == (
        attention_constants("attention_decode", H100, scheme_for(variant(causal=True), H100))
    )


@pytest.mark.parametrize(
    ("library", "device", "padded"),
    [
        ("fa2", "L40S", [32, 64, 96, 96, 128, 256, 520]),
        ("vllm", "H100", [64, 64, 96, 96, 128, 256, 520]),
        ("triton", "L40S", [32, 64, 128, 128, 128, 256, 520]),
        ("trtllm", "B200", [32, 64, 72, 80, 128, 200, 520]),
    ],
)
def test_head_widths_are_padded_to_those_compiled(
    library: str, device: str, padded: list[int]
) -> None:
    widths = np.array([32, 64, 72, 80, 128, 200, 520])
    assert (
        padded_width(scheme_for(variant(library), find_device(device)), widths).tolist() == padded
    )


@pytest.mark.parametrize("device", ["A100", "H100", "B200", "L40S", "RTX PRO 6000", "T4", "MI300X"])
@pytest.mark.parametrize("library", ["", "vllm", "sglang", "trtllm"])
def test_twice_the_tokens_are_four_times_the_work(library: str, device: str) -> None:
    ops = [attend(variant(library), length=n, width=80) for n in (4096, 8192)]
    dtype = "fp16" if device == "T4" else "bf16"
    ops = [Op(op.family, op.dims, Variant(dtype, dtype, library, flags=(("causal", False),)))
           for op in ops]  # fmt: skip
    free = find_device(device).in_state("boost")  # the longer is slowed more where a limit binds
    short, long = (seconds(op, free) for op in ops)
    assert 3.4 < long / short < 4.4
