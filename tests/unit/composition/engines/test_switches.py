"""Switches of engines: kernels that they choose, releases, boards and formats that they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from silicast.composition.engines.engine import Engine, find_engine
from silicast.composition.engines.engine_lowering import engine_op
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.engines.switches import check_kernels, choose, is_switch, quantised
from silicast.composition.step.machine import Machine
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision


def chosen(name: str, **switches: Any) -> Engine:
    return choose(find_engine(name), switches).engine


def moe_op(engine: Engine, board: str, recipe: str) -> Variant:
    machine = Machine(find_device(board), engine)
    return engine_op(Op("moe", (), Variant(recipe)), machine).variant


@pytest.mark.parametrize(
    ("engine", "switches", "board", "recipe", "library", "runs"),
    [
        ("vllm", {}, "H200", "w4a16_mxfp4", "vllm", "w4a16_mxfp4"),
        ("vllm", {"moe_backend": "marlin"}, "H200", "w4a16_mxfp4", "marlin", "w4a16_mxfp4"),
        ("vllm", {"VLLM_MXFP4_USE_MARLIN": "1"}, "H200", "w4a16_mxfp4", "marlin", "w4a16_mxfp4"),
        ("vllm", {"VLLM_MXFP4_USE_MARLIN": False}, "H200", "w4a16_mxfp4", "vllm", "w4a16_mxfp4"),
        ("vllm", {}, "B200", "w4a16_mxfp4", "vllm", "w4a8_mxfp4_mxfp8"),
        ("vllm", {"moe_backend": "marlin"}, "B200", "w4a16_mxfp4", "marlin", "w4a16_mxfp4"),
        ("vllm", {"moe_backend": "marlin"}, "H100", "fp8_block", "marlin", "fp8_wo"),
        ("vllm", {"VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": 1}, "H100", "w4a16_mxfp4", "flashinfer",
         "w4a16_mxfp4"),
        ("vllm", {"moe_backend": "flashinfer_cutlass"}, "B200", "w4a16_mxfp4", "flashinfer",
         "w4a8_mxfp4_mxfp8"),
        ("vllm", {"moe_backend": "flashinfer_cutlass"}, "B200", "nvfp4", "flashinfer", "nvfp4"),
        ("sglang", {"moe_backend": "deep_gemm"}, "H100", "fp8_block", "deepgemm", "fp8_block"),
        ("sglang", {"moe_runner_backend": "marlin"}, "A100", "int4_wo", "marlin", "int4_wo"),
    ],
)  # fmt: skip
def test_a_switch_chooses_library_and_format_of_the_experts(
    engine: str, switches: dict[str, Any], board: str, recipe: str, library: str, runs: str
) -> None:
    variant = moe_op(chosen(engine, **switches), board, recipe)
    assert (variant.library, variant.dtype) == (library, runs)


def test_attention_back_ends_by_board() -> None:
    kernels = chosen("vllm", attention_backend="FLASH_ATTN").kernels
    assert kernels.library("attention_decode", "hopper") == "fa3"
    assert kernels.library("attention_decode", "ada") == "fa2"
    assert kernels.library("mla_decode", "hopper") == "vllm"  # another family stays
    kernels = chosen("sglang", attention_backend="triton").kernels
    assert kernels.library("attention_prefill", "hopper") == "triton"


@pytest.mark.parametrize(
    ("switches", "board", "library"),
    [
        ({"VLLM_FLASH_ATTN_VERSION": 2}, "hopper", "fa2"),
        ({"VLLM_FLASH_ATTN_VERSION": "3"}, "hopper", "fa3"),
        ({"VLLM_USE_TRTLLM_ATTENTION": 0}, "blackwell", "flashinfer"),
        ({"VLLM_USE_TRTLLM_ATTENTION": 1}, "blackwell", "trtllm"),
        ({"VLLM_ROCM_USE_AITER": 1}, "cdna3", "aiter"),
    ],
)
def test_variables_that_choose_attention(
    switches: dict[str, Any], board: str, library: str
) -> None:
    kernels = choose(find_engine("vllm"), switches, "0.12.0").engine.kernels
    assert kernels.library("attention_decode", board) == library


def test_a_variable_for_other_boards_changes_nothing() -> None:
    for switches in ({"VLLM_ROCM_USE_AITER": 1}, {"VLLM_USE_TRTLLM_ATTENTION": 0}):
        engine, remarks = checked("Mixtral-8x7B", "H100", "bf16", **switches)
        assert engine.kernels == find_engine("vllm").kernels
        assert "changes nothing here" in remarks[0]


def test_options_of_ours_that_mean_the_same() -> None:
    assert choose(find_engine("vllm"), {"enforce_eager": True}).options == {"cuda_graph": "off"}
    assert choose(find_engine("vllm"), {"enforce_eager": False}).options == {}
    sglang = choose(find_engine("sglang"), {"disable_overlap_schedule": True})
    assert sglang.options == {"async_scheduling": False}
    for switch, value, options in (
        ("disable_custom_all_reduce", True, {"custom_all_reduce": False}),
        ("VLLM_DISABLE_SHARED_EXPERTS_STREAM", 1, {"overlap": False}),
        ("VLLM_USE_FUSED_MOE_GROUPED_TOPK", 0, {"fused_routing": False}),
        ("VLLM_USE_FUSED_MOE_GROUPED_TOPK", 1, {}),
    ):
        assert choose(find_engine("vllm"), {switch: value}, "0.19").options == options
    assert not is_switch(find_engine("vllm"), "max_num_seqs")


@pytest.mark.parametrize(
    ("engine", "switches", "version", "words"),
    [
        ("vllm", {"moe_backend": "triton", "VLLM_MXFP4_USE_MARLIN": 1}, "0.19",
         ["moe_backend", "VLLM_MXFP4_USE_MARLIN"]),
        ("vllm", {"attention_backend": "FLASHINFER", "VLLM_ATTENTION_BACKEND": "FLASH_ATTN"}, "",
         ["attention_backend", "VLLM_ATTENTION_BACKEND"]),
        ("vllm", {"moe_backend": "marlin"}, "0.11.0", ["0.11.0", "0.17"]),
        ("vllm", {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "0.19.0", ["0.19.0", "0.15"]),
        ("vllm", {"VLLM_MXFP4_USE_MARLIN": 1}, "0.9.2", ["0.9.2", "0.10.1", "0.24"]),
        ("vllm", {"moe_backend": "marln"}, "", ["marln", "marlin"]),
        ("vllm", {"moe_backend": "humming"}, "", ["humming", "not modelled", "triton"]),
        ("vllm", {"kv_cache_dtype": "fp8"}, "", ["precision.kv_cache"]),
        ("vllm", {"cudagraph_mode": "FULL"}, "", ["FULL", "PIECEWISE"]),
        ("vllm", {"cudagraph_mode": "NONE"}, "0.9.2", ["0.9.2", "0.10.1"]),
        ("sglang", {"tp_size": 4}, "", ["parallel.tp"]),
        ("trtllm", {"cuda_graph_config.enable_padding": False}, "", ["batch_sizes"]),
        ("vllm", {"VLLM_USE_V1": 0}, "0.9.2", ["vllm-v0"]),
        ("vllm", {"VLLM_USE_V1": 0}, "0.12.0", ["0.12.0", "0.8"]),
        ("vllm", {"VLLM_FLASH_ATTN_VERSION": 2}, "0.19", ["0.19", "0.15"]),
        ("vllm", {"VLLM_FLASH_ATTN_VERSION": 2, "VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "0.11",
         ["VLLM_FLASH_ATTN_VERSION", "VLLM_ATTENTION_BACKEND"]),
        ("vllm", {"kv_connector": "MultiConnector"}, "", ["pools", "kv_offloading_size"]),
        ("vllm", {"kv_connector": "OffloadingConnector"}, "", ["kv_offloading_size"]),
        ("sglang", {"moe_runner_backend": "triton"}, "0.4.7", ["0.4.7", "0.5.3"]),
    ],
)  # fmt: skip
def test_what_contradicts_or_does_not_exist_is_refused_by_name(
    engine: str, switches: dict[str, Any], version: str, words: list[str]
) -> None:
    with pytest.raises(SilicastError) as caught:
        choose(find_engine(engine), switches, version)
    for word in words:
        assert word in str(caught.value)


def test_the_same_choice_twice_is_no_contradiction() -> None:
    both = {"moe_backend": "marlin", "VLLM_MXFP4_USE_MARLIN": "1"}
    assert moe_op(chosen("vllm", **both), "H200", "w4a16_mxfp4").library == "marlin"


def test_earlier_files_know_the_switches_of_their_engine() -> None:
    old = as_of(find_engine("vllm"), "0.6.3")
    engine = choose(old, {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}, "0.6.3").engine
    assert engine.kernels.library("attention_decode", "hopper") == "flashinfer"


def checked(model: str, board: str, recipe: str, **switches: Any) -> tuple[Engine, list[str]]:
    formats = Precision.from_formats(recipe=recipe)
    return check_kernels(
        chosen("vllm", **switches), switches, find_device(board), find_model(model), formats
    )


@pytest.mark.parametrize(
    ("board", "recipe", "switches", "words"),
    [
        ("H200", "nvfp4", {"moe_backend": "flashinfer_trtllm"}, ["H200", "blackwell"]),
        ("A100", "fp8_block", {"moe_backend": "deep_gemm"}, ["A100", "hopper"]),
        ("H100", "bf16", {"moe_backend": "deep_gemm"}, ["bf16", "fp8_block"]),
        ("H100", "bf16", {"moe_backend": "aiter"}, ["H100", "AMD"]),
        ("H100", "bf16", {"attention_backend": "FLASHINFER_MLA"}, ["H100", "blackwell"]),
    ],
)
def test_what_a_board_or_a_format_cannot_run_is_refused(
    board: str, recipe: str, switches: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(SilicastError) as caught:
        checked("Mixtral-8x7B", board, recipe, **switches)
    assert caught.value.kind == "unsupported"
    for word in words:
        assert word in str(caught.value)


def test_a_variable_that_cannot_act_changes_nothing_and_is_said() -> None:
    engine, remarks = checked("Mixtral-8x7B", "A100", "fp8_block", VLLM_USE_DEEP_GEMM="1")
    assert moe_op(engine, "A100", "fp8_block").library == "vllm"
    assert "VLLM_USE_DEEP_GEMM" in remarks[0]
    _, remarks = checked("Llama-3.1-8B", "H100", "bf16", moe_backend="triton")
    assert "has no experts" in remarks[0]


def test_weights_that_a_switch_asks_for() -> None:
    vllm, bf16 = find_engine("vllm"), Precision.from_formats(recipe="bf16")
    assert quantised(vllm, {"quantization": "fp8"}, bf16).recipe == "fp8"
    block = Precision.from_formats(recipe="fp8_block")
    assert quantised(vllm, {"quantization": "fp8"}, block) == block
    for formats, value, recipe in ((bf16, "awq", ""), (block, "awq", ""), (bf16, "fp8", "int4_wo")):
        with pytest.raises(SilicastError):
            quantised(vllm, {"quantization": value}, formats, recipe)
    mixed = replace(bf16, experts="w4a16_mxfp4")
    assert quantised(vllm, {"quantization": "mxfp4"}, mixed) == mixed


def test_graphs_of_decode_steps_alone_leave_prefills_eager() -> None:
    engine = find_engine("vllm")
    chosen = choose(engine, {"cudagraph_mode": "FULL_DECODE_ONLY"}, "0.11")
    assert chosen.options == {"cuda_graph": "decode"}
    launch = with_options(engine, chosen.options).launch
    assert (launch.decode, launch.prefill) == ("graph", "stream")


def test_connectors_that_move_caches_are_remarked_and_choose_nothing() -> None:
    engine = find_engine("vllm")
    chosen = choose(engine, {"kv_connector": "NixlConnector"})
    assert chosen.engine == engine
    assert not chosen.options
    assert "pools with roles" in chosen.remarks[0]
    beside = {"kv_connector": "LMCacheConnectorV1", "kv_offloading_size": 40}
    assert "host's memory" in choose(engine, beside).remarks[0]


def test_unpriced_switches_of_a_server_widen_its_steps() -> None:
    engine = find_engine("vllm")
    one, four = (
        with_options(engine, {"unpriced": ["x"] * n}).release_log_sd("ada") for n in (1, 4)
    )
    assert engine.release_log_sd("ada") < one
    assert four == pytest.approx(2.0 * one)
