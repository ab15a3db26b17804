"""Attention: three engines' prefill and decode, encoders, and batches of varied lengths.

Constants are fitted by lab/fit_attention.py and lab/fit_encoder_attention.py on the
rows that are not held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.scorecard.kernel_suite import KernelScore, LabelOf, Read, size_ranges, word
from lab.scorecard.rows import (
    Labels,
    Mask,
    MeasuredRows,
    Sizes,
    Words,
    checksum_one_in,
    held_out,
    newest,
    subsample,
)
from lab.scorecard.suite import Suite
from lab.scorecard.tables import (
    Ops,
    Table,
    campaign_variant,
    coded,
    mean_of_repeats,
    ops,
    read_records,
    read_table,
)
from lab.scorecard.training import Source
from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.learning.boosting import Settings
from silicast.workload.graphs.op import Op, OpBatch, Variant

LENGTHS = "pipeweave/kernel_attn_test_sample.parquet"


def geometry_held_out(heads: I64, kv_heads: I64, head_dim: I64) -> Mask:
    """One head geometry in four is never fitted."""
    return checksum_one_in(4, "{}/{}/{}", heads, kv_heads, head_dim)


def encoder_geometry_held_out(heads: I64, head_dim: I64) -> Mask:
    """13 of the 36 geometries of encoders, some of each of the three widths."""
    return checksum_one_in(4, "vision {} {}", heads, head_dim)


def _decoder(words: Words, s: Sizes) -> list[Ops]:
    """Causal attention; ``step`` counts the tokens that are cached before."""
    prefill = words["table"] == "context_attention"
    heads, width = s["num_heads"], s["head_dim"]
    kv_heads = np.where(s["num_key_value_heads"] > 0, s["num_key_value_heads"], heads)
    dims = {
        "batch": s["batch_size"],
        "q_len": s["isl"],
        "kv_len": s["step"] + s["isl"] if prefill else s["step"],
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": width,
        "window": s["window_size"],
    }
    formats = (recipe_for(words[name]).name for name in ("attn_dtype", "kv_cache_dtype"))
    return ops(
        "attention_prefill" if prefill else "attention_decode",
        campaign_variant(words, *formats, causal=True),
        dims,
        geometry_held_out(heads, kv_heads, width),
    )


def _encoder(words: Words, s: Sizes) -> list[Ops]:
    """Bidirectional attention of equal lengths, without a cache."""
    heads, width = s["num_heads"], s["head_dim"]
    dims = {
        "batch": s["batch_size"],
        "q_len": s["isl"],
        "kv_len": s["isl"],
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width,
        "window": 0,
    }
    variant = campaign_variant(words, "bf16", "bf16", causal=False)
    return ops("attention_prefill", variant, dims, encoder_geometry_held_out(heads, width))


_FORMATS = ("attn_dtype", "kv_cache_dtype")
_SIZES = (
    "batch_size",
    "isl",
    "step",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
)
PREFILL = Table("context_attention", _FORMATS, _SIZES, _decoder)
DECODE = Table("generation_attention", _FORMATS, _SIZES, _decoder)
ENCODER = Table(
    "encoder_attention", ("attn_dtype",), ("batch_size", "isl", "num_heads", "head_dim"), _encoder
)


def decoder_rows(data: Path, table: Table, per_device: int) -> Iterator[MeasuredRows]:
    """All campaigns of prefill or decode; repeats are averaged.

    Args:
        per_device: a deterministic subsample of about so many rows of each device is read.
    """

    def thinned(read: Any) -> I64:
        _, systems = coded(read["system"])
        kept_parts = []
        for system in np.unique(systems):
            rows = np.flatnonzero(systems == system)
            kept_parts.append(rows[subsample(len(rows), per_device)])
        return np.concatenate(kept_parts)

    return read_table(data, table, rows=thinned, repeats=mean_of_repeats)


def encoder_rows(data: Path, per_campaign: int | None = None) -> Iterator[MeasuredRows]:
    """All campaigns of encoders, at most so many rows of each; repeats are averaged."""

    def thinned(sizes: Sizes) -> I64:
        return subsample(len(sizes["isl"]), per_campaign)

    return read_table(data, ENCODER, choose=thinned, repeats=mean_of_repeats)


ROWS_PER_DEVICE = 70_000
"""Rows that corrections learn from, older releases among them; more of them change little."""
ROWS_PER_ENCODER = 4_000
"""The same of each campaign of encoders."""
SETTINGS = Settings(trees=400, depth=8, rate=0.2, rows=0.35, columns=0.5, prior=5.0, clip=3.0)
"""Engines pick among kernels by thresholds in several sizes at once: many deep trees with little
regularisation. On held-out geometries of Hopper's decode, without regions, 400 trees are 3.9 % off
where 160 with the usual shrinkage are 5.0 %."""


def _prefill_training(data: Path) -> Iterator[MeasuredRows]:
    yield from newest(decoder_rows(data, PREFILL, ROWS_PER_DEVICE))
    yield from newest(encoder_rows(data, ROWS_PER_ENCODER))


def _decode_training(data: Path) -> Iterable[MeasuredRows]:
    return newest(decoder_rows(data, DECODE, ROWS_PER_DEVICE))


_HEADS = "one head geometry in four, by hash, is held out"
SOURCES = (
    Source(
        "attention_prefill",
        (PREFILL.path, ENCODER.path),
        _HEADS,
        _prefill_training,
        replace(SETTINGS, trees=300),
    ),
    Source("attention_decode", (DECODE.path,), _HEADS, _decode_training, SETTINGS),
)


def roofline_s(rows: MeasuredRows, times: KernelTimes) -> F64:
    """Useful FLOPs at the datasheet's rate and compulsory bytes at its bandwidth, seconds."""
    device, dtype = rows.hardware, rows.batch.variant.dtype
    pipe = next(name for name in times.analysis.demand.pipe_work if name != "xu")
    clock = device.bound_per_s(pipe, dtype) / device.peak_per_s(pipe, dtype)
    moved = times.analysis.demand.level_bytes["l2"]
    return np.maximum(
        times.analysis.resource_s["tensor"] * clock, moved / device.dram.bandwidth_bytes_per_s
    )


