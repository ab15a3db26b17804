"""Bytes of weights by format: closed forms, and checkpoints whose size is published."""

from __future__ import annotations

import pytest

from silicast.core.dtypes import RECIPES
from silicast.workload.models.counting import parameters, weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model_weights import mtp_weights
from silicast.workload.models.precision import Precision
from silicast.workload.models.weight_tensor import linear_bytes
from silicast.workload.transformers.plan import Plan, shard_of

ONE = Plan()


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        # 1024 outputs x 512 inputs
        ("bf16", 2 * 524_288),
        ("fp8", 524_288 + 1024 * 4),  # one fp32 scale a row
        ("fp8_block", 524_288 + 8 * 4 * 4),  # one for each square of 128
        ("mxfp8", 524_288 + 1024 * 16),  # e8m0 for each 32
        ("int8_wo", 524_288 + 1024 * 2),
        ("int4_wo", 262_144 + 1024 * 4 * 2 + 1024 * 4 // 2),  # fp16 scale, 4-bit zero a group
        ("w4afp8", 262_144 + 1024 * 4 * 2),
        ("nvfp4", 262_144 + 1024 * 32 + 4),  # e4m3 for each 16, fp32 for the tensor
        ("nvfp4_wo", 262_144 + 1024 * 32 + 4),
        ("mxfp4", 262_144 + 1024 * 16),
        ("w4a16_mxfp4", 262_144 + 1024 * 16),
    ],
)
def test_packed_weights_scales_and_zero_points(recipe: str, expected: int) -> None:
    assert linear_bytes(RECIPES[recipe], 1024, 512) == expected


def test_sizes_that_groups_do_not_divide_are_rounded_up() -> None:
    assert linear_bytes(RECIPES["fp8_block"], 129, 257) == 129 * 257 + 2 * 3 * 4
    assert linear_bytes(RECIPES["nvfp4"], 3, 17) == 26 + 3 * 2 + 4
    assert linear_bytes(RECIPES["int4_wo"], 3, 130) == 195 + 3 * 2 * 2 + 3
    assert linear_bytes(RECIPES["int4_wo"], 2, 64, 32) == 64 + 2 * 2 * 2 + 2


@pytest.mark.parametrize("name", [x.name for x in RECIPES.values()])
def test_the_mean_bits_of_kernels_are_those_of_memory(name: str) -> None:
    """Up to what is stored once for a row or a tensor."""
    recipe = RECIPES[name]
    stored = 8 * linear_bytes(recipe, 4096, 4096) / 4096**2
    assert recipe.weight_bits <= stored < recipe.weight_bits + 0.01


def test_a_70b_in_int4_fits_on_two_a100() -> None:
    """hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4 (group 128): 39.8 GB of safetensors."""
    model = find_model("Llama-3.1-70B")
    awq = Precision.from_formats(weights="int4", group_size=128)
    whole = weight_bytes(model, ONE, awq)
    assert whole == pytest.approx(39.77e9, rel=0.001)
    assert weight_bytes(model, Plan(tp=2), awq) == pytest.approx(whole / 2, rel=0.001)


def test_a_70b_in_int4_by_hand() -> None:
    model = find_model("Llama-3.1-70B")
    linear = 80 * (8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672)
    plain = 2 * 128256 * 8192 + (2 * 80 + 1) * 8192
    groups = linear // 128
    expected = linear // 2 + groups * 2 + groups // 2 + plain * 2
    assert weight_bytes(model, ONE, Precision.from_formats(weights="int4")) == expected
    assert parameters(model) == linear + plain


def test_deepseek_v3_in_fp8_is_as_large_as_published() -> None:
    """model.safetensors.index.json of deepseek-ai/DeepSeek-V3: 688.6 GB, with the module for
    multi-token prediction and its own copies of the embedding and the head.
    """
    model = find_model("DeepSeek-V3")
    shard, precision = shard_of(model, ONE), model.default_precision
    module = sum(weight.local_bytes(shard, precision) for weight in mtp_weights(model))
    copies = 2 * 2 * model.vocab * model.hidden
    total = weight_bytes(model, ONE, precision) + module + copies
    assert total == pytest.approx(688.59e9, rel=2e-4)


def test_deepseek_v3_in_fp8_fits_on_eight_h200_and_not_on_eight_h100() -> None:
    model = find_model("DeepSeek-V3")
    each = weight_bytes(model, Plan(tp=8), model.default_precision)
    assert 80e9 < each < 0.75 * 141e9
    assert 8 * each == pytest.approx(673e9, rel=0.02)  # some tensors are whole on every rank


@pytest.mark.parametrize(
    ("name", "published"), [("gpt-oss-120b", 65_248_815_744), ("gpt-oss-20b", 13_761_264_768)]
)
def test_gpt_oss_in_mxfp4_is_as_large_as_published(name: str, published: int) -> None:
    """total_size of model.safetensors.index.json of openai/gpt-oss-120b and -20b, to the byte."""
    model = find_model(name)
    assert weight_bytes(model, ONE, model.default_precision) == published


def test_narrower_formats_take_less() -> None:
    model = find_model("Llama-3.1-8B")
    sizes = [
        weight_bytes(model, ONE, Precision.from_formats(recipe=name))
        for name in ("bf16", "mxfp8", "fp8", "nvfp4", "mxfp4", "int4_wo")
    ]
    assert sizes == sorted(sizes, reverse=True)
