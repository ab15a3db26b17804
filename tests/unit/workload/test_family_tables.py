"""Tables of model families: what they can state, and every way to be wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from silicast.core.catalog import CATALOG
from silicast.core.errors import SilicastError
from silicast.workload.families.family import families, find_family
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.model import ModelConfig

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-model.md"
TABLES = sorted((CATALOG / "families").glob("*.toml"))
BASES = {"common", "decoder"}  # what others build on or fall back to: no architecture names them
SIZES = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 96,
    "vocab_size": 100,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for families of the user."""
    folder = tmp_path / "families"
    folder.mkdir()
    monkeypatch.setenv("SILICAST_CATALOG", str(tmp_path))
    return folder


def read(folder: Path, table: str, **fields: Any) -> ModelConfig:
    (folder / "mine.toml").write_text(f'architectures = ["Mine"]\n{table}')
    return read_config({"architectures": ["Mine"], **SIZES, **fields}, file="config.json")


def test_every_table_is_found_by_its_names() -> None:
    assert len(TABLES) > 50
    for path in TABLES:
        if path.stem in BASES:
            continue
        named = re.findall(r'"([\w-]+)"', path.read_text().partition("\n\n")[0])
        distinct = {family.name for family in map(find_family, named) if family is not None}
        assert path.stem in distinct, path
    assert {family.name for family in families().values()} == {p.stem for p in TABLES} - BASES
    assert find_family("NoSuchForCausalLM") is None


def test_the_family_of_the_guide(path: Path) -> None:
    table = re.search(r"```toml\n(# Granite.*?)```", PAGE.read_text(), re.DOTALL)
    assert table
    (path / "granite_moe.toml").write_text(table.group(1))
    config = read_config({"model_type": "granitemoe", **SIZES, "num_local_experts": 8})
    assert (config.family, config.assumed) == ("granite_moe", ())
    assert config.moe is not None
    assert (config.moe.experts, config.moe.topk, config.moe.intermediate) == (8, 2, 96)
    assert config.max_positions == 2048  # Llama's default


def test_rules(path: Path) -> None:
    table = """
        ignored = ["colour"]
        [structure]
        "qkv_bias o_bias" = true
        position_rows = "max_positions + 2 * extra"
        position = "learned"
        [fields]
        max_positions = { key = ["n_ctx", "n_positions"], default = 10 }
        kv_heads = { key = "groups", default = "heads // 2", unset = -1 }
        norm = { key = "centred", default = "", values = { on = "layernorm" }, other = "rmsnorm" }
        gated = { key = "a.gate", default = true, values = { true = true } }
        [numbers]
        extra = { key = "extra_rows", default = 3 }
    """
    result = read(path, table, n_positions=5, groups=-1, colour="red", centred="on", shape="round")
    assert (result.qkv_bias, result.o_bias) == (True, True)
    assert (result.max_positions, result.position_rows) == (5, 21)  # left to right
    assert (result.kv_heads, result.norm) == (2, "layernorm")
    assert result.ignored_fields == ("shape",)
    other = read(path, table, n_ctx=7, n_positions=5, extra_rows=1, groups=4)
    assert (other.max_positions, other.kv_heads, other.norm) == (7, 4, "rmsnorm")
    with pytest.raises(SilicastError) as caught:
        read(path, table, a={"gate": False})
    assert (caught.value.field, caught.value.kind) == ("a.gate", "not_yet")
    with pytest.raises(SilicastError) as caught:
        read(path, table, a={"gate": 1})
    assert (caught.value.field, caught.value.kind) == ("a.gate", "invalid_input")


def test_layers(path: Path) -> None:
    windows = '[windows]\nsize = "window"\nevery = 2\nfirst = 1\nper_layer = "kinds"\n'
    table = f'{windows}[numbers]\nwindow = {{ key = "w", default = 8 }}\n'
    assert read(path, table).windows == (0, 0, 8, 0)
    assert read(path, table, w=0).windows == ()
    kinds = ["full_attention", "sliding_attention"] * 2
    assert read(path, table, kinds=kinds).windows == (0, 8, 0, 8)
    with pytest.raises(SilicastError) as caught:
        read(path, table, kinds=kinds[:3])
    assert caught.value.field == "kinds"
    assert "3 entries" in caught.value.message
    with pytest.raises(SilicastError) as caught:
        read(path, table, kinds=["square"] * 4)
    assert (caught.value.field, caught.value.kind) == ("kinds", "not_yet")


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ("colour = 1", "colour"),
        ("text_part = 1", "text_part"),
        ('[fields]\nhiden = "hidden_size"', "hiden"),
        ('[structure]\n"moe.expert" = 1', "moe.expert"),
        ('[encoder.fields]\nhiden = "x"', "hiden"),
        ('[fields]\nhidden = { name = "x" }', "fields.hidden.name"),
        ('like = "nobody"', "like"),
        ('like = "mine"', "like"),
        ('[structure]\nkv_heads = "groups"', "groups"),
        ('[structure]\nkv_heads = "heads ** 2"', "heads ** 2"),
        ('[structure]\nkv_heads = ""', ""),
        ("= 1", ""),
    ],
)
def test_wrong_tables_name_file_and_field(path: Path, table: str, field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        read(path, table)
    assert caught.value.file.endswith("mine.toml")
    assert caught.value.field == field


def test_families_like_each_other(path: Path) -> None:
    (path / "other.toml").write_text('like = "mine"')
    with pytest.raises(SilicastError) as caught:
        read(path, 'like = "other"')
    assert caught.value.field == "like"


def test_two_families_of_one_architecture(path: Path) -> None:
    (path / "mine.toml").write_text('architectures = ["LlamaForCausalLM"]')
    families.cache_clear()
    try:
        with pytest.raises(SilicastError) as caught:
            families()
    finally:
        families.cache_clear()
    assert caught.value.file.endswith("mine.toml")
    assert "llama" in caught.value.message
