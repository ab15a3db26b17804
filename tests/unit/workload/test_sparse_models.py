"""Models with sparse attention: counts against the published ones, caches in closed form."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.counting import active_parameters, kv_cache_bytes, parameters
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import Sparse
from silicast.workload.models.precision import Precision
from silicast.workload.transformers.plan import Plan

BF16 = Precision()
DATA = Path(os.environ.get("SILICAST_DATA") or Path(__file__).parents[4] / "shared" / "data")


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("DeepSeek-V3.2", 671.0, 37.0),
        ("GLM-5", 744.0, 40.0),
        ("DeepSeek-V4-Flash", 284.0, 13.0),
        ("DeepSeek-V4-Pro", 1600.0, 49.0),
    ],
)
def test_counts_are_the_published_ones(name: str, billions: float, active: float) -> None:
    model = find_model(name)
    # Pro is stated in two digits
    assert parameters(model, mtp=False) / 1e9 == pytest.approx(billions, rel=0.02)
    assert active_parameters(model, embedding=False) / 1e9 == pytest.approx(active, rel=0.06)


def test_an_indexer_by_hand() -> None:
    """Queries out of the queries' latent, a key and the heads' weights out of the hidden states."""
    current = 1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128
    before, after = find_model("DeepSeek-V3.1"), find_model("DeepSeek-V3.2")
    assert parameters(after, mtp=False) - parameters(before, mtp=False) == 61 * current


def test_layers_that_share_a_selection_have_no_indexer() -> None:
    whole, shared = find_model("GLM-5.1"), find_model("GLM-5.2")
    current = 2048 * 32 * 128 + 6144 * (128 + 32) + 2 * 128
    assert parameters(whole, mtp=False) - parameters(shared, mtp=False) == 57 * current
    assert shared.mixers.count("dsa_shared") == 57


def test_caches_in_closed_form() -> None:
    """Latent and index key; a window and entries; keys, values and an index key of 16 bits."""
    plan = Plan()
    tokens = 10_000
    glm = find_model("GLM-5")
    assert kv_cache_bytes(glm, plan, BF16, [tokens]) == 78 * tokens * (576 * 2 + 128 + 4)
    skipping = find_model("GLM-5.2")
    expected = tokens * (78 * 576 * 2 + 21 * (128 + 4))
    assert kv_cache_bytes(skipping, plan, BF16, [tokens]) == expected
    flash = find_model("DeepSeek-V4-Flash")
    fp8 = flash.default_precision
    light = 21 * (tokens // 4) * (512 + 128 + 4)
    heavy = 20 * (tokens // 128) * 512
    assert kv_cache_bytes(flash, plan, fp8, [tokens]) == 43 * 128 * 512 + light + heavy
    m3 = find_model("MiniMax-M3")
    heads = 60 * 2 * 4 * 128 * 2
    assert kv_cache_bytes(m3, plan, BF16, [tokens]) == tokens * (heads + 57 * 128 * 2)


def test_latents_and_indexers_are_whole_on_every_rank() -> None:
    model = find_model("GLM-5")
    whole, rank = (kv_cache_bytes(model, Plan(tp=tp), BF16, [100]) for tp in (1, 8))
    assert whole == rank


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai--DeepSeek-V3.2", "zai-org--GLM-5", "zai-org--GLM-5.1", "zai-org--GLM-5.2",
        "zai-org--GLM-5-FP8", "nvidia--GLM-5.2-NVFP4", "deepseek-ai--DeepSeek-V4-Flash",
        "deepseek-ai--DeepSeek-V4-Pro", "sgl-project--DeepSeek-V4-Flash-FP8",
        "MiniMaxAI--MiniMax-M3",
    ],
)  # fmt: skip
def test_configurations_give_what_the_catalog_has(name: str) -> None:
    path = DATA / f"models/{name}_config.json"
    if not path.is_file():
        pytest.skip(f"no data at {path}")
    read = read_config(json.loads(path.read_text()), name="x")
    remaining = find_model(name.partition("--")[2])
    assert parameters(read) == parameters(remaining)
    assert read.mixers == remaining.mixers
    assert read.sparse == remaining.sparse


def test_a_layer_without_sizes_is_named() -> None:
    with pytest.raises(SilicastError, match="sparse"):
        replace(find_model("GLM-5"), sparse=None)


def test_sizes_out_of_range_are_named() -> None:
    with pytest.raises(SilicastError, match="index_heads"):
        Sparse(index_heads=0, index_dim=128, selected=16)
