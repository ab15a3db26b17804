"""Latent attention kernels: work by hand, which kernel runs, and what its times depend on."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.attention.mla_decode import MlaDecode
from silicast.kernels.attention.mla_prefill import MlaPrefill
from silicast.kernels.attention.mla_schemes import EVERY_LENGTH, mla_scheme
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H200 = find_device("H200")
B200 = find_device("B200")
L40S = find_device("L40S")
WIDTHS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
BARE = (("append", False), ("project", False))


def decode(variant: Variant = Variant(), **sizes: object) -> Op:
    dims = {"batch": 1, "q_len": 1, "kv_len": 4095, "num_heads": 128, **WIDTHS, **sizes}
    return Op.make("mla_decode", variant, **dims)  # type: ignore[arg-type]


def prefill(variant: Variant = Variant(), **sizes: object) -> Op:
    dims = {"batch": 1, "q_len": 4096, "kv_len": 4096, "num_heads": 128, **WIDTHS, **sizes}
    return Op.make("mla_prefill", variant, **dims)  # type: ignore[arg-type]


def us(op: Op, device: Device = H200) -> float:
    model = implementation_for(op.family, device.execution_model)
    assert model is not None
    return 1e6 * float(model.times(OpBatch.from_ops([op]), device).estimate_s[0])


def test_decode_work_by_hand() -> None:
    op = decode(batch=3, num_heads=16)
    # 3 x 4096 keys, 16 heads: a product over 576 elements and one over 512, two FLOPs each
    assert MlaDecode().flops(op) == 3 * 4096 * 16 * 2 * (576 + 512)
    # queries in the latent, results in the latent, each cached vector once
    assert MlaDecode().compulsory_bytes(op) == 2 * (3 * 16 * (576 + 512) + 3 * 4096 * 576)
    narrow = decode(Variant("bf16", "fp8"), batch=3, num_heads=16)
    assert MlaDecode().compulsory_bytes(narrow) == 2 * 3 * 16 * (576 + 512) + 3 * 4096 * 576


def test_prefill_work_by_hand() -> None:
    op = prefill(q_len=10, kv_len=30, num_heads=4)
    pairs = 10 * 20 + 10 * 11 // 2
    assert MlaPrefill().flops(op) == 2 * pairs * 4 * (192 + 128)
    # of 30 tokens the latent (576) is less than keys and values of 4 heads (1088)
    assert MlaPrefill().compulsory_bytes(op) == 2 * (10 * 4 * (192 + 128) + 30 * 576)
    one = prefill(q_len=10, kv_len=30, num_heads=1)
    assert MlaPrefill().compulsory_bytes(one) == 2 * (10 * (192 + 128) + 30 * (256 + 64))


def test_lists_of_equal_lengths_are_a_batch() -> None:
    for op, other in (
        (decode(batch=3, kv_len=700), decode(batch=1, kv_len=(700, 700, 700), q_len=(1, 1, 1))),
        (prefill(batch=2, q_len=100, kv_len=300), prefill(q_len=(100, 100), kv_len=(300, 300))),
    ):
        model = implementation_for(op.family, "simt")
        assert model is not None
        assert model.flops(op) == model.flops(other)
        assert model.compulsory_bytes(op) == model.compulsory_bytes(other)
        assert us(op) == pytest.approx(us(other), rel=1e-9)


def test_many_heads_are_bound_by_products_and_few_by_memory() -> None:
    device = H200
    many = MlaDecode().times(OpBatch.from_ops([decode(batch=256, num_heads=128)]), device)
    few = MlaDecode().times(OpBatch.from_ops([decode(batch=256, num_heads=8)]), device)
    assert many.bound_by() == ["tensor"]
    assert few.bound_by() == ["dram"]
    assert many.estimate_s[0] < 16 * few.estimate_s[0]  # heads share the keys they read


def test_32_heads_take_two_tiles_on_blackwell() -> None:
    """TensorRT-LLM's tiles hold 16 rows up to 32 heads and 64 beyond: more heads, less time."""
    trtllm = Variant("bf16", "bf16", "trtllm")
    sixteen, thirty_two, sixty_four = (
        us(decode(trtllm, batch=64, kv_len=8191, num_heads=h), B200) for h in (16, 32, 64)
    )
    assert thirty_two > 1.15 * sixteen
    assert thirty_two > sixty_four


