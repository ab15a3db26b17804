"""What corrections read of an attention op's shape."""

from __future__ import annotations

import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.attention.attention_decode import AttentionDecode
from silicast.kernels.attention.attention_prefill import AttentionPrefill
from silicast.kernels.attention.attention_schemes import style_of
from silicast.kernels.attention.attention_work import AttentionSequences, row_rest, shape_features
from silicast.kernels.implementation import Implementation
from silicast.workload.graphs.op import Op, OpBatch, Variant

SHAPE = {"num_heads": 28, "num_kv_heads": 4, "head_dim": 128}


def batch(family: str = "attention_prefill", **dims: int | tuple[int, ...]) -> OpBatch:
    variant = Variant("bf16", "bf16", "vllm", flags=(("causal", True),))
    return OpBatch.from_ops([Op.make(family, variant, **{**SHAPE, **dims})])


def features(of: OpBatch, cores: int = 100) -> dict[str, float]:
    work = AttentionSequences.from_batch(of, decode=False)
    heads, groups = of.dims["num_heads"], of.dims["num_kv_heads"]
    result = shape_features(of, work, heads, groups, cores)
    remaining = float(row_rest(work, heads, groups)[0])
    return {name: float(value[0]) for name, value in result.items()} | {"row_rest": remaining}


def test_of_equal_sequences() -> None:
    result = features(batch(batch=40, q_len=20, kv_len=4096, window=1024))
    assert result == {
        "group": 7.0,
        "pairs": 160.0,
        "pair_fill": pytest.approx(0.6),
        "window_share": 0.25,
        "row_rest": (20 * 7 % 128) / 128,
    }


def test_equal_sequences_in_either_form() -> None:
    alike = features(batch(batch=3, q_len=50, kv_len=900, window=0))
    each = features(batch(q_len=(50,) * 3, kv_len=(900,) * 3, window=0))
    assert alike == each


def test_a_window_over_all_keys_is_none() -> None:
    wide = features(batch(batch=1, q_len=9, kv_len=900, window=5000))
    assert wide["window_share"] == features(batch(batch=1, q_len=9, kv_len=900))["window_share"]


@pytest.mark.parametrize("model", [AttentionPrefill(), AttentionDecode()], ids=lambda m: m.family)
def test_what_a_call_writes_beside_is_no_feature(model: Implementation) -> None:
    """Engines' graphs time the append apart, tables do not: corrections must hold for both."""
    one = batch(model.family, batch=8, q_len=1, kv_len=900)
    assert "append_share" not in model.analyse(one, find_device("A100")).features


@pytest.mark.parametrize(
    ("device", "kernel", "style"),
    [
        ("H100", "vllm_flash_attn_fa3", "fa3"),
        ("H100", "vllm_flash_attn_fa4", "fa4"),
        ("B200", "torch_flow_flashinfer", "flashinfer"),
        ("B200", "torch_flow", "trtllm"),
    ],
)
def test_a_kernel_beside_the_usual_one_has_its_own_style(
    device: str, kernel: str, style: str
) -> None:
    library = "trtllm" if kernel.startswith("torch") else "vllm"
    variant = Variant(library=library, kernel=kernel, flags=(("causal", True),))
    assert style_of(variant, find_device(device)) == style


def test_encoders_have_the_style_of_their_library() -> None:
    variant = Variant(library="vllm", kernel="vllm_vit_flash_attn_fa4", flags=(("causal", False),))
    unnamed = Variant(library="vllm", flags=(("causal", False),))
    b200 = find_device("B200")
    assert style_of(variant, b200) == style_of(unnamed, b200)
