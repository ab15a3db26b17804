"""Tables of latent attention become ops."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.kernel_case import kernel_case
from silicast.workload.op import Op


def op(name: str, **fields: Any) -> Op:
    return kernel_case({"op": name, "num_heads": 16, **fields}).op


def test_a_context_row() -> None:
    found = op("mla_prefill", batch_size=4, isl=512, step=100, tp_size=8,
               mla_dtype="bfloat16", kv_cache_dtype="fp8")  # fmt: skip
    sizes = dict(found.dims)
    assert (sizes["batch"], sizes["q_len"], sizes["kv_len"]) == (4, 512, 612)
    assert (found.variant.dtype, found.variant.kv_dtype) == ("bf16", "fp8")
    assert sizes["kv_lora_rank"] == 512


def test_generation_rows_count_the_context_in_step_or_in_isl() -> None:
    assert op("mla_decode", batch_size=2, isl=1, step=4095).dim("kv_len") == 4095
    assert op("mla_decode", batch_size=2, isl=4096, step=0).dim("kv_len") == 4095
    assert op("mla_decode", batch_size=2, step=4095).dim("q_len") == 1


def test_lengths_may_be_lists() -> None:
    found = op("mla_prefill", q_lens=[3, 5], kv_lens=[10, 5])
    assert (found.dim("q_len"), found.dim("kv_len")) == ((3, 5), (10, 5))
    assert op("mla_decode", kv_lens=[10, 5]).dim("kv_len") == (10, 5)
    assert op("mla_decode", kv_len=10, batch_size=7).dim("batch") == 7


def test_a_block_takes_phase_and_formats() -> None:
    found = op("mla_module", batch_size=4, isl=1, step=100, gemm_type="fp8_block",
               phase="generation", mla_dtype="fp8", kv_cache_dtype="fp8")  # fmt: skip
    assert found.variant.flag("generation")
    assert found.variant.flag("gemm_fp8_block")
    assert found.variant.dtype == "fp8"
    assert (found.dim("hidden"), found.dim("q_lora_rank")) == (7168, 1536)
    context = op("mla_module", batch_size=4, isl=64, step=100)
    assert not context.variant.flag("generation")
    assert context.dim("kv_len") == 164
    assert op("mla_module", isl=1, step=5, op_name="mla_context").dim("kv_len") == 6


def test_a_model_gives_the_widths() -> None:
    found = op("mla_module", isl=8, model="moonshotai/Moonlight-16B-A3B", v_head_dim=64)
    assert (found.dim("hidden"), found.dim("q_lora_rank")) == (2048, 0)
    assert found.dim("v_head_dim") == 64


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
