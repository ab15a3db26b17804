"""Every model name of the measured tables resolves, and configurations agree with the catalog."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from silicast.core.errors import SilicastError
from silicast.workload.models.huggingface import read_config
from silicast.workload.models.lookup import find_model
from silicast.workload.models.model import ModelConfig

DATA = Path(os.environ.get("SILICAST_DATA") or Path(__file__).parents[4] / "shared" / "data")

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no measured tables at {DATA}"),
]

_COLUMNS = {
    "aiconfigurator": ("model", "model_path", "model_name"),
    "neusight": ("model",),
    "pipeweave": ("model",),
    "serving": ("model", "model_name", "hf_model", "Model", "UsedModel"),
    "training": ("model",),
}


def known_or_not_yet(read: Callable[[], ModelConfig]) -> ModelConfig | None:
    """The model, or None where its structure is not modelled yet; other errors pass."""
    try:
        return read()
    except SilicastError as error:
        if error.kind != "not_yet":
            raise
        return None


def table_names() -> set[str]:
    pq = pytest.importorskip("pyarrow.parquet")
    table_names: set[str] = set()
    for folder, columns in _COLUMNS.items():
        for path in sorted((DATA / folder).glob("*.parquet")):
            present = [c for c in pq.read_schema(path).names if c in columns]
            for column in present:
                values = pq.read_table(path, columns=[column])[column].unique().to_pylist()
                table_names.update(value for value in values if value)
    table_names.update(json.loads((DATA / "neusight/model_configs.json").read_text()))
    table_names.update(
        path.name.removesuffix("_config.json").replace("--", "/")
        for path in (DATA / "models").glob("*.json")
    )
    return table_names


def test_every_name_of_the_tables_resolves() -> None:
    names = table_names()
    assert len(names) > 150
    for name in sorted(names):
        known_or_not_yet(lambda name=name: find_model(name))  # type: ignore[misc]


def test_configurations_agree_with_the_catalog() -> None:
    read = 0
    for path in sorted((DATA / "models").glob("*.json")):
        name = path.name.removesuffix("_config.json").split("--")[1]
        yet = known_or_not_yet(lambda path=path: find_model(str(path)))  # type: ignore[misc]
        known = known_or_not_yet(lambda name=name: find_model(name))  # type: ignore[misc]
        assert (yet is None) == (known is None), name
        if yet is None or known is None:
            continue
        assert not yet.assumed, name
        yet = replace(yet, ignored_fields=())
        if "quantization_config" in json.loads(path.read_text()):
            whole = replace(yet.default_precision, by_module=known.default_precision.by_module)
            assert whole == known.default_precision, name
        same = replace(
            known,
            name=yet.name,
            source="",
            published_parameters=0,
            default_precision=yet.default_precision,
            formats=yet.formats,  # of modules, as of all of it, stand in the file
        )
        if "vision_config" not in json.loads(path.read_text()):
            same = replace(same, encoder_parameters=0, encoder_heads=0)  # it leaves its encoder out
        assert yet == same, name
        read += 1
    assert read >= 30


def test_neusight_configurations_agree_with_the_catalog() -> None:
    configs = json.loads((DATA / "neusight/model_configs.json").read_text())
    for name in ("gpt2_large", "gpt2_med", "gpt2_xl", "gpt3_xl", "gpt3_27", "gpt3_67", "opt_13"):
        config, known = read_config(configs[name]), find_model(name)
        same = replace(
            known,
            name=config.name,
            source="",
            published_parameters=0,
            default_precision=config.default_precision,
        )
        assert config == same, name


def test_pipeweave_configurations_agree_with_the_catalog() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    for row in pq.read_table(DATA / "pipeweave/model_configs.parquet").to_pylist():
        model = find_model(row["model"])
        sizes = (model.hidden, model.layers, model.heads, model.kv_heads, model.intermediate)
        names = (
            "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "intermediate_size",
        )  # fmt: skip
        assert sizes == tuple(row[name] for name in names), row["model"]
        assert model.vocab == row["vocab_size"]


def test_training_configurations_agree_with_the_catalog() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    wanted = [
        "model",
        "source",
        "layers",
        "hidden",
        "ffn",
        "heads",
        "kv_heads",
        "vocab",
        "n_experts",
        "topk",
        "moe_ffn",
    ]
    rows = pq.read_table(DATA / "training/training_measured.parquet", columns=wanted).to_pylist()
    checked = set()
    for row in rows:
        if row["hidden"] is None or row["layers"] is None:
            continue
        if row["model"] == "gpt-1.7b" and "r0.8" in row["source"]:
            continue  # another shape under the same name: Megatron-Core-GPT-1.7B
        model = known_or_not_yet(lambda name=row["model"]: find_model(name))  # type: ignore[misc]
        if model is None:
            continue
        sizes = (model.layers, model.hidden, model.intermediate, model.heads, model.kv_heads)
        assert sizes == (
            row["layers"], row["hidden"], row["ffn"], row["heads"], row["kv_heads"] or row["heads"],
        ), row["model"]  # fmt: skip
        assert model.vocab == row["vocab"], row["model"]
        if row["n_experts"]:
            assert model.moe is not None
            experts = (model.moe.experts, model.moe.topk, model.moe.intermediate)
            assert experts == (row["n_experts"], row["topk"], row["moe_ffn"]), row["model"]
        checked.add(row["model"])
    assert len(checked) > 30
