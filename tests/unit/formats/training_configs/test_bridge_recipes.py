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


IMPORTED = "from megatron.bridge.perf_recipes.llama.common import _with_global_batch_size\n"
CALL = "_with_global_batch_size(qwen3_30b_a3b_pretrain_16gpu_config(), 4096)"


@pytest.mark.parametrize(
    ("imported", "call"),
    [
        (IMPORTED, CALL.replace("4096", "global_batch_size=4096")),
        (IMPORTED, CALL.replace("4096", "global_batch_size=4096").replace("(q", "(cfg=q")),
        (IMPORTED[:-1] + " as scale\n", CALL.replace("_with_global_batch_size", "scale")),
        ("import megatron.bridge.perf_recipes.qwen.common as c\n", f"c.{CALL}"),
        ("import megatron.bridge\n", f"megatron.bridge.perf_recipes.qwen.common.{CALL}"),
    ],
)
def test_a_batch_is_scaled_however_the_function_is_called(
    tmp_path: Path, imported: str, call: str
) -> None:
    text = SCALED.replace(IMPORTED, imported).replace(CALL, call)
    scenario = scaled(tmp_path, "qwen3_30b_a3b_pretrain_64gpu_config", 64, text)
    assert scenario["workload"]["global_batch"] == 4096


@pytest.mark.parametrize(
    "imported",
    [
        "",
        IMPORTED.replace("megatron.bridge.perf_recipes.llama.common", "mine.helpers"),
        IMPORTED.replace("megatron.bridge.perf_recipes", "megatron.bridge.perf_recipes_of_mine"),
        IMPORTED.replace("megatron.bridge.perf_recipes.llama", ""),
    ],
)
def test_a_function_of_another_module_is_not_taken_for_one_of_the_library(
    tmp_path: Path, imported: str
) -> None:
    with pytest.raises(SilicastError, match="begins with _with_global_batch_size"):
        scaled(
            tmp_path, "qwen3_30b_a3b_pretrain_64gpu_config", 64, SCALED.replace(IMPORTED, imported)
        )


@pytest.mark.parametrize("stated", ["None", "True", "LARGE", "'4096'"])
def test_a_batch_that_is_no_number_is_refused(tmp_path: Path, stated: str) -> None:
    text = SCALED.replace("4096", stated)
    with pytest.raises(SilicastError, match=r"train\.global_batch_size"):
        scaled(tmp_path, "qwen3_30b_a3b_pretrain_64gpu_config", 64, text)


def test_fields_of_fields_are_read_in_order_and_under_any_name(tmp_path: Path) -> None:
    """The micro-batch is the 8 layers of when it is set, not the 2 of the end."""
    again = "    cfg.dataset.seq_length = cfg.model.seq_length\n"
    more = "    cfg.train.micro_batch_size = cfg.model.num_layers\n    cfg.model.num_layers = 2\n"
    text = SCALED.replace(again, f"    cfg.model.num_layers = 8\n{again}{more}")
    for each in (text, text.replace("cfg", "config")):
        scenario = scaled(tmp_path, "qwen3_30b_a3b_pretrain_16gpu_config", 16, each)
        assert scenario["workload"]["micro_batch"] == 8
        assert scenario["workload"]["seq_len"] == 4096


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