def _engine(rows: MeasuredRows, _: KernelTimes) -> str:
    return "triton" if "triton" in rows.words["kernel_source"] else rows.words["backend"]


def _formats(rows: MeasuredRows, _: KernelTimes) -> str:
    return f"{rows.batch.variant.dtype}/{rows.batch.variant.kv_dtype}"


def _width(rows: MeasuredRows, _: KernelTimes) -> Labels:
    return np.array([f"head width {width}" for width in rows.batch.dims["head_dim"].tolist()])


def _newest_held_out(read: Callable[[Path, int | None], Iterable[MeasuredRows]]) -> Read:
    return lambda data, limit: {"latency_us": held_out(newest(read(data, limit)))}


def _decoders(table: Table) -> Read:
    return _newest_held_out(
        lambda data, limit: decoder_rows(data, table, 60_000 if limit is None else max(400, limit))
    )


def _varied_lengths(data: Path, _: int | None) -> dict[str, list[MeasuredRows]]:
    """PipeWeave's test rows, one part a row: each has its own heads and lengths."""
    rows = []
    for row in read_records(data / LENGTHS):
        decode = row["phase"] == "decode"
        q, kv = tuple(row["q_lengths"]), tuple(row["kv_lengths"])
        op = Op.make(
            "attention_decode" if decode else "attention_prefill",
            Variant("bf16", "bf16", "flashinfer", flags=(("causal", True),)),
            q_len=q,
            kv_len=tuple(k - 1 for k in kv) if decode else kv,
            num_heads=row["nh"],
            num_kv_heads=row["nkv"],
            head_dim=row["hd"],
            window=0,
        )
        rows.append(
            MeasuredRows(
                OpBatch.from_ops([op]),
                find_device(row["gpu"]).name,
                np.array([row["latency_us"] * 1e-6]),
                np.array([True]),
                {"phase": row["phase"], "kernel": row["attention_type"]},
                peers={"PipeWeave": np.array([row["pw_pred_us"] * 1e-6])},
            )
        )
    return {"latency_us": rows}


def _engines(phase: str, table: Table, lengths: LabelOf) -> Suite:
    """A phase of the three engines' attention layers, cache update included."""
    labels = {"engine": _engine, "formats": _formats, "regime": lengths}
    score = KernelScore(_decoders(table), roofline_s, labels)
    return Suite(f"attention-{phase}", (table.path,), score)


_NEW = ("<= 128 new tokens", "129 to 2048 new tokens", "> 2048 new tokens")
_CACHED = ("<= 256 cached tokens", "257 to 4096 cached tokens", "> 4096 cached tokens")
_TOKENS = ("<= 256 tokens", "257 to 2048", "> 2048 tokens")
_LENGTHS_SCORE = KernelScore(
    _varied_lengths, roofline_s, {"regime": word("phase"), "kernel": word("kernel")}
)
_ENCODER_SCORE = KernelScore(
    _newest_held_out(lambda data, _: encoder_rows(data)),
    roofline_s,
    {
        "engine": lambda rows, _: f"{rows.words['backend']} {rows.words['version']}",
        "width": _width,
        "regime": size_ranges("q_len", (256, 2048), _TOKENS),
    },
)
SUITES = (
    _engines("prefill", PREFILL, size_ranges("q_len", (128, 2048), _NEW)),
    _engines("decode", DECODE, size_ranges("kv_len", (256, 4096), _CACHED)),
    Suite("attention-lengths", (LENGTHS,), _LENGTHS_SCORE),
    Suite("encoder-attention", (ENCODER.path,), _ENCODER_SCORE),
)
