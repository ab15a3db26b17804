"""One setting, spelled as a flag, as a field of a configuration, or as a template leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from silicast.formats.training_configs import read_training_config
from tests.unit.formats.training_configs import samples as s

YAML = """
language_model:
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
model_parallel:
  tensor_model_parallel_size: 2
  bf16: true
micro_batch_size: 2
global_batch_size: 64
seq_length: 2048
vocab_size: 50304
"""


def of_megatron(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    text = YAML + "".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}\n"
        for name, value in fields.items()
    )
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return read_training_config(path, devices=8)[0]


def test_a_false_of_a_configuration_is_the_flag_that_switches_off(tmp_path: Path) -> None:
    on = of_megatron(tmp_path, gradient_accumulation_fusion=True, apply_rope_fusion=True)
    assert on == of_megatron(tmp_path)
    off = of_megatron(
        tmp_path,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        masked_softmax_fusion=False,
    )
    options = off["engine"]["options"]
    assert options["fused_gradient_accumulation"] is False
    assert options["fused_rope"] is False
    assert options["unpriced"] == ["no-masked-softmax-fusion"]


def test_biases_that_a_configuration_leaves_out(tmp_path: Path) -> None:
    decoder = {"swiglu": True, "normalization": "RMSNorm", "position_embedding_type": "rope"}
    assert of_megatron(tmp_path, **decoder)["model"]["mlp_bias"] is True
    assert of_megatron(tmp_path, **decoder, add_bias_linear=False)["model"]["mlp_bias"] is False


def test_experts_under_the_name_that_configurations_have(tmp_path: Path) -> None:
    model = of_megatron(tmp_path, num_moe_experts=8, moe_router_topk=2)["model"]
    assert (model["num_local_experts"], model["num_experts_per_tok"]) == (8, 2)
    chunks = of_megatron(
        tmp_path, pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=3
    )
    assert chunks["parallel"]["virtual_stages"] == 3


def test_a_template_keeps_what_stands_behind_its_placeholders(tmp_path: Path) -> None:
    marked = s.SCRIPT.replace("$DATA 2>&1 | tee log", "<PATH TO THE DATA> --fp8-format hybrid")
    assert marked != s.SCRIPT
    (path,) = s.written(tmp_path, run_sh=marked)
    assert read_training_config(path)[0]["precision"] == {"recipe": "fp8"}


@pytest.mark.parametrize("backend", ["", " --moe-flex-dispatcher-backend deepep"])
def test_the_kernels_of_the_flexible_dispatcher_are_priced(tmp_path: Path, backend: str) -> None:
    experts = "--num-experts 8 --moe-permute-fusion --moe-token-dispatcher-type flex"
    text = s.SCRIPT.replace("--data-path", f"{experts} --moe-enable-deepep{backend} --data-path")
    (path,) = s.written(tmp_path, run_sh=text)
    options = read_training_config(path)[0]["engine"]["options"]
    assert options["dispatcher"] == "kernel"
    assert "unpriced" not in options


FORMATS = """
[float8]
enable_fsdp_float8_all_gather = true
[quantize.linear.float8]
filter_fqns = ["output"]
[mx]
recipe_name = "mxfp8"
"""


def of_torchtitan(tmp_path: Path, job: str) -> dict[str, Any]:
    path = tmp_path / "job.toml"
    path.write_text(job)
    return read_training_config(path)[0]


def test_tables_of_formats_that_nothing_is_converted_to_change_nothing(tmp_path: Path) -> None:
    plain = s.JOB.replace('converters = ["float8"]\n', "")
    assert of_torchtitan(tmp_path, plain + FORMATS) == of_torchtitan(tmp_path, plain)
    unpriced = of_torchtitan(tmp_path, s.JOB + FORMATS)["engine"]["options"]["unpriced"]
    assert unpriced == [
        "float8.enable_fsdp_float8_all_gather",
        "quantize.linear.float8.filter_fqns",
    ]


@pytest.mark.parametrize(
    ("components", "model", "loss"),
    [("", True, True), ('["loss"]', False, True), ('["model"]', True, False)],
)
def test_what_is_compiled(tmp_path: Path, components: str, model: bool, loss: bool) -> None:
    table = "[compile]\nenable = true\n" + (f"components = {components}\n" if components else "")
    options = of_torchtitan(tmp_path, s.JOB + table)["engine"]["options"]
    assert (options["compile"], options["fused_loss"]) == (model, loss)
