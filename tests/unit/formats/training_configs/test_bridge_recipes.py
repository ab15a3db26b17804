"""Recipes over those of Megatron-Bridge's library, as its performance recipes are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.formats.training_configs.reader import read_training_config

DENSE = """
from megatron.bridge.perf_recipes.llama.common import userbuffers_bf16_h100_h8192_tp4_mbs1
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config


def llama3_70b_pretrain_64gpu_h100_bf16_config():
    cfg = llama3_70b_pretrain_config()
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 4
    cfg.train.global_batch_size = 128
    cfg.comm_overlap.tp_comm_overlap = True
    cfg.comm_overlap.tp_comm_overlap_cfg = userbuffers_bf16_h100_h8192_tp4_mbs1
    return cfg
"""
EXPERTS = """
from megatron.bridge.recipes.deepseek import deepseek_v3_pretrain_config


def deepseek_v3_pretrain_1024gpu_h100_bf16_config():
    cfg = deepseek_v3_pretrain_config()
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 8
    cfg.model.expert_model_parallel_size = 64
    return cfg
"""


def read(tmp_path: Path, text: str, devices: int) -> dict[str, Any]:
    file = tmp_path / "recipe.py"
    file.write_text(text)
    return read_training_config(file, devices=devices)[0]


def test_tables_of_user_buffers_do_not_keep_a_recipe_from_being_read(tmp_path: Path) -> None:
    scenario = read(tmp_path, DENSE, 64)
    assert scenario["parallel"]["tp"] == 4
    assert scenario["workload"]["overlap"]["tensor"] is True


def test_other_values_that_only_running_it_gives_do(tmp_path: Path) -> None:
    """A batch of a size that an imported name holds."""
    text = DENSE.replace("global_batch_size = 128", "global_batch_size = LARGE")
    with pytest.raises(SilicastError, match="LARGE"):
        read(tmp_path, text, 64)


def test_experts_are_whole_and_further_tokens_are_trained(tmp_path: Path) -> None:
    """The library's recipes state one tensor rank an expert, where Megatron-LM takes tp."""
    scenario = read(tmp_path, EXPERTS, 1024)
    assert scenario["parallel"]["etp"] == 1
    assert scenario["workload"]["mtp_layers"] == 1


SCALED = """
from megatron.bridge.perf_recipes.llama.common import _with_global_batch_size
from megatron.bridge.recipes.qwen.h100 import (
    qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config as _default,
)


def qwen3_30b_a3b_pretrain_16gpu_config():
    cfg = _default()
    cfg.model.expert_model_parallel_size = 8
    cfg.dataset.seq_length = cfg.model.seq_length
    return cfg


def qwen3_30b_a3b_pretrain_64gpu_config():
    cfg = _with_global_batch_size(qwen3_30b_a3b_pretrain_16gpu_config(), 4096)
    cfg.model.context_parallel_size = 2
    return cfg
"""


def scaled(tmp_path: Path, run: str, devices: int, text: str = SCALED) -> dict[str, Any]:
    file = tmp_path / "recipe.py"
    file.write_text(text)
    return read_training_config(file, run=run, devices=devices)[0]


def test_a_recipe_may_begin_with_one_that_is_imported_by_another_name(tmp_path: Path) -> None:
    scenario = scaled(tmp_path, "qwen3_30b_a3b_pretrain_16gpu_config", 16)
    assert scenario["model"] == "Qwen/Qwen3-30B-A3B"
    assert scenario["workload"]["global_batch"] == 1024
    assert scenario["workload"]["seq_len"] == 4096  # that of the library's recipe
    assert scenario["parallel"]["ep"] == 8


def test_a_recipe_may_be_another_with_a_larger_batch(tmp_path: Path) -> None:
    """What is set behind the call counts too, and the recipe that it takes stays as it is."""
    scenario = scaled(tmp_path, "qwen3_30b_a3b_pretrain_64gpu_config", 64)
    assert scenario["workload"]["global_batch"] == 4096
    assert (scenario["parallel"]["ep"], scenario["parallel"]["cp"]) == (8, 2)
    before = scaled(tmp_path, "qwen3_30b_a3b_pretrain_16gpu_config", 16)
    assert before["workload"]["global_batch"] == 1024


def test_a_function_of_the_file_is_not_taken_for_one_of_the_library(tmp_path: Path) -> None:
    text = SCALED.replace(
        "from megatron.bridge.perf_recipes.llama.common import _with_global_batch_size",
        "def _with_global_batch_size(cfg, count):\n    cfg.train.global_batch_size = 2 * count",
    )
    with pytest.raises(SilicastError):
        scaled(tmp_path, "qwen3_30b_a3b_pretrain_64gpu_config", 64, text)


def test_fields_of_fields_that_are_not_known_are_still_refused(tmp_path: Path) -> None:
    text = SCALED.replace("cfg.model.seq_length", "cfg.model.longest")
    with pytest.raises(SilicastError, match=r"cfg\.model\.longest"):
        scaled(tmp_path, "qwen3_30b_a3b_pretrain_16gpu_config", 16, text)


def test_rotations_that_are_not_fused_are_operators(tmp_path: Path) -> None:
    text = DENSE.replace(
        "    return cfg", "    cfg.model.apply_rope_fusion = False\n    return cfg"
    )
    assert "fused_rope" not in read(tmp_path, DENSE, 64)["engine"]["options"]
    options = read(tmp_path, text, 64)["engine"]["options"]
    assert options["fused_rope"] is False
    assert not any("rope" in name for name in options.get("unpriced", []))