def test_long_caches_of_few_sequences_are_split_where_the_library_can() -> None:
    long, short = decode(kv_len=65535, num_heads=16), decode(kv_len=4095, num_heads=16)
    assert us(long) < 8 * us(short)
    # before Hopper TensorRT-LLM's kernel walks a cache alone: time is in proportion
    trtllm = Variant(library="trtllm")
    alone = [us(decode(trtllm, kv_len=n, num_heads=16), L40S) for n in (65535, 4095)]
    assert alone[0] > 10 * alone[1]


def test_a_narrow_cache_is_read_in_less_time_by_kernels_that_multiply_it() -> None:
    wide, narrow = (
        us(decode(Variant("bf16", kv, "trtllm"), batch=256, num_heads=16)) for kv in ("bf16", "fp8")
    )
    assert narrow < 0.9 * wide


@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("make", [prefill, decode])
def test_an_engines_call_holds_more_than_its_kernel(library: str, make: object) -> None:
    assert callable(make)
    whole = us(make(Variant(library=library)))
    bare = us(make(Variant(library=library, flags=BARE)))
    assert bare < whole


def test_which_kernel_runs() -> None:
    fp8 = Variant("bf16", "fp8", "vllm", kernel="vllm_flashmla")
    assert mla_scheme(fp8, H200).label == "vllm_flashmla/flashmla"
    assert mla_scheme(fp8, H200).absorbed_up_to == 128
    bf16 = Variant("bf16", "bf16", "vllm", kernel="vllm_flash_attn_mla")
    assert (mla_scheme(bf16, H200).label, mla_scheme(bf16, H200).absorbed_up_to) == (
        "vllm/fa3", 512
    )  # fmt: skip
    sglang = Variant(library="sglang", kernel="flash_attention")
    assert mla_scheme(sglang, H200).absorbed_up_to == EVERY_LENGTH
    assert mla_scheme(Variant(library="sglang", flags=BARE), H200).absorbed_up_to == 0
    assert mla_scheme(Variant(library="sglang"), B200).label == "sglang/fmha"
    assert mla_scheme(Variant(library="trtllm"), L40S).label == "trtllm/fmha"
    old, new = (
        mla_scheme(Variant(library="vllm", version=v), L40S).label for v in ("0.14.0", "0.24.0")
    )
    assert (old, new) == ("vllm/triton", "vllm_late/triton")
    assert mla_scheme(Variant("bf16", "fp8", "trtllm"), H200).math == "fp8"
    assert mla_scheme(Variant("bf16", "fp8", "sglang"), H200).math == "bf16"


def test_prefill_on_the_latent_costs_more_arithmetic() -> None:
    sglang = Variant(library="sglang", kernel="flash_attention")
    assert us(prefill(sglang)) > 1.5 * us(prefill(Variant(library="sglang", flags=BARE)))


def test_vllm_switches_from_the_latent_to_expanded_keys_within_a_batch() -> None:
    variant = Variant("bf16", "bf16", "vllm", kernel="vllm_flash_attn_mla")
    rows = [prefill(variant, q_len=q, kv_len=q, batch=8) for q in (512, 513)]
    both = MlaPrefill().times(OpBatch.from_ops(rows), H200).estimate_s
    alone = [MlaPrefill().times(OpBatch.from_ops([op]), H200).estimate_s[0] for op in rows]
    assert both.tolist() == alone
    assert both[0] != pytest.approx(both[1], rel=0.02)


def test_cold_caches_are_never_faster() -> None:
    for make in (prefill, decode):
        cold = us(make(Variant(cache="cold"), batch=2, q_len=1, kv_len=500))
        warm = us(make(Variant(cache="warm"), batch=2, q_len=1, kv_len=500))
        assert cold >= warm


@pytest.mark.parametrize("device", ["TPU v5p", "Xeon 8480", "MI300X", "Gaudi 3", "A40"])
def test_every_execution_model_answers(device: str) -> None:
    result = find_device(device)
    for op in (prefill(q_len=64, kv_len=128), decode()):
        model = implementation_for(op.family, result.execution_model)
        assert model is not None
        times = model.times(OpBatch.from_ops([op]), result)
        assert 0 < times.bound_s[0] <= times.p05_s[0] <= times.estimate_s[0] <= times.p95_s[0]
        assert np.isfinite(times.p95_s[0])
