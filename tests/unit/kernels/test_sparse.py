"""Kernels of sparse attention and the modules made of them: known answers and physical laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.attention.sparse_attention import runs_dense
from silicast.kernels.attention.sparse_constants import sparse_constants
from silicast.kernels.check import check_kernel, default_variants
from silicast.kernels.composite import Composite
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

H200, B200 = find_device("H200"), find_device("B200")
RTX = find_device("RTX-PRO-6000-Server")
DECODE = (("decode", True),)
FAMILIES = ("indexer_logits", "topk", "sparse_attention", "mhc")
MODULES = ("dsa_module", "csa_module", "hca_module", "msa_module")


Sizes = dict[str, Any]


def microseconds(
    family: str, device: Any = H200, variant: Variant = Variant(), **dims: int
) -> float:
    model = implementation_for(family, "simt")
    assert model is not None
    batch = OpBatch.from_ops([Op.make(family, variant, **dims)])
    return float(model.times(batch, device).estimate_s[0]) * 1e6


def counts(family: str, variant: Variant = Variant(), **dims: Any) -> tuple[int, int]:
    model = implementation_for(family, "simt")
    assert model is not None
    op = Op.make(family, variant, **dims)
    return model.flops(op), model.compulsory_bytes(op)


def test_scores_of_the_indexer_by_hand() -> None:
    # 3 queries at the end of 5 tokens see 3 + 4 + 5 keys; 2 heads of 16
    flops, moved = counts(
        "indexer_logits", Variant(dtype="fp8"), q_len=3, kv_len=5, heads=2, head_dim=16
    )
    assert flops == 2 * 2 * 16 * 12
    assert moved == (3 * 2 + 5) * (16 + 4) + 12 * 4


def test_pooled_scores_write_one_of_a_block() -> None:
    variant = Variant(dtype="bf16")
    size: Sizes = {"q_len": 1, "kv_len": 1024, "heads": 4, "head_dim": 128}
    _, every = counts("indexer_logits", variant, **size)
    _, best = counts("indexer_logits", variant, pool=128, **size)
    assert every - best == 4 * (1024 - 8)


def test_selection_by_hand() -> None:
    # a decode over 9 cached tokens has 10 scores, of which 4 are kept
    assert counts("topk", Variant("fp32", flags=DECODE), kv_len=9, k=4) == (0, 4 * 10 + 4 * 4)


def test_attention_counts_what_is_selected_and_near() -> None:
    sizes: Sizes = {"num_heads": 2, "head_dim": 32, "value_dim": 16}
    flops, _ = counts("sparse_attention", q_len=2, kv_len=10, selected=4, **sizes)
    assert flops == 2 * 2 * (32 + 16) * (4 + 4)
    # tokens 9 and 10 see 2 entries of 4 tokens each, and the last 3 tokens
    flops, _ = counts(
        "sparse_attention", q_len=2, kv_len=10, selected=0, ratio=4, window=3, **sizes
    )
    assert flops == 2 * 2 * (32 + 16) * (2 + 2 + 3 + 3)


def test_the_length_of_the_cache_does_not_matter_once_enough_is_cached() -> None:
    size: Sizes = {
        "q_len": 512,
        "num_heads": 64,
        "head_dim": 576,
        "value_dim": 512,
        "selected": 2048,
    }
    short = microseconds("sparse_attention", kv_len=4096, **size)
    assert microseconds("sparse_attention", kv_len=131_072, **size) == pytest.approx(
        short, rel=0.05
    )


def test_a_block_takes_one_query_and_every_core_one_block() -> None:
    """FlashMLA on an H200: up to 132 queries with 64 heads take as long as one."""
    size: Sizes = {
        "kv_len": 65_536,
        "num_heads": 64,
        "head_dim": 576,
        "value_dim": 512,
        "selected": 2048,
    }
    one, full, twice = (microseconds("sparse_attention", q_len=n, **size) for n in (1, 132, 264))
    assert one == pytest.approx(full, rel=0.1)
    assert twice == pytest.approx(2 * full, rel=0.15)


def test_a_decode_shares_out_the_walk_that_a_prefill_does_not() -> None:
    size: Sizes = {
        "q_len": 1,
        "num_heads": 64,
        "head_dim": 512,
        "selected": 0,
        "ratio": 4,
        "window": 128,
    }
    prefill = microseconds("sparse_attention", kv_len=262_144, **size)
    decode = microseconds("sparse_attention", variant=Variant(flags=DECODE), kv_len=262_143, **size)
    assert decode < prefill / 3


def test_short_prefills_are_dense_where_a_library_has_that_path() -> None:
    dims = {name: np.array([value, value, value]) for name, value in {
        "q_len": 32, "num_heads": 64, "head_dim": 576, "value_dim": 512, "selected": 2048,
        "dense_width": 512,
    }.items()}  # fmt: skip
    dims["batch"], dims["kv_len"] = np.array([1, 64, 65]), np.array([2049, 2048, 2048])

    def dense(library: str, *flags: tuple[str, bool]) -> list[bool]:
        batch = OpBatch("sparse_attention", Variant(library=library, flags=flags), dims)
        tolist: list[bool] = runs_dense(batch, H200).tolist()
        return tolist

    # all that is seen must be selected, and all sequences must fit SGLang's buffer of 128 Ki tokens
    assert dense("sglang") == [False, True, False]
    assert dense("sglang", *DECODE) == [False] * 3
    assert dense("vllm") == [False] * 3
    assert dense("") == [False] * 3


def test_a_module_of_no_engine_holds_no_time_of_the_host() -> None:
    def us(library: str = "", launch: str = "") -> float:
        variant = Variant(library=library, launch=launch)
        sizes = {"batch_size": 1, "isl": 64, "step": 0, "num_heads": 16}
        return microseconds("dsa_module", H200, variant, **sizes)

    assert us() < 0.5 * us("sglang")
    assert us(launch="stream") >= us("sglang")


def test_one_block_walks_over_all_keys_alone() -> None:
    """Four queries of 32 heads are one block of a prefill: 512 queries take as long as one."""
    size: Sizes = {"kv_len": 131_072, "heads": 32, "head_dim": 128}
    one, many = (
        microseconds("indexer_logits", variant=Variant("fp8"), q_len=n, **size) for n in (1, 512)
    )
    assert many == pytest.approx(one, rel=0.15)


@pytest.mark.parametrize("family", [*FAMILIES, *MODULES])
@pytest.mark.parametrize("device", ["MI300X", "TPU v5p", "EPYC 9654", "RTX PRO 6000 S", "A100"])
def test_every_device_answers(family: str, device: str) -> None:
    result = find_device(device)
    model = implementation_for(family, result.execution_model)
    assert model is not None
    assert check_kernel(model, [result], draws=24, scalar_rows=2) >= 24


@pytest.mark.parametrize("family", MODULES)
@pytest.mark.parametrize("phase", [(), (("generation", True),)])
@pytest.mark.parametrize("linear", ["bf16", "fp8_block", "nvfp4"])
def test_modules_answer_in_every_format_and_phase(
    family: str, phase: tuple[tuple[str, bool], ...], linear: str
) -> None:
    flags = tuple(sorted((*phase, (f"gemm_{linear}", True))))
    variants = [
        Variant("bf16", kv_dtype=kv, library=library, flags=flags)
        for kv in ("bf16", "fp8")
        for library in ("sglang", "trtllm", "vllm", "")
    ]
    model = implementation_for(family, "simt")
    assert model is not None
    assert check_kernel(model, [H200, B200], draws=64, variants=variants, scalar_rows=2) >= 64


def test_a_layer_without_an_indexer_of_its_own_is_faster() -> None:
    size: Sizes = {"batch_size": 4, "isl": 1, "step": 65_536, "num_heads": 16}
    variant = Variant("bf16", library="sglang", flags=(("generation", True),))
    shared = Variant("bf16", library="sglang", flags=(("generation", True), ("skip_indexer", True)))
    assert microseconds("dsa_module", variant=shared, **size) < microseconds(
        "dsa_module", variant=variant, **size
    )


@pytest.mark.parametrize("family", MODULES)
def test_a_module_does_its_parts_work(family: str) -> None:
    model = implementation_for(family, "simt")
    assert isinstance(model, Composite)
    op = Op.make(family, batch_size=2, isl=64, step=5000, num_heads=16)
    parts = model.work(OpBatch.from_ops([op]), None).parts
    assert {part.batch.family for part in parts} >= {"gemm", "elementwise"}
    first = parts[0].batch.dims
    products = 2 * int(first["m"][0]) * int(first["n"][0]) * int(first["k"][0])
    assert model.flops(op) > products


def test_a_bound_needs_no_indexer_where_everything_is_selected() -> None:
    """Up to 2,048 tokens the products of the linear layers and of dense heads are all."""
    model = implementation_for("dsa_module", "simt")
    assert model is not None
    size: Sizes = {"batch_size": 16, "num_heads": 8, "step": 0}
    current, shared = (Variant("bf16", flags=f) for f in ((), (("skip_indexer", True),)))

    def bound(variant: Variant, isl: int) -> float:
        batch = OpBatch.from_ops([Op.make("dsa_module", variant, isl=isl, **size)])
        return float(model.times(batch, H200).bound_s[0])

    assert bound(current, 2048) == bound(shared, 2048)
    assert bound(current, 2049) > 1.1 * bound(shared, 2049)


@pytest.mark.parametrize("family", ["indexer_logits", "topk", "sparse_attention"])
@pytest.mark.parametrize("phase", [(), DECODE])
def test_no_kernel_of_a_library_is_over_at_once(
    family: str, phase: tuple[tuple[str, bool], ...]
) -> None:
    """Their constants come from modules, whose rows alone would allow launches of nothing."""
    model = implementation_for(family, "simt")
    assert model is not None
    usual = default_variants(model)[0]
    variants = [
        Variant(usual.dtype, kv_dtype=kv, library=library, launch="graph", flags=phase)
        for kv in ("bf16", "fp8")
        for library in ("sglang", "trtllm", "vllm")
    ]
    assert check_kernel(model, [H200, B200], draws=96, variants=variants, scalar_rows=1) >= 96


def test_hosts_that_launch_eagerly_set_a_floor() -> None:
    """SGLang's prefill of a few tokens takes as long as its launches, whatever the tokens."""
    variant = Variant("bf16", library="sglang", flags=(("gemm_fp8_block", True),))
    few, more = (
        microseconds("dsa_module", B200, variant, batch_size=1, isl=n, step=8192, num_heads=8)
        for n in (4, 256)
    )
    assert few == pytest.approx(more, rel=0.15)
    assert few > 500.0


