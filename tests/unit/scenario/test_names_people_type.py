"""Names, folders and fields as people type them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from silicast.app.api import predict
from silicast.app.cli import main
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.scenario.resolve import find_any_device, find_any_engine, find_any_model
from silicast.scenario.schema import EngineTable
from silicast.workload.models.checkpoint_names import _suffixes
from silicast.workload.models.lookup import find_model

MODELS = (
    "zhipuai/GLM-5", "moonshotai/Kimi-K2.5", "MiniMaxAI/MiniMax-M2.5", "Qwen/Qwen3.5-397B-A17B",
    "gpt3_xl", "bert_large", "switchxl4", "opt_13", "Nemotron-4-340B", "Nemotron-4-15B",
    "nemotron4-15b", "Grok-1", "grok1-314b", "InternLM-7B", "Qwen3-235B-A22B-Thinking-2507-FP8",
    "Qwen3-VL-235B-A22B-Instruct-FP8", "Qwen3-Omni-30B-A3B",
    "Llama-4-Maverick-17B-128E-Instruct-FP8", "NVIDIA-Nemotron-Nano-9B-v2",
    "NVIDIA-Nemotron-Nano-12B-v2", "NVIDIA-Nemotron-Nano-12B-v2-VL", "Nemotron-Nano-9B-v2",
)  # fmt: skip
"""Of DESIGN section 4."""
DEVICES = (
    "RTX PRO 6000 S", "rtx_pro_6000_server", "RTXPRO6000", "b300_sxm", "B300-SXM", "gb300",
    "GB300", "H100-SXM-80GB", "H100-80G-SXM", "H100-96G-HBM2e-500W", "A800-80G-SXM", "L4",
    "A100-PCIE-80GB", "MI210", "MI250", "MI300X", "MI355X", "TPU-v5p", "TPU-v6e", "GB200",
    "H200-SXM", "A100", "H100", "H200", "H800", "B200",
)  # fmt: skip
WORK = {"batch": 1, "input_len": 16, "output_len": 2}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2,
    "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 1024, "vocab_size": 4096, "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_contract_resolves(name: str) -> None:
    variants = {find_model(each).name for each in (name, name.lower(), name.replace("-", "_"))}
    assert len(variants) == 1


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_of_the_contract_resolves(name: str) -> None:
    assert find_device(name).name == find_device(name.lower().replace("-", " ")).name


@pytest.mark.parametrize(
    ("name", "base", "recipe", "group"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen2.5-7B", "int4_wo", 128),
        ("Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen2.5-7B", "int4_wo", 128),
        ("Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen2.5-7B", "int8_wo", 0),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "Llama-3.1-8B", "int4_wo", 64),
        ("TheBloke/Llama-2-7B-Chat-GGUF", "Llama-2-7B", "int4_wo", 32),
        ("Llama-3.1-8B-Instruct.Q8_0.gguf", "Llama-3.1-8B", "int8_wo", 32),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "Llama-3.3-70B", "int4_wo", 128),
        ("neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Llama-3.1-8B", "fp8", 0),
        ("Mistral-Nemo-12B-Instruct-FP8", "Mistral-Nemo-12B", "fp8", 0),
    ],
)
def test_ends_of_names_state_formats(name: str, base: str, recipe: str, group: int) -> None:
    model = find_model(name)
    precision = model.default_precision
    assert (precision.recipe, precision.group_size) == (recipe, group)
    assert (model.layers, model.hidden) == (find_model(base).layers, find_model(base).hidden)
    assert f"taken from its name as {base}" in model.implied


def test_a_format_that_a_name_implies_is_reported() -> None:
    result = predict(task="inference", model="Qwen2.5-7B-AWQ", device="h100", workload=WORK)
    assert any("taken from its name as Qwen2.5-7B" in warning for warning in result.warnings)
    plain = predict(task="inference", model="Qwen2.5-7B-Instruct", device="h100", workload=WORK)
    assert not any("taken from its name" in warning for warning in plain.warnings)
    assert result["memory_gb"].estimate < plain["memory_gb"].estimate


def test_a_base_may_have_such_a_name() -> None:
    model = find_any_model({"base": "Qwen2.5-7B-Instruct-AWQ", "layers": 4}, Path())
    assert (model.layers, model.default_precision.recipe) == (4, "int4_wo")


@pytest.mark.parametrize(
    "name", ["AWQ", "-AWQ", "Instruct", "FP8", "x" * 5000, "no-such-AWQ", "a/b"]
)
def test_what_is_left_must_be_known(name: str) -> None:
    with pytest.raises(SilicastError, match="unknown model"):
        find_model(name)


def test_no_end_is_listed_twice() -> None:
    every = [end for each in _suffixes().format for end in each.ends] + _suffixes().same
    plain = [re.sub("[-_.]", "", end) for end in every]
    assert len(set(every)) == len(every)
    assert len(set(plain)) == len(plain)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A model in Hugging Face's cache: two revisions, the older one named by refs/main."""
    model = tmp_path / "hub" / "models--org--My-Model-7B"
    for revision, layers in (("aaa", 2), ("bbb", 3)):
        folder = model / "snapshots" / revision
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("aaa\n")
    return model


