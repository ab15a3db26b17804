"""Kernel tables into ops: every op of the contract, and what contradicts itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.kernels.registry import families, implementation_for
from silicast.scenario.kernels.kernel_case import OPS, kernel_case
from silicast.scenario.kernels.tables.streams import KINDS

PREFILL = {"op": "attention_prefill", "num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "scenario.md"
DECODE = {**PREFILL, "op": "attention_decode"}
OF_MLA = ("mla_prefill", "mla_decode", "mla_module")
EITHER = {"conv2d": {"kernel": 16}, **{name: {"isl": 16} for name in OF_MLA}}
"""Sizes that an op needs in one of two ways."""


def message(table: dict[str, Any]) -> str:
    with pytest.raises(SilicastError) as caught:
        kernel_case(table)
    return str(caught.value)


def test_a_float_is_offered_as_a_whole_number_only_within_the_limits() -> None:
    gemm = {"op": "gemm", "n": 8, "k": 8}
    assert "(write 1024)" in message({**gemm, "m": 1024.0})
    assert "(1 to 2147483648)" in message({**gemm, "m": 1e12})
    assert "(1 to 2147483648)" in message({**gemm, "m": 1.5})


def test_every_op_has_a_kernel_model_and_a_row_on_the_reference_page() -> None:
    assert set(OPS) <= set(families())
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert set(OPS) <= documented, f"{PAGE.name} has no row of {sorted(set(OPS) - documented)}"


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_decodes_with_its_required_fields(op: str) -> None:
    sizes = dict.fromkeys(OPS[op].required, 16)
    case = kernel_case({"op": op, **sizes, **EITHER.get(op, {})})
    assert case.op.family == op
    assert dict(case.op.dims).items() >= sizes.items()


def test_kernel_models_and_the_op_table_agree_on_dimensions() -> None:
    modelled = [name for name in families() if name in OPS]
    assert modelled
    for name in modelled:
        model, spec = implementation_for(name, "simt"), OPS[name]
        assert model is not None
        known = {*spec.required, *spec.optional, *spec.flags}
        assert set(model.dims) <= known, name
        assert set(spec.required) <= set(model.dims), name
        assert model.ragged <= spec.lists, name


def test_every_elementwise_kind_is_one_the_kernel_model_knows() -> None:
    from silicast.kernels.movement import elementwise

    assert {kind for kind, _ in KINDS.values()} <= set(elementwise.KINDS)


def test_lists_of_lengths_become_ragged_dimensions() -> None:
    case = kernel_case({**PREFILL, "q_lens": [3, 5], "kv_lens": [10, 5]})
    assert case.op.dim("q_len") == (3, 5)
    assert case.op.dim("kv_len") == (10, 5)
    assert "batch" not in dict(case.op.dims)
    assert kernel_case({**PREFILL, "q_len": [3, 5], "kv_len": [10, 5]}) == case
    assert kernel_case({**PREFILL, "q_lens": [3, 5], "kv_lens": [10, 5], "batch": 2}) == case


def test_decode_has_one_new_token_and_may_start_from_nothing() -> None:
    case = kernel_case({**DECODE, "batch": 4, "kv_len": 0})
    assert case.op.dim("q_len") == 1
    assert case.op.dim("batch") == 4
    assert "expected 1 to 1" in message({**DECODE, "kv_len": 3, "q_len": 2})


def test_sizes_may_stand_in_a_table_of_their_own() -> None:
    flat = kernel_case({"op": "gemm", "m": 1, "n": 2, "k": 3})
    assert kernel_case({"op": "gemm", "dimensions": {"m": 1, "n": 2, "k": 3}}) == flat
    assert "twice" in message({"op": "gemm", "m": 1, "dimensions": {"m": 1, "n": 2, "k": 3}})
    assert "expected a table" in message({"op": "gemm", "dimensions": [1, 2, 3]})


def test_columns_of_the_tables_are_taken_as_they_are() -> None:
    case = kernel_case({"op": "mla_module", "batch_size": 4, "num_heads": 16, "isl": 100,
                        "step": 0, "tp_size": 8, "mla_dtype": "bfloat16", "gemm_type": "",
                        "kv_cache_dtype": "fp8_e4m3", "phase": "context"})  # fmt: skip
    assert case.op.variant.kv_dtype == "fp8"
    assert not case.words
    assert case.op.variant.dtype == "bf16"


def test_defaults() -> None:
    op = kernel_case({"op": "attention_prefill", "q_len": 4, "kv_len": 4, "num_heads": 8,
                      "head_dim": 64}).op  # fmt: skip
    assert op.variant.flag("causal")
    assert op.dim("num_kv_heads") == 8
    assert op.dim("batch") == 1
    assert op.dim("window") == 0
    assert op.variant.dtype == "bf16"


def test_residual_and_kinds_reach_the_kernel_models() -> None:
    norm = kernel_case({"op": "rmsnorm", "tokens": 4, "hidden": 64, "residual": True}).op
    assert norm.dim("residual") == 1
    add = kernel_case({"op": "elementwise", "kind": "add", "elements": 9}).op
    assert (add.dim("inputs"), add.variant.flag("add")) == (2, True)
    with_scalar = kernel_case({"op": "elementwise", "kind": "mulu", "elements": 9}).op
    assert (with_scalar.dim("inputs"), with_scalar.variant.flag("mul")) == (1, True)


def test_names_of_formats_are_made_canonical() -> None:
    table = {**DECODE, "kv_len": 5, "dtype": "bfloat16", "kv_dtype": "fp8_e4m3"}
    variant = kernel_case(table).op.variant
    assert (variant.dtype, variant.kv_dtype) == ("bf16", "fp8")


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("bfloat16", "bf16"), ("half", "fp16"), ("torch.float32", "fp32"), ("fp8_e4m3", "fp8"),
        ("fp8_static", "fp8_static"), ("fp8_block", "fp8_block"), ("int4_wo", "int4_wo"),
        ("int8_wo", "int8_wo"), ("sq", "sq"), ("nvfp4", "nvfp4"), ("fp4", "nvfp4"),
        ("w4a16_mxfp4", "w4a16_mxfp4"), ("w4a8_mxfp4_mxfp8", "w4a8_mxfp4_mxfp8"),
        ("fp8_fp4", "fp8_fp4"), ("fp8_w8a8_down", "fp8"), ("int4_w4a16", "int4_wo"),
        ("float8", "fp8"), ("bf16/fp16", "bf16"), ("FP8-CS", "fp8"), ("FP8-MX", "mxfp8"),
        ("FP8-CS (FP8-MX)", "fp8"), ("bf16/DEFAULT", "bf16"), ("bf16/PURE", "bf16"),
        ("fp8/DEFAULT", "fp8"), ("f8e4m3fnuzxf8e5m2fnuz->bf16", "fp8"), ("f32xf32->f32", "fp32"),
    ],
)  # fmt: skip
def test_names_of_formats_in_published_tables(published: str, ours: str) -> None:
    assert (
        kernel_case({"op": "gemm", "m": 1, "n": 1, "k": 1, "dtype": published}).op.variant.dtype
        == ours
    )


def test_protocol_fields_reach_the_variant() -> None:
    table = {"op": "gemm", "m": 1, "n": 2, "k": 3, "library": "CUTLASS", "library_version": "3",
             "variant": "f", "launch": "stream", "cache": "cold"}  # fmt: skip
    v = kernel_case(table).op.variant
    assert (v.library, v.version, v.kernel, v.launch, v.cache) == (
        "cutlass", "3", "f", "stream", "cold",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({**PREFILL, "q_lens": [1], "kv_lens": [1, 2]}, "different lengths"),
        ({**PREFILL, "q_lens": [], "kv_lens": []}, "expected 1 to 1000000 lengths"),
        ({**PREFILL, "q_lens": [1, 0], "kv_lens": [1, 2]}, "q_len[1]: expected 1 to"),
        ({**PREFILL, "q_lens": 3, "kv_lens": [1]}, "expected a list"),
        ({**PREFILL, "q_lens": [3], "q_len": 3, "kv_len": 3}, "both given"),
        ({**PREFILL, "q_len": 8, "kv_len": 4}, "less than q_len"),
        ({**PREFILL, "q_lens": [3, 8], "kv_lens": [3, 4]}, "sequence 1"),
        ({**PREFILL, "q_lens": [3], "kv_lens": [3], "batch": 2}, "lists have 1"),
        ({**PREFILL, "q_len": 4, "kv_len": 4, "num_kv_heads": 99}, "is less than"),
        ({**PREFILL, "q_len": 4, "kv_len": 4, "causal": "yes"}, "true or false"),
        ({**PREFILL, "q_len": 4, "kv_len": 4, "kv_layout": "pages"}, "did you mean paged"),
        ({**PREFILL, "q_len": 4, "kv_len": 4, "kv_dtype": "fp9"}, "kv_dtype"),
        ({"op": "moe", "tokens": 4, "experts": 8, "topk": 9, "hidden": 8, "intermediate": 8},
         "topk = 9 of 8 experts"),
        ({"op": "moe", "tokens": 4, "experts": 8, "topk": 2, "hidden": 8, "intermediate": 8,
          "ep": 3}, "ep = 3 does not divide 8"),
        ({"op": "moe", "tokens": 4, "experts": 2, "topk": 2, "hidden": 8, "intermediate": 8,
          "distribution": [1]}, "histogram of 1 for 2"),
        ({"op": "moe", "tokens": 4, "experts": 2, "topk": 2, "hidden": 8, "intermediate": 8,
          "distribution": "zipf"}, "unknown distribution"),
        ({"op": "silu_mul", "tokens": 4, "width": 7}, "odd"),
        ({"op": "elementwise", "elements": 4, "kind": "gelo"}, "did you mean gelu"),
        ({"op": ["gemm"]}, "unknown op"),
        ({}, "op: is missing"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(table: dict[str, Any], words: str) -> None:
    assert words in message(table)


@pytest.mark.parametrize("value", ["balanced", "power_law_1.01", "power_law_1.2", [1, 3.5]])
def test_expert_distributions(value: object) -> None:
    table = {"op": "moe", "tokens": 4, "experts": 2, "topk": 2, "hidden": 8, "intermediate": 8,
             "distribution": value}  # fmt: skip
    wanted = value if isinstance(value, str) else "histogram"
    flags = dict(kernel_case(table).op.variant.flags)
    assert any(name.startswith(wanted) for name in flags)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"library": "cublas"}, False),
        ({"library": "vllm"}, True),
        ({"library": "trtllm"}, True),
        ({"library": "vllm", "includes_quantize": False}, False),
    ],
)
def test_engines_quantise_activations_in_the_call_unless_said_otherwise(
    fields: dict[str, Any], expected: bool
) -> None:
    case = kernel_case({"op": "gemm", "m": 8, "n": 64, "k": 64, "dtype": "fp8", **fields})
    assert case.op.variant.flag("includes_quantize") is expected


def test_experts_carry_part_gate_and_distribution() -> None:
    sizes = {"op": "moe", "tokens": 64, "experts": 8, "topk": 2, "hidden": 64, "intermediate": 32}
    flags = dict(kernel_case(sizes).op.variant.flags)
    assert flags == {"balanced": True, "gated": True}
    case = kernel_case({**sizes, "part": "w2", "distribution": "power_law_1.2"})
    assert dict(case.op.variant.flags) == {"gated": True, "power_law_1.2": True, "w2": True}
    assert case.words == {}
    ungated = kernel_case({**sizes, "activation": "relu2"})
    assert ungated.op.variant.flag("gated") is False
    histogram = kernel_case({**sizes, "distribution": [4, 1, 1, 1, 1, 0, 0, 0]})
    assert any(name.startswith("histogram") for name, _ in histogram.op.variant.flags)


def test_the_usual_format_of_an_exchange_is_said_by_default() -> None:
    row = {"op": "dispatch", "tokens": 8, "experts": 8, "topk": 2, "hidden": 64, "ep": 2}
    assert kernel_case({**row, "dtype": "default"}).op == kernel_case({**row, "dtype": "bf16"}).op
    with pytest.raises(SilicastError, match="dtype"):
        kernel_case({"op": "gemm", "m": 1, "n": 1, "k": 1, "dtype": "default"})
    with pytest.raises(SilicastError, match="expected 2 to"):
        kernel_case({**row, "ep": 1})


def test_uneven_groups_of_heads_are_said() -> None:
    even = {**DECODE, "kv_len": 9}
    assert kernel_case(even).warnings == ()
    (remark,) = kernel_case({**even, "num_heads": 9}).warnings
    assert "num_heads = 9 is no multiple of num_kv_heads = 2" in remark
