"""Tables of latent attention become ops."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernels.kernel_case import kernel_case
from silicast.workload.graphs.op import Op


def op(name: str, **fields: Any) -> Op:
    return kernel_case({"op": name, "num_heads": 16, **fields}).op


def test_a_context_row() -> None:
    result = op("mla_prefill", batch_size=4, isl=512, step=100, tp_size=8,
               mla_dtype="bfloat16", kv_cache_dtype="fp8")  # fmt: skip
    sizes = dict(result.dims)
    assert (sizes["batch"], sizes["q_len"], sizes["kv_len"]) == (4, 512, 612)
    assert (result.variant.dtype, result.variant.kv_dtype) == ("bf16", "fp8")
    assert sizes["kv_lora_rank"] == 512


def test_generation_rows_count_the_context_in_step_or_in_isl() -> None:
    assert op("mla_decode", batch_size=2, isl=1, step=4095).dim("kv_len") == 4095
    assert op("mla_decode", batch_size=2, isl=4096, step=0).dim("kv_len") == 4095
    assert op("mla_decode", batch_size=2, step=4095).dim("q_len") == 1


def test_lengths_may_be_lists() -> None:
    result = op("mla_prefill", q_lens=[3, 5], kv_lens=[10, 5])
    assert (result.dim("q_len"), result.dim("kv_len")) == ((3, 5), (10, 5))
    assert op("mla_decode", kv_lens=[10, 5]).dim("kv_len") == (10, 5)
    assert op("mla_decode", kv_len=10, batch_size=7).dim("batch") == 7


def test_a_block_takes_phase_and_formats() -> None:
    result = op("mla_module", batch_size=4, isl=1, step=100, gemm_type="fp8_block",
               phase="generation", mla_dtype="fp8", kv_cache_dtype="fp8")  # fmt: skip
    assert result.variant.flag("generation")
    assert result.variant.flag("gemm_fp8_block")
    assert result.variant.dtype == "fp8"
    assert (result.dim("hidden"), result.dim("q_lora_rank")) == (7168, 1536)
    context = op("mla_module", batch_size=4, isl=64, step=100)
    assert not context.variant.flag("generation")
    assert context.dim("kv_len") == 164
    assert op("mla_module", isl=1, step=5, op_name="mla_context").dim("kv_len") == 6


@pytest.mark.parametrize(
    ("fields", "generation", "doubt"),
    [
        ({"isl": 16384, "step": 0}, False, True),
        ({"isl": 1, "step": 0}, True, True),
        ({"isl": 1, "step": 9}, True, False),
        ({"isl": 4, "step": 9}, False, False),
        ({"q_len": 4}, False, False),
        ({"isl": 16384, "step": 0, "phase": "generation"}, True, False),
        ({"isl": 16384, "step": 0, "op_name": "wideep_generation_mla"}, True, False),
        ({"isl": 16384, "step": 0, "variant": "trtllm_gen_ctx_decode"}, False, True),
        ({"isl": 16384, "step": 0, "variant": "FLASHMLA_DECODE"}, True, False),
        ({"isl": 1, "step": 9, "variant": "some_prefill_kernel"}, False, False),
    ],
)
def test_the_phase_is_read_before_it_is_guessed(
    fields: dict[str, Any], generation: bool, doubt: bool
) -> None:
    case = kernel_case({"op": "mla_module", "num_heads": 16, **fields})
    assert case.op.variant.flag("generation") is generation
    assert [line for line in case.warnings if "say phase" in line] == list(case.warnings)
    assert bool(case.warnings) is doubt


@pytest.mark.parametrize(
    ("fields", "field", "kind"),
    [
        ({"op": "mla_module", "op_name": "garbage"}, "op_name", "unknown_name"),
        ({"op": "mla_module", "op_name": "mla_gen_pre"}, "op_name", "not_yet"),
        ({"op": "mla_prefill", "op_name": "mla_generation"}, "op_name", "unknown_name"),
        ({"op": "mla_prefill", "phase": "generation"}, "phase", "invalid_input"),
        ({"op": "mla_module", "op_name": "mla_context", "phase": "generation"}, "phase",
         "invalid_input"),
        ({"op": "mla_module", "architecture": "NoSuchModel"}, "architecture", "unknown_name"),
    ],
)  # fmt: skip
def test_names_that_say_something_else_are_refused(
    fields: dict[str, Any], field: str, kind: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        kernel_case({"num_heads": 16, "isl": 8, **fields})
    assert (caught.value.field, caught.value.kind) == (f"kernel.{field}", kind)


def test_names_of_the_tables_pass() -> None:
    row = {"isl": 8, "op_name": "mla_context", "architecture": "", "phase": "context"}
    assert op("mla_prefill", **row) == op("mla_prefill", isl=8)
    named = op("mla_module", isl=8, phase="context", architecture="DeepseekV3ForCausalLM")
    assert named == op("mla_module", isl=8)


def test_a_model_gives_the_widths() -> None:
    result = op("mla_module", isl=8, model="moonshotai/Moonlight-16B-A3B", v_head_dim=64)
    assert (result.dim("hidden"), result.dim("q_lora_rank")) == (2048, 0)
    assert result.dim("v_head_dim") == 64


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "isl"),
        ({"isl": 0}, "isl"),
        ({"isl": 4, "kv_len": 3}, "isl"),
        ({"isl": 4, "model": "Llama-3.1-8B"}, "model"),
        ({"q_lens": [4], "kv_lens": [3]}, "kv_len"),
        ({"q_lens": [4], "kv_lens": [4], "batch_size": 2}, "batch_size"),
    ],
)
def test_contradictions_are_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        op("mla_prefill", **fields)
    assert caught.value.field.rpartition(".")[2] == field