def test_mixing_streams_moves_each_once() -> None:
    sizes = {"tokens": 10, "hidden": 64, "streams": 4}
    _, post = counts("mhc", Variant("bf16", flags=(("post", True),)), **sizes)
    assert post == 10 * 64 * 2 * (4 + 1 + 4)
    _, pre = counts("mhc", Variant("bf16", flags=(("pre", True),)), **sizes)
    assert pre == 10 * 64 * 2 * (4 + 1) + 10 * 24 * 4


ON_LANES = {"launch_s": 0.0, "lane_cycles": 576.0, "index_tokens": 4096.0, "tail": 1.0}


def seconds_with(family: str, changed: Mapping[str, float], variant: Variant, **dims: int) -> float:
    """Of one kernel on RTX PRO 6000, under some constants of its own."""
    model: Any = implementation_for(family, "simt")
    usual = sparse_constants(family, RTX.architecture)
    batch = OpBatch.from_ops([Op.make(family, variant, **dims)])
    return float(model.analyse_with(batch, RTX, {**usual, **changed}).time_s[0])


@pytest.mark.parametrize("kv_len", [1, 3000])
@pytest.mark.parametrize("heads", [8, 64])
def test_a_kernel_on_lanes_walks_over_every_slot_for_64_heads(kv_len: int, heads: int) -> None:
    c = {**ON_LANES, "head_pad": 64.0, "block_s": 0.0, "serial": 0.0}
    variant = Variant("bf16", "fp8", flags=DECODE)
    dims = {"batch": 47, "kv_len": kv_len, "num_heads": heads, "head_dim": 512, "ratio": 16}
    # 47 x 64 blocks are 16 rounds of 188 cores; 4,096 / 16 entries and a window of 128
    expected = 16 * (256 + 128) * 512.0 / RTX.clocks.boost_hz
    assert RTX.cores == 188
    result = seconds_with("sparse_attention", c, variant, selected=0, window=128, **dims)
    assert result == pytest.approx(expected)


