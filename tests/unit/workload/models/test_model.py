"""What a model configuration refuses, and what follows along when a field changes."""

from dataclasses import replace
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.lookup import find_model, model_from
from silicast.workload.models.model import ModelConfig
from silicast.workload.models.model_file import changed_model


def toy(**changes: Any) -> ModelConfig:
    sizes = {
        "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16,
        "intermediate": 128, "vocab": 100,
    }  # fmt: skip
    return ModelConfig("toy", "llama", **{**sizes, **changes})


def test_compares_by_value_and_hashes() -> None:
    assert toy() == toy()
    assert len({toy(), toy(), toy(layers=3)}) == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_heads": 3}, "kv_heads"),
        ({"kv_heads": 8}, "kv_heads"),
        ({"layers": 0}, "layers"),
        ({"hidden": True}, "hidden"),
        ({"vocab": 1 << 60}, "vocab"),
        ({"heads": 4.0}, "heads"),
        ({"windows": (1,)}, "windows"),
        ({"windows": (1, -1)}, "windows"),
        ({"position": "learned"}, "position_rows"),
        ({"position_rows": 5}, "position_rows"),
        ({"norm": "batchnorm"}, "norm"),
        ({"activation": "mish"}, "activation"),
    ],
)
def test_contradictions_name_the_field(changes: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        toy(**changes)
    assert caught.value.field == field


def test_head_dim_and_kv_heads_follow_where_the_base_derives_them() -> None:
    wide = changed_model(toy(kv_heads=4), {"hidden": 128})
    assert (wide.head_dim, wide.kv_heads) == (32, 4)
    more = changed_model(toy(kv_heads=4), {"heads": 8})
    assert (more.head_dim, more.kv_heads) == (8, 8)
    stated = changed_model(toy(head_dim=20), {"hidden": 128})
    assert stated.head_dim == 20
    grouped = changed_model(toy(), {"heads": 8})
    assert grouped.kv_heads == 2


def test_hidden_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(SilicastError) as caught:
        changed_model(toy(), {"hidden": 66})
    assert caught.value.field == "heads"
    assert "66" in caught.value.message


def test_one_window_follows_the_number_of_layers() -> None:
    assert changed_model(toy(windows=(8, 8)), {"layers": 3}).windows == (8, 8, 8)
    with pytest.raises(SilicastError):
        changed_model(toy(windows=(8, 0)), {"layers": 3})


def test_base_with_changes() -> None:
    base = find_model("Llama-3.1-8B")
    changed = model_from({"base": "meta-llama/Llama-3.1-8B", "num_hidden_layers": 2})
    expected = replace(base, layers=2, name="Llama-3.1-8B (changed)", published_parameters=0)
    assert changed == expected
    assert model_from({"base": "Llama-3.1-8B", "window": 128}).window(31) == 128
    assert model_from({"base": "Mistral-7B-v0.1", "window": 0}).windows == ()
    quantised = model_from({"base": "Qwen3-8B", "precision": {"weights": "fp8"}})
    assert quantised.default_precision.recipe == "fp8"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"base": "Llama-3.1-8B", "layrs": 2}, ""),
        ({"base": "Llama-3.1-8B", "layers": "two"}, "layers"),
        ({"base": "Llama-3.1-8B", "layers": -1}, "layers"),
        ({"base": "Llama-3.1-8B", "layers": 2, "num_hidden_layers": 3}, "num_hidden_layers"),
        ({"base": "Llama-3.1-8B", "heads": 5}, "heads"),
        ({"base": "Llama-9"}, "model"),
        ({"base": "Llama-3.1-8B", "precision": {"weights": "fp9"}}, "precision.weights"),
        ({"base": "Llama-3.1-8B", "window": 1, "windows": [1]}, "windows"),
        ({"layers": 2, "hidden": 64}, "heads"),
        ({}, "layers"),
        ({"base": "Llama-3.1-8B", "layers": float("nan")}, "layers"),
    ],
)
def test_bad_objects_name_the_field(given: dict, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        model_from(given)
    assert field in (caught.value.field, "")
    assert str(caught.value)


def test_our_own_format_without_a_base() -> None:
    given = {"layers": 2, "hidden": 64, "heads": 4, "intermediate": 128, "vocab": 100}
    model = model_from(given)
    assert (model.kv_heads, model.head_dim, model.gated) == (4, 16, True)
