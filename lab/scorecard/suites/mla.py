"""Latent attention: kernels of three engines, whole blocks, and the products around the latent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, LabelOf, Read, Roofline, word
from lab.scorecard.rows import (
    Labels,
    Mask,
    MeasuredRows,
    Sizes,
    Words,
    checksum_one_in,
    held_out,
    newest,
)
from lab.scorecard.suite import Suite
from lab.scorecard.suites.gemm import PER_HEAD
from lab.scorecard.suites.gemm import roofline_s as product_roofline_s
from lab.scorecard.tables import Ops, Table, campaign_variant, mean_of_repeats, ops, read_table
from lab.scorecard.training import DEEP, Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.kernels.attention.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.implementation import KernelTimes

WIDTHS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
"""DeepSeek-V3's, those of every measured row."""
BLOCK = {"hidden": 7168, "q_lora_rank": 1536}


def heads_held_out(heads: I64, batch: I64) -> Mask:
    """One pair of heads and batch size in four is never fitted."""
    return checksum_one_in(4, "mla {}/{}", heads, batch)


def _dims(words: Words, s: Sizes, widths: Mapping[str, int]) -> dict[str, I64 | int]:
    """Of a generation row ``isl - 1 + step`` tokens are cached; of a context row ``step``."""
    decode, isl = "generation" in words["table"], s["isl"]
    return {
        "batch": s["batch_size"],
        "q_len": 1 if decode else isl,
        "kv_len": isl - 1 + s["step"] if decode else isl + s["step"],
        "num_heads": s["num_heads"],
        **widths,
    }


def _kernel(words: Words, s: Sizes) -> list[Ops]:
    formats = (recipe_for(words[name]).name for name in ("mla_dtype", "kv_cache_dtype"))
    family = "mla_decode" if "generation" in words["table"] else "mla_prefill"
    held = heads_held_out(s["num_heads"], s["batch_size"])
    variant = campaign_variant(words, *formats, causal=True)
    return ops(family, variant, _dims(words, s, WIDTHS), held)


def _block(words: Words, s: Sizes) -> list[Ops]:
    """A layer's attention with its projections."""
    dtype = recipe_for(words["mla_dtype"]).name
    flags = {f"gemm_{recipe_for(words['gemm_type'] or 'fp8_block').name}": True}
    if "generation" in words["table"]:
        flags["generation"] = True
    kv_dtype = recipe_for(words["kv_cache_dtype"]).name
    variant = campaign_variant(words, "bf16" if dtype == "fp8_block" else dtype, kv_dtype, **flags)
    held = heads_held_out(s["num_heads"], s["batch_size"])
    return ops("mla_module", variant, _dims(words, s, WIDTHS | BLOCK), held)


_FORMATS = ("mla_dtype", "kv_cache_dtype")
_SIZES = ("num_heads", "batch_size", "isl", "step")
PREFILL, DECODE = (
    Table(name, _FORMATS, _SIZES, _kernel) for name in ("context_mla", "generation_mla")
)
CONTEXT, GENERATION, WIDE_CONTEXT, WIDE_GENERATION = BLOCKS = tuple(
    Table(name, (*_FORMATS, "gemm_type"), _SIZES, _block)
    for name in (
        "mla_context_module",
        "mla_generation_module",
        "wideep_context_mla",
        "wideep_generation_mla",
    )
)


def mla_rows(data: Path, *tables: Table) -> Iterator[MeasuredRows]:
    """All campaigns of some tables; repeats are averaged, models of equal widths too."""
    for table in tables:
        yield from read_table(data, table, repeats=mean_of_repeats)


_PAIRS = "pairs of heads and batch"
SOURCES = (
    Source("mla_prefill", (PREFILL.path,), _PAIRS, lambda data: mla_rows(data, PREFILL), DEEP),
    Source("mla_decode", (DECODE.path,), _PAIRS, lambda data: mla_rows(data, DECODE), DEEP),
    Source(
        "mla_module",
        (CONTEXT.path, GENERATION.path),
        _PAIRS,
        lambda data: mla_rows(data, CONTEXT, GENERATION),
        DEEP,
    ),
)


def roofline_s(rows: MeasuredRows, times: KernelTimes) -> F64:
    """Useful FLOPs at the datasheet's rates and compulsory bytes at its bandwidth, seconds."""
    resource_s, device, dtype = times.analysis.resource_s, rows.hardware, rows.batch.variant.dtype
    pipe = device.matrix_pipe(dtype)
    clock = device.bound_per_s(pipe, dtype) / device.peak_per_s(pipe, dtype)
    inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    moved = resource_s["l2" if "l2" in resource_s else "chip"] * inner
    return np.maximum(resource_s["tensor"] * clock, moved / device.dram.bandwidth_bytes_per_s)


def _formats(rows: MeasuredRows, _: KernelTimes) -> str:
    variant = rows.batch.variant
    formats = f"{variant.dtype}/{variant.kv_dtype}" if variant.kv_dtype else variant.dtype
    linear = next((n for n, on in variant.flags if on and n.startswith("gemm_")), "")
    return f"{formats} {linear}".strip()


def _regime(_: MeasuredRows, times: KernelTimes) -> Labels:
    """By time: what waits for launches, what is short, what is long."""
    micros = times.estimate_s * 1e6
    return np.where(
        micros < 30.0, "below 30 us", np.where(micros < 300.0, "30 to 300 us", "above 300 us")
    )


LABELS: Mapping[str, LabelOf] = {"engine": word("backend"), "formats": _formats, "regime": _regime}


def _suite(name: str, tables: Mapping[str, Table], roofline: Roofline = roofline_s) -> Suite:
    """Held-out rows of the newest campaigns, by metric."""
    read: Read = lambda data, _: {  # noqa: E731
        metric: held_out(newest(mla_rows(data, table))) for metric, table in tables.items()
    }
    source = tuple(table.path for table in tables.values())
    return Suite(name, source, KernelScore(read, roofline, LABELS))


_BLOCKS = {
    "context_us": CONTEXT,
    "generation_us": GENERATION,
    "wide_context_us": WIDE_CONTEXT,
    "wide_generation_us": WIDE_GENERATION,
}
SUITES = (
    _suite("mla", {"prefill_us": PREFILL, "decode_us": DECODE}),
    _suite("mla-blocks", _BLOCKS),
    _suite("mla-products", {"product_us": PER_HEAD}, roofline=product_roofline_s),
)