def test_a_prefill_on_lanes_has_slots_for_its_longest_sequence_or_what_is_selected() -> None:
    c = {**ON_LANES, "head_pad": 64.0, "block_s": 0.0, "serial": 0.0}
    dims = {"q_len": 94, "kv_len": 1700, "num_heads": 8, "head_dim": 512, "ratio": 16}
    # 94 x 64 blocks are 32 rounds; 106 entries fill two tiles of 64
    entry_s = 32 * 512.0 / RTX.clocks.boost_hz
    every = seconds_with("sparse_attention", c, Variant("bf16"), selected=0, **dims)
    assert every == pytest.approx(128 * entry_s)
    some = seconds_with("sparse_attention", c, Variant("bf16"), selected=70, **dims)
    assert some == pytest.approx(70 * entry_s)


def test_eager_scores_move_every_key_that_the_index_has_room_for() -> None:
    c = {"eager": 1.0, "index_tokens": 4096.0, "launch_s": 0.0, "dram_efficiency": 0.5}
    variant = Variant("fp8", flags=DECODE)
    dims = {"batch": 3, "kv_len": 9, "heads": 64, "head_dim": 128, "ratio": 4}
    moved = 3 * 1024 * (13 * 128 + 24 * 64 + 8)
    rate = 0.5 * RTX.dram.bandwidth_bytes_per_s
    assert seconds_with("indexer_logits", c, variant, **dims) == pytest.approx(moved / rate)


def test_sglangs_compressed_attention_runs_on_lanes_where_flashmla_does_not_exist() -> None:
    variant = Variant("bf16", "fp8", "sglang", flags=(("generation", True),))
    dims = {"batch_size": 512, "step": 4096, "num_heads": 64}
    batch = OpBatch.from_ops([Op.make("hca_module", variant, **dims)])
    model = implementation_for("hca_module", "simt")
    assert isinstance(model, Composite)
    libraries = {
        device.name: {
            part.batch.variant.library
            for part in model.work(batch, device).parts
            if part.batch.family == "sparse_attention"
        }
        for device in (B200, RTX)
    }
    assert libraries == {B200.name: {"sglang"}, RTX.name: {"sglang_lanes"}}
    # 700 us a sequence, whatever it holds: 80 times as long as FlashMLA takes
    assert microseconds("hca_module", RTX, variant, **dims) > 20 * microseconds(
        "hca_module", B200, variant, **dims
    )
