"""Rows of the sparse attention tables, as they are, into ops."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernels.kernel_case import kernel_case

ROW = {
    "op": "dsa_module", "phase": "context", "batch_size": 2, "isl": 512, "step": 4096,
    "num_heads": 8, "tp_size": 8, "mla_dtype": "bfloat16", "kv_cache_dtype": "fp8",
    "gemm_type": "fp8_block", "architecture": "GlmMoeDsaForCausalLM", "library": "sglang",
    "variant": "sglang_dsa_indexer_trtllm", "compress_ratio": 1,
}  # fmt: skip


def sizes(**fields: Any) -> dict[str, Any]:
    return dict(kernel_case({**ROW, **fields}).op.dims)


def test_the_model_gives_the_widths() -> None:
    glm = sizes(model="zai-org/GLM-5")
    assert (glm["hidden"], glm["q_rank"], glm["nope"], glm["index_heads"]) == (6144, 2048, 192, 32)
    deepseek = sizes(model="deepseek-ai/DeepSeek-V3.2")
    assert (deepseek["hidden"], deepseek["value"], deepseek["index_heads"]) == (7168, 128, 64)
    assert "hidden" not in sizes()


def test_stated_widths_come_first() -> None:
    assert sizes(model="GLM-5", hidden=4096)["hidden"] == 4096


def test_formats_and_phase_are_of_the_variant() -> None:
    variant = kernel_case(ROW).op.variant
    assert (variant.dtype, variant.kv_dtype, variant.library) == ("bf16", "fp8", "sglang")
    assert variant.flag("gemm_fp8_block")
    assert not variant.flag("generation")
    assert not variant.flag("skip_indexer")


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"phase": "generation", "isl": 1}, "generation"),
        ({"phase": None, "op_name": "dsa_generation_module", "isl": 1}, "generation"),
        ({"op_name": "dsa_context_module_skip_indexer"}, "skip_indexer"),
    ],
)
def test_names_of_ops_say_what_they_hold(fields: dict[str, Any], flag: str) -> None:
    row = {key: value for key, value in {**ROW, **fields}.items() if value is not None}
    assert kernel_case(row).op.variant.flag(flag)


def test_groups_of_the_way_out_are_shared_by_the_ranks() -> None:
    row = {**ROW, "op": "csa_module", "compress_ratio": 4, "model": "DeepSeek-V4-Pro"}
    dims = dict(kernel_case(row).op.dims)
    assert (dims["out_groups"], dims["selected"], dims["compress_ratio"]) == (2, 1024, 4)
    alone = dict(kernel_case({**row, "op": "hca_module", "tp_size": 1}).op.dims)
    assert alone["out_groups"] == 16


def test_blocks_of_keys() -> None:
    row = {**ROW, "op": "msa_module", "model": "MiniMaxAI/MiniMax-M3"}
    dims = dict(kernel_case(row).op.dims)
    assert (dims["group"], dims["selected"], dims["block"]) == (16, 16, 128)


def test_a_model_without_such_layers_is_refused() -> None:
    with pytest.raises(SilicastError, match="has no DSA layers"):
        kernel_case({**ROW, "model": "Llama-3.1-8B"})
    with pytest.raises(SilicastError, match="isl"):
        kernel_case({**ROW, "isl": 0})


@pytest.mark.parametrize(
    ("fields", "generation", "doubt"),
    [
        ({}, True, True),
        ({"isl": 2}, False, False),
        ({"phase": "context"}, False, False),
        ({"variant": "sglang_minimax_prefill_triton_sparse"}, False, False),
        ({"variant": "sglang_minimax_decode_triton_sparse_topk_radix"}, True, False),
    ],
)
def test_one_token_without_a_phase_is_in_doubt(
    fields: dict[str, Any], generation: bool, doubt: bool
) -> None:
    row = {key: value for key, value in ROW.items() if key not in ("phase", "variant")}
    case = kernel_case({**row, "op": "msa_module", "isl": 1, **fields})
    assert case.op.variant.flag("generation") is generation
    assert bool(case.warnings) is doubt


def test_parts_of_a_module_are_not_the_module() -> None:
    for op, name in (
        ("csa_module", "dsv4_paged_mqa_logits_module"),
        ("hca_module", "dsv4_flash_hca_attn_module"),
    ):
        with pytest.raises(SilicastError, match="not modelled on its own") as caught:
            kernel_case({**ROW, "op": op, "op_name": name})
        assert caught.value.kind == "not_yet"
    for name in ("dsv4_csa_context_module", "dsv4_flash_csa_context_module"):
        assert kernel_case({**ROW, "op": "csa_module", "op_name": name}).op.family == "csa_module"


@pytest.mark.parametrize("op", ["dsa_module", "csa_module", "hca_module", "msa_module"])
def test_cached_tokens_are_not_counted_in_isl(op: str) -> None:
    """As in generation rows of these tables; of the others' convention a warning tells."""
    row = {"op": op, "phase": "generation", "batch_size": 8, "num_heads": 16}
    case = kernel_case({**row, "isl": 4096})
    assert any("cached tokens are step here" in text for text in case.warnings)
    for fields in ({"isl": 1, "step": 4096}, {"step": 4096}, {"isl": 4, "step": 4096}):
        assert not kernel_case({**row, **fields}).warnings
