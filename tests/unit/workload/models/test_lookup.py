"""The model catalog: names, published parameter counts, and that the index is current."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parameters import TOLERANCE, counted_as, difference
from silicast.core.errors import SilicastError
from silicast.workload.models.counting import active_parameters, parameters
from silicast.workload.models.lookup import (
    INDEX,
    catalog_tables,
    find_model,
    make_index,
    model_from,
    model_index,
    model_names,
    not_yet_models,
)
from silicast.workload.models.model_file import ParametersTable

ROOT = Path(__file__).parents[4]
TABLES = catalog_tables()
EXACT = [t for _, t in TABLES if t.parameters is not None and t.parameters.exact is not None]
ACTIVE = [t for _, t in TABLES if t.parameters is not None and t.parameters.active is not None]
ROUNDED = [t for _, t in TABLES if t.parameters is not None and t.parameters.rounded is not None]


def test_index_is_current() -> None:
    assert INDEX.read_bytes() == make_index(), "run `python -m silicast.workload.models.lookup`"


def test_every_file_is_a_model_with_a_source() -> None:
    assert {t.name for _, t in TABLES} == set(model_names())
    for _, table in TABLES:
        assert table.source, table.name
        assert find_model(table.name).name == table.name


@pytest.mark.parametrize("table", EXACT, ids=lambda t: t.name)
def test_parameters_equal_the_published_count(table) -> None:  # type: ignore[no-untyped-def]
    assert counted_as(find_model(table.name), table.parameters) == table.parameters.exact


@pytest.mark.parametrize("table", ROUNDED, ids=lambda t: t.name)
def test_parameters_round_to_the_printed_count_or_nearly(table) -> None:  # type: ignore[no-untyped-def]
    assert abs(difference(find_model(table.name), table.parameters)) < TOLERANCE


def test_differences_by_hand() -> None:
    model = find_model("Llama-3.1-8B")  # 8,030,261,248

    def off(**stated: str | int | bool) -> float:
        return difference(model, ParametersTable(source="", **stated))  # type: ignore[arg-type]

    assert off(exact=8_030_261_248) == 0.0
    assert off(exact=8_000_000_000) == pytest.approx(0.00378, abs=1e-5)
    assert off(rounded="8.03B") == off(rounded="8B") == off(rounded="8030M") == 0.0
    assert off(rounded="8.1B") == pytest.approx(-0.0086, abs=1e-4)
    assert off(rounded="7.5B", embedding=False) == 0.0  # without 128256 x 4096
    with pytest.raises(ValueError, match="no published count"):
        off()


def test_the_page_of_parameter_counts_is_current() -> None:
    assert runpy.run_path(str(ROOT / "benchmarks/parameters.py"))["page"]() == (
        ROOT / "docs/reference/parameters.md"
    ).read_text(encoding="utf-8"), "run `python benchmarks/parameters.py`"


@pytest.mark.parametrize("table", ACTIVE, ids=lambda t: t.name)
def test_active_parameters_are_near_the_published_ones(table) -> None:  # type: ignore[no-untyped-def]
    """Publishers count a token's parameters with the embedding, without it, or without the head
    too, and print two digits or so."""
    model = find_model(table.name)
    printed = float(table.parameters.active.removesuffix("B"))
    without = active_parameters(model, embedding=False)
    ways = (active_parameters(model), without, without - model.vocab * model.hidden)
    assert min(abs(count / 1e9 / printed - 1) for count in ways) < 0.025


def test_most_models_have_a_published_count() -> None:
    assert len(EXACT) >= 60
    assert len(EXACT) + len(ROUNDED) >= 85


def test_counts_known_by_heart() -> None:
    assert find_model("Llama-3.1-8B").published_parameters == 8_030_261_248
    assert find_model("Qwen/Qwen2.5-14B").published_parameters == 14_770_033_664
    assert find_model("opt_13").published_parameters == 1_315_758_080
    assert find_model("Llama-3.1-405B").published_parameters == 405_853_388_800


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B"),
        ("LLAMA_3.1 8b instruct", "Llama-3.1-8B"),
        ("Qwen/Qwen-2-7B", "Qwen2-7B"),
        ("codellama/CodeLlama-34b-Instruct-hf", "CodeLlama-34B"),
        ("facebook/opt-13b", "OPT-13B"),
        ("opt_13", "OPT-1.3B"),
        ("gpt3_27", "GPT-3-2.7B"),
        ("gpt2_large", "GPT-2-Large"),
        ("gpt3-175b", "GPT-3-175B"),
        ("llama3.1-405b", "Llama-3.1-405B"),
        ("llama3-70b (first 12 layers)", "Llama-3-70B (first 12 layers)"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen3-32B-NVFP4"),
        ("Nemotron-4-340B", "Nemotron-4-340B"),
        ("neuralmagic_Llama-2-7b-chat-hf-FP8", "Llama-2-7B-FP8"),
        ("bloom-176b", "BLOOM-176B"),
        ("gptj-99.9", "GPT-J-6B"),
        ("Grok-1", "Grok-1"),
        ("Qwen/Qwen3-VL-32B-Thinking", "Qwen3-VL-32B"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"),
        ("moonshotai/Kimi-K2.5", "Kimi-K2.5"),
        ("nvidia/Kimi-K2.7-Code-NVFP4", "Kimi-K2.7-NVFP4"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMax-M2.5"),
        ("Phi-mini-MoE-instruct", "Phi-mini-MoE"),
        ("Llama-4-Maverick-17B-128E-Instruct", "Llama-4-Maverick-17B-128E"),
        ("Qwen/Qwen3.5-397B-A17B", "Qwen3.5-397B-A17B"),
        ("NEMOTRON_H_3_Nano", "Nemotron-3-Nano-30B-A3B"),
        ("moonshotai/Kimi-K3", "Kimi-K3"),
        ("deepseek-v2 (first 4 layers)", "DeepSeek-V2 (first 4 layers)"),
    ],
)
def test_names_and_aliases(name: str, canonical: str) -> None:
    assert find_model(name).name == canonical


def test_known_but_not_modelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index.json"
    entry = {"name": "Next-1", "aliases": ["N1"], "file": "", "missing": "layers of time travel"}
    index.write_text(json.dumps([entry]))
    monkeypatch.setattr("silicast.workload.models.lookup.INDEX", index)
    model_index.cache_clear()
    try:
        assert not_yet_models() == {"Next-1": "layers of time travel"}
        assert model_names() == ()
        with pytest.raises(SilicastError) as caught:
            find_model("maker/n1")
    finally:
        monkeypatch.undo()
        model_index.cache_clear()
    assert caught.value.kind == "not_yet"
    assert "time travel" in caught.value.message


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(SilicastError) as caught:
        find_model("Lama-3.1-8B")
    assert caught.value.kind == "unknown_name"
    assert "Llama-3.1-8B" in caught.value.hint


@pytest.mark.parametrize("name", ["", "  ", "x" * 100_000, "../../etc/passwd", "\0"])
def test_odd_names_are_errors(name: str) -> None:
    with pytest.raises(SilicastError):
        find_model(name)


def test_variants_differ_from_their_base_in_precision_only() -> None:
    base, fp8 = find_model("Qwen3-8B"), find_model("Qwen3-8B-FP8")
    assert fp8.default_precision.recipe == "fp8_block"
    assert parameters(fp8) == parameters(base)
    assert find_model("nvidia/Llama-3.1-70B-Instruct-FP8").default_precision.kv_cache == "fp8"
    assert find_model("Llama-2-7B").default_precision.recipe == "fp16"


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user's own models, empty."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("SILICAST_CATALOG", str(tmp_path))
    model_index.cache_clear()
    yield folder
    monkeypatch.undo()
    model_index.cache_clear()


def test_own_catalog_folder(own_models: Path) -> None:
    mine = {"name": "Mine-1", "aliases": ["m1"], "base": "Llama-3.1-8B", "layers": 4}
    (own_models / "mine.json").write_text(json.dumps(mine))
    (own_models / "loop.json").write_text(json.dumps({"name": "Loop", "base": "Loop"}))
    assert find_model("M-1").layers == 4
    with pytest.raises(SilicastError):
        find_model("Loop")


def test_a_variant_has_its_own_published_count(own_models: Path) -> None:
    """The count of the base is that of its structure alone: two layers fewer have another."""
    mine = {
        "name": "Counted-1",
        "base": "Llama-3.1-8B",
        "parameters": {"exact": 8_030_261_248, "source": "test"},
        "variants": [
            {"name": "Counted-1-long", "max_positions": 1 << 20},
            {"name": "Counted-1-cut", "layers": 30},
            {"name": "Counted-1-own", "parameters": {"exact": 8_030_261_250, "source": "test"}},
            {"name": "Counted-1-rounded", "parameters": {"rounded": "8B", "source": "test"}},
        ],
    }
    (own_models / "mine.json").write_text(json.dumps(mine))
    published = {
        end: find_model(f"Counted-1-{end}").published_parameters
        for end in ("long", "cut", "own", "rounded")
    }
    assert published == {"long": 8_030_261_248, "cut": 0, "own": 8_030_261_250, "rounded": 0}


@pytest.mark.parametrize(
    ("named", "variant", "field", "words"),
    [
        ({"name": "Own-1"}, {"name": "V-1", "base": "Qwen3-8B"}, "base", "whose base is Own-1"),
        ({"name": "Own-1"}, {"name": "V-1", "variants": []}, "variants", "not allowed"),
        ({"name": "Own-1"}, {"name": "own 1"}, "name", "another model of the file"),
        ({}, {"name": "mine"}, "name", "'mine' is the name of another model of the file"),
        ({"name": "Own-1"}, {"layers": 4}, "name", "missing"),
    ],
)
def test_what_a_variant_may_not_state_is_named(
    own_models: Path, named: dict[str, str], variant: dict[str, Any], field: str, words: str
) -> None:
    content = {**named, "base": "Llama-3.1-8B", "variants": [variant]}
    (own_models / "mine.json").write_text(json.dumps(content))
    with pytest.raises(SilicastError, match=words) as caught:
        find_model("Llama-3.1-8B")
    assert caught.value.field == f"variants[0].{field}"
    assert caught.value.file.endswith("mine.json")


def test_not_yet_names_are_no_models() -> None:
    assert not set(not_yet_models()) & set(model_names())
    assert all(not_yet_models().values())


VARIANTS = [(t, variant) for _, t in TABLES for variant in t.variants]


@pytest.mark.parametrize(("table", "variant"), VARIANTS, ids=lambda t: getattr(t, "name", ""))
def test_variants_differ_from_their_base_in_what_they_state(table, variant) -> None:  # type: ignore[no-untyped-def]
    base, model = find_model(table.name), find_model(variant["name"])
    assert model.name == variant["name"]
    assert variant["source"]
    changed = {name: variant[name] for name in variant if name not in ("name", "aliases", "source")}
    assert changed
    for name, value in changed.items():
        assert getattr(model, name) == value != getattr(base, name)
    assert parameters(model) == parameters(base)
    assert model.published_parameters == base.published_parameters
    assert all(find_model(alias) == model for alias in variant.get("aliases", []))
    assert find_model(f"{model.name}-FP8").max_positions == model.max_positions


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 262144),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", 262144),
        ("Qwen3-235B-A22B-Thinking-2507", 262144),
        ("Qwen3-4B-Instruct-2507", 262144),
        ("Qwen3-4B", 40960),
        ("Qwen3-30B-A3B-FP8", 40960),
        ("Qwen2.5-7B", 131072),
        ("Qwen2.5-7B-Instruct-AWQ", 32768),
    ],
)
def test_longest_contexts_are_those_of_the_checkpoint(name: str, positions: int) -> None:
    assert find_model(name).max_positions == positions


def test_a_variant_has_the_formats_of_its_base_published_so() -> None:
    """A scale a block, as the base's own FP8 file states, not a scale a tensor as the end says."""
    model = find_model("Qwen3-4B-Thinking-2507-FP8")
    assert model.default_precision == find_model("Qwen3-4B-FP8").default_precision
    assert model.default_precision.recipe == "fp8_block"


def test_a_variant_may_be_a_base() -> None:
    cut = model_from({"base": "Qwen3-30B-A3B-Instruct-2507", "layers": 4})
    assert (cut.layers, cut.max_positions) == (4, 262144)