def test_a_model_of_the_cache_of_hugging_face(cache: Path) -> None:
    any_model = find_any_model(str(cache), Path())
    assert (any_model.name, any_model.layers) == ("My-Model-7B", 2)
    any_model = find_any_model(str(cache / "snapshots" / "bbb"), Path())
    assert (any_model.name, any_model.layers) == ("My-Model-7B", 3)
    any_model = find_any_model(cache.name, cache.parent)
    assert any_model.layers == 2
    (cache / "refs" / "main").write_text("gone")
    assert find_any_model(str(cache), Path()).name == "My-Model-7B"


def test_a_folder_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(SilicastError, match=r"has no config\.json"):
        find_any_model(str(folder), Path())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    names = {find_any_model(name, Path()).name for name in ("mine", "./mine", str(folder), "mine/")}
    assert names == {"mine"}


def hint_of(call: Any, *arguments: Any) -> str:
    with pytest.raises(SilicastError) as caught:
        call(*arguments)
    return caught.value.hint


def test_a_name_of_another_kind_is_told() -> None:
    assert hint_of(find_any_device, "Llama-3.1-8B", Path()) == "Llama-3.1-8B is a model"
    of_a_variant = "Qwen3-30B-A3B-Instruct-2507-FP8"
    assert hint_of(find_any_device, of_a_variant, Path()) == f"{of_a_variant} is a model"
    assert hint_of(find_any_model, "h100", Path()) == "h100 is a device"
    assert hint_of(find_any_model, "vllm", Path()) == "vllm is an engine"
    assert hint_of(find_any_engine, EngineTable("h100"), Path()) == "h100 is a device"
    assert "did you mean" in hint_of(find_any_device, "h1000", Path())


def test_a_field_that_is_nearly_called_so() -> None:
    assert hint_of(find_any_model, {"base": "Llama-3.1-8B", "num_hidden_layer": 3}, Path()) == (
        "did you mean num_hidden_layers or hidden_act or n_layer? "
        "docs/reference/models.md describes every field"
    )
    config = {("num_hidden_layer" if k == "num_hidden_layers" else k): v for k, v in CONFIG.items()}
    assert "num_hidden_layer'" in hint_of(find_any_model, config, Path())
    tree = {"task": "inference", "model": "Llama-3.1-8B", "device": "h100"}
    assert hint_of(predict, {**tree, "workload": {"bacth": 1}}) == (
        "did you mean batch? docs/reference/scenario.md describes every field"
    )


def test_a_collective_is_no_kernel() -> None:
    for op in ("all_reduce", "AllReduce", "all-to-all"):
        scenario = {"task": "kernel", "device": "h100", "workload": {"op": op, "bytes": 8}}
        assert "silicast collective all_" in hint_of(predict, scenario)


@pytest.mark.parametrize(
    ("words", "shown"),
    [("devices hopper", "H100-SXM-80GB"), ("devices h200", "H200"), ("models qwen3", "Qwen3-8B"),
     ("models nemotron_h", "Nemotron-H-56B"), ("engines vllm", "vllm")],
)  # fmt: skip
def test_a_word_after_a_list_searches(
    words: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert shown in out
    main(words.split()[:1])
    assert len(out) < len(capsys.readouterr().out) or words.startswith("engines")


@pytest.mark.parametrize("field", ["recipe", "kv_cache"])
def test_the_own_format_of_a_checkpoint_is_offered(field: str) -> None:
    """Servers' command lines take ``auto`` where a format is asked for."""
    case = {
        "format": 1, "task": "inference", "model": "Llama-3.1-8B", "device": "h100",
        "precision": {field: "aut"}, "workload": WORK,
    }  # fmt: skip
    with pytest.raises(SilicastError, match="auto"):
        predict(case)
