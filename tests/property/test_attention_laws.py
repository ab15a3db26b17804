"""Laws of attention predictions over random ops, devices and libraries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silicast.hardware.catalog import find_device
from silicast.kernels.attention_decode import AttentionDecode
from silicast.kernels.attention_prefill import AttentionPrefill
from silicast.kernels.check import check_kernel, op_at
from silicast.workload.op import OpBatch, Variant

DEVICES = ("A100-SXM-80GB", "H100-SXM-80GB", "B200", "L40S", "A40", "T4", "RTX PRO 6000 S", "GB300")
LIBRARIES = ("", "flashinfer", "fa2", "fa3", "vllm", "sglang", "trtllm", "triton")
MODELS = (AttentionPrefill(), AttentionDecode())

lengths = st.integers(1, 40_000)
group = st.sampled_from([(1, 1), (8, 1), (12, 3), (32, 8), (64, 1), (6, 6), (40, 8)])


@st.composite
def uniform_batches(draw: st.DrawFn) -> OpBatch:
    rows = draw(st.integers(1, 5))
    columns: dict[str, list[int]] = {}
    for _ in range(rows):
        q = draw(lengths)
        heads, kv_heads = draw(group)
        sizes = {
            "batch": draw(st.integers(1, 300)),
            "q_len": q,
            "kv_len": q + draw(st.one_of(st.just(0), lengths)),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": draw(st.sampled_from([64, 80, 128, 192, 256])),
            "window": draw(st.sampled_from([0, 0, 128, 4096])),
        }
        for name, value in sizes.items():
            columns.setdefault(name, []).append(value)
    variant = Variant(
        "bf16",
        draw(st.sampled_from(["bf16", "fp8"])),
        draw(st.sampled_from(LIBRARIES)),
        flags=(("causal", draw(st.booleans())),),
    )
    dims = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    return OpBatch("attention_prefill", variant, dims)


@settings(max_examples=150, deadline=None)
@given(batch=uniform_batches(), device=st.sampled_from(DEVICES[:5] + DEVICES[6:]))
def test_bound_interval_and_bits_of_uniform_rows(batch: OpBatch, device: str) -> None:
    found = find_device(device)
    for model in MODELS:
        whole = model.times(batch, found)
        assert np.all(whole.bound_s > 0)
        assert np.all(whole.bound_s <= whole.p05_s)
        assert np.all(whole.p05_s <= whole.estimate_s)
        assert np.all(whole.estimate_s <= whole.p95_s)
        assert np.all(np.isfinite(whole.p95_s))
        for row in range(len(batch)):
            alone = model.times(OpBatch.of([op_at(batch, row)]), found)
            assert alone.estimate_s[0] == whole.estimate_s[row]
            assert alone.bound_s[0] == whole.bound_s[row]


@settings(max_examples=100, deadline=None)
@given(q=lengths, past=lengths, more=st.integers(1, 5_000), batch=st.integers(1, 64))
def test_a_longer_cache_never_lowers_the_bound(q: int, past: int, more: int, batch: int) -> None:
    dims = {
        "batch": np.array([batch, batch]),
        "q_len": np.array([q, q]),
        "kv_len": np.array([q + past, q + past + more]),
        "num_heads": np.array([32, 32]),
        "num_kv_heads": np.array([8, 8]),
        "head_dim": np.array([128, 128]),
        "window": np.array([0, 0]),
    }
    for model in MODELS:
        ops = OpBatch(model.family, Variant(flags=(("causal", True),)), dims)
        bound = model.times(ops, find_device("H100")).bound_s
        assert bound[1] >= bound[0]


@pytest.mark.full
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.family)
def test_battery_of_100_000_ops(model: AttentionPrefill | AttentionDecode) -> None:
    devices = [find_device(name) for name in DEVICES]
    variants = [
        Variant(dtype, kv, library, cache=cache, flags=(("causal", True),))
        for library in LIBRARIES
        for dtype, kv in (("bf16", "bf16"), ("fp16", "fp8"), ("fp8", "fp8"))
        for cache in ("", "cold", "warm")
    ]
    checked = check_kernel(model, devices, draws=140_000, variants=variants, scalar_rows=4)
    assert checked >= 100_000
