"""Number formats from the fields of a scenario."""

import pytest

from silicast.core.dtypes import RECIPES
from silicast.core.errors import SilicastError
from silicast.workload.models.precision import Precision


@pytest.mark.parametrize(
    ("given", "recipe", "cache", "hidden"),
    [
        ({}, "bf16", "bf16", "bf16"),
        ({"weights": "fp32"}, "fp32", "fp32", "fp32"),
        ({"weights": "float16"}, "fp16", "fp16", "fp16"),
        ({"weights": "torch.bfloat16"}, "bf16", "bf16", "bf16"),
        ({"recipe": "tf32"}, "tf32", "fp32", "fp32"),
        ({"weights": "fp8"}, "fp8", "bf16", "bf16"),
        ({"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"}, "fp8", "fp8", "bf16"),
        ({"weights": "fp8_block"}, "fp8_block", "bf16", "bf16"),
        ({"recipe": "fp8_static", "kv_cache": "FP8"}, "fp8_static", "fp8", "bf16"),
        ({"weights": "int4"}, "int4_wo", "bf16", "bf16"),
        ({"weights": "int4", "activations": "bf16"}, "int4_wo", "bf16", "bf16"),
        ({"weights": "int4", "activations": "fp8"}, "w4afp8", "bf16", "bf16"),
        ({"weights": "int8"}, "int8", "bf16", "bf16"),
        ({"weights": "int8", "activations": "bf16"}, "int8_wo", "bf16", "bf16"),
        ({"weights": "nvfp4"}, "nvfp4", "bf16", "bf16"),
        ({"weights": "mxfp4", "activations": "mxfp8"}, "w4a8_mxfp4_mxfp8", "bf16", "bf16"),
        ({"weights": "fp8", "activations": "bf16"}, "fp8_wo", "bf16", "bf16"),
        ({"weights": "mxfp4", "activations": "fp8"}, "w4a8_mxfp4_mxfp8", "bf16", "bf16"),
        ({"weights": "awq"}, "int4_wo", "bf16", "bf16"),
        ({"recipe": "smoothquant"}, "sq", "bf16", "bf16"),
        ({"recipe": "w4a8"}, "w4afp8", "bf16", "bf16"),
        ({"kv_cache": "fp8_e4m3"}, "bf16", "fp8", "bf16"),
    ],
)
def test_fields_mean_a_recipe(given: dict, recipe: str, cache: str, hidden: str) -> None:
    result = Precision.from_formats(**given)
    assert (result.recipe, result.kv_cache, result.hidden) == (recipe, cache, hidden)


def test_every_recipe_keeps_its_name() -> None:
    for name in RECIPES:
        assert Precision.from_formats(recipe=name).recipe == name


def test_defaults_come_from_the_checkpoint() -> None:
    checkpoint = Precision.from_formats(recipe="fp8_block", kv_cache="fp8")
    assert Precision.from_formats(default=checkpoint) == checkpoint
    assert Precision.from_formats(weights="fp8", default=checkpoint).recipe == "fp8_block"
    assert Precision.from_formats(weights="bf16", default=checkpoint).recipe == "bf16"
    assert Precision.from_formats(weights="bf16", default=checkpoint).kv_cache == "fp8"


def test_cache_follows_the_format_between_kernels_unless_quantised() -> None:
    assert Precision.from_formats(weights="fp32", default=Precision()).kv_cache == "fp32"
    half = Precision.from_formats(weights="fp16")
    assert Precision.from_formats(weights="fp8", default=half) == Precision("fp8", "fp16", "fp16")


def test_group_size_is_kept_only_with_its_recipe() -> None:
    checkpoint = Precision.from_formats(recipe="int4_wo", group_size=64)
    assert Precision.from_formats(default=checkpoint).group_size == 64
    assert Precision.from_formats(recipe="bf16", default=checkpoint).group_size == 0


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"weights": "fp9"}, "weights"),
        ({"weights": "bf16", "activations": "int4"}, "activations"),
        ({"kv_cache": "int64"}, "kv_cache"),
        ({"kv_cache": "zip"}, "kv_cache"),
        ({"recipe": "best"}, "recipe"),
        ({"group_size": -1}, "group_size"),
        ({"recipe": "fp8", "weights": "bf16"}, "weights"),
        ({"recipe": "bf16", "weights": "fp8"}, "weights"),
        ({"recipe": "fp8_block", "weights": "fp8", "activations": "bf16"}, "activations"),
        ({"recipe": "int4_wo", "activations": "fp8"}, "activations"),
        ({"recipe": "fp8", "weights": "fp8_block"}, "weights"),
    ],
)
def test_wrong_formats_name_the_field(given: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        Precision.from_formats(**given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "beside",
    [
        {"recipe": "fp8_block", "weights": "fp8", "activations": "fp8"},
        {"recipe": "fp8_block", "weights": "fp8_block"},
        {"recipe": "int4_wo", "weights": "int4", "activations": "fp16"},
        {"recipe": "nvfp4", "weights": "nvfp4"},
    ],
)
def test_formats_beside_their_recipe_say_the_same(beside: dict) -> None:
    assert Precision.from_formats(**beside) == Precision.from_formats(recipe=beside["recipe"])


def test_experts_and_attention_have_their_own_recipe() -> None:
    checkpoint = Precision.from_formats(experts="w4a16_mxfp4")
    assert (checkpoint.recipe, checkpoint.expert.name) == ("bf16", "w4a16_mxfp4")
    assert Precision.from_formats(default=checkpoint) == checkpoint
    assert Precision.from_formats(weights="mxfp4", default=checkpoint) == checkpoint
    assert Precision.from_formats(recipe="w4a16_mxfp4", default=checkpoint) == checkpoint
    assert Precision.from_formats(weights="fp8", default=checkpoint) == Precision.from_formats(
        weights="fp8"
    )
    assert Precision.from_formats(kv_cache="fp8", default=checkpoint).experts == "w4a16_mxfp4"
    split = Precision.from_formats(recipe="nvfp4", attention="bf16", kv_cache="fp8")
    assert (split.linear.name, split.projection.name, split.expert.name) == (
        "nvfp4", "bf16", "nvfp4",
    )  # fmt: skip
    assert Precision.from_formats(weights="nvfp4", default=split) == split
    assert Precision.from_formats(weights="fp8", default=split).attention == ""
    assert Precision.from_formats(recipe="fp8", experts="fp8") == Precision.from_formats(
        recipe="fp8"
    )
