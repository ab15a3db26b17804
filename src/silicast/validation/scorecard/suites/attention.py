"""Attention: three engines' prefill and decode, encoders, and batches of varied lengths.

Constants are fitted by benchmarks/fit_attention.py and benchmarks/fit_encoder_attention.py on the
rows that are not held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.learning.boosting import Settings
from silicast.validation.scorecard.kernel_suite import LabelOf, Read, kernel_score, ranges, word
from silicast.validation.scorecard.rows import (
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
from silicast.validation.scorecard.suite import Suite
from silicast.validation.scorecard.tables import (
    Ops,
    Table,
    campaign_variant,
    coded,
    mean_of_repeats,
    ops,
    read_records,
    read_table,
)
from silicast.validation.scorecard.training import Source
from silicast.workload.op import Op, OpBatch, Variant

LENGTHS = "pipeweave/kernel_attn_test_sample.parquet"
VIDUR = "serving/vidur_attention_available.parquet"
INFERSIM = "serving/infersim_bench_data.parquet"


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
        "batch": s["batch_size"], "q_len": s["isl"],
        "kv_len": s["step"] + s["isl"] if prefill else s["step"],
        "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width,
        "window": s["window_size"],
    }  # fmt: skip
    formats = (recipe_for(words[name]).name for name in ("attn_dtype", "kv_cache_dtype"))
    return ops(
        "attention_prefill" if prefill else "attention_decode",
        campaign_variant(words, *formats, causal=True), dims,
        geometry_held_out(heads, kv_heads, width),
    )  # fmt: skip


def _encoder(words: Words, s: Sizes) -> list[Ops]:
    """Bidirectional attention of equal lengths, without a cache."""
    heads, width = s["num_heads"], s["head_dim"]
    dims = {
        "batch": s["batch_size"], "q_len": s["isl"], "kv_len": s["isl"], "num_heads": heads,
        "num_kv_heads": heads, "head_dim": width, "window": 0,
    }  # fmt: skip
    variant = campaign_variant(words, "bf16", "bf16", causal=False)
    return ops("attention_prefill", variant, dims, encoder_geometry_held_out(heads, width))


_FORMATS = ("attn_dtype", "kv_cache_dtype")
_SIZES = (
    "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size",
)  # fmt: skip
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
        found = []
        for system in np.unique(systems):
            rows = np.flatnonzero(systems == system)
            found.append(rows[subsample(len(rows), per_device)])
        return np.concatenate(found)

    return read_table(data, table, rows=thinned, repeats=mean_of_repeats)


def encoder_rows(data: Path, per_campaign: int | None = None) -> Iterator[MeasuredRows]:
    """All campaigns of encoders, at most so many rows of each; repeats are averaged."""

    def thinned(sizes: Sizes) -> I64:
        return subsample(len(sizes["isl"]), per_campaign)

    return read_table(data, ENCODER, choose=thinned, repeats=mean_of_repeats)


def library_rows(data: Path, family: str) -> Iterator[MeasuredRows]:
    """Kernels of bare libraries, timed by Vidur (A100, A30) and InferSim (H20).

    One row in four is held out, by hash of its sizes. Of InferSim's geometries only 32/8/128 on
    the H20 was timed without launches (10 us for the smallest size, not 27). Repeats are averaged.
    """
    runs = [*_vidur(data, family == "attention_prefill")]
    if family == "attention_decode":
        runs += _infersim(data)
    for device, library, (heads, kv_heads, width), rows in runs:
        sizes = np.array([size for size, _ in rows], dtype=np.int64).T
        merged, seconds, _ = mean_of_repeats(
            dict(zip(("batch", "q_len", "kv_len"), sizes, strict=True)),
            np.array([micros for _, micros in rows]),
        )
        dims = {
            **merged, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width, "window": 0
        }  # fmt: skip
        held = checksum_one_in(4, "({}, {}, {})", *merged.values())
        variant = Variant("bf16", "bf16", library, launch="graph", flags=(("causal", True),))
        ((batch, _, _),) = ops(family, variant, dims, held)
        yield MeasuredRows(batch, device, seconds, held)


_Run = tuple[str, str, tuple[int, int, int], list[tuple[tuple[int, int, int], float]]]
"""Device, library, (heads, key-value heads, width), rows ((batch, q_len, kv_len), us)."""


def _vidur(data: Path, prefill: bool) -> Iterator[_Run]:
    """Llama-2-70B on two A100 (FlashAttention-2) and Qwen2-7B on an A30 (FlashInfer)."""
    table = read_records(data / VIDUR)
    column = f"time_stats.attn_{'prefill' if prefill else 'decode'}.median"
    for gpu, device, library in (("A100", "A100-SXM-80GB", "fa2"), ("A30", "A30", "flashinfer")):
        own = [x for x in table if x["gpu"] == gpu and x["is_prefill"] == prefill and x[column]]
        ranks = own[-1]["num_tensor_parallel_workers"]
        geometry = (own[-1]["n_q_head"] // ranks, own[-1]["n_kv_head"] // ranks, 128)
        rows = []
        for row in own:
            past, new = row["kv_cache_size"], row["prefill_chunk_size"]
            lengths = (new, past + new) if prefill else (1, past)
            rows.append(((row["batch_size"], *lengths), row[column] * 1e3))
        yield device, library, geometry, rows


def _infersim(data: Path) -> Iterator[_Run]:
    """FlashInfer decode on H20, BF16 caches."""
    runs: dict[str, list[tuple[tuple[int, int, int], float]]] = {}
    for row in read_records(data / INFERSIM, kv_dtype="bf16"):
        if row["path"].endswith("mha/decode/h20/32-8-128.csv") and row["latency_us"]:
            sizes = (int(row["batch_size"]), 1, int(row["kv_len"]) - 1)
            runs.setdefault(row["path"], []).append((sizes, row["latency_us"]))
    for path in sorted(runs):
        heads, kv_heads, width = (int(part) for part in Path(path).stem.split("-"))
        yield "H20", "flashinfer", (heads, kv_heads, width), runs[path]


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
    Source("attention_prefill", (PREFILL.path, ENCODER.path), _HEADS, _prefill_training,
           replace(SETTINGS, trees=300)),
    Source("attention_decode", (DECODE.path,), _HEADS, _decode_training, SETTINGS),
)  # fmt: skip


def roofline_s(rows: MeasuredRows, times: KernelTimes) -> F64:
    """Useful FLOPs at the datasheet's rate and compulsory bytes at its bandwidth, seconds."""
    device, dtype = rows.hardware, rows.batch.variant.dtype
    pipe = next(name for name in times.analysis.demand.pipe_work if name != "xu")
    clock = device.bound_per_s(pipe, dtype) / device.peak_per_s(pipe, dtype)
    moved = times.analysis.demand.level_bytes["l2"]
    return np.maximum(
        times.analysis.resource_s["tensor"] * clock,
        moved / device.dram.bandwidth_bytes_per_s,
    )


def _engine(rows: MeasuredRows, times: KernelTimes) -> str:
    del times
    return "triton" if "triton" in rows.words["kernel_source"] else rows.words["backend"]


def _formats(rows: MeasuredRows, times: KernelTimes) -> str:
    del times
    return f"{rows.batch.variant.dtype}/{rows.batch.variant.kv_dtype}"


def _lengths(dim: str, low: int, high: int, unit: str) -> LabelOf:
    """Short, middle and long rows."""
    names = (f"<= {low} {unit}", f"{low + 1} to {high} {unit}", f"> {high} {unit}")

    def label(rows: MeasuredRows, times: KernelTimes) -> Labels:
        del times
        return ranges(rows.batch.dims[dim], (low, high), names)

    return label


def _encoder_lengths(rows: MeasuredRows, times: KernelTimes) -> Labels:
    del times
    names = ("<= 256 tokens", "257 to 2048", "> 2048 tokens")
    return ranges(rows.batch.dims["q_len"], (256, 2048), names)


def _width(rows: MeasuredRows, times: KernelTimes) -> Labels:
    del times
    return np.array([f"head width {width}" for width in rows.batch.dims["head_dim"].tolist()])


def _newest_held_out(read: Callable[[Path, int | None], Iterable[MeasuredRows]]) -> Read:
    return lambda data, limit: {"latency_us": held_out(newest(read(data, limit)))}


def _decoders(table: Table) -> Read:
    return _newest_held_out(
        lambda data, limit: decoder_rows(data, table, 60_000 if limit is None else max(400, limit))
    )


def _varied_lengths(data: Path, limit: int | None) -> dict[str, list[MeasuredRows]]:
    """PipeWeave's test rows, one part a row: each has its own heads and lengths."""
    del limit
    found = []
    for row in read_records(data / LENGTHS):
        decode = row["phase"] == "decode"
        q, kv = tuple(row["q_lengths"]), tuple(row["kv_lengths"])
        op = Op.make(
            "attention_decode" if decode else "attention_prefill",
            Variant("bf16", "bf16", "flashinfer", flags=(("causal", True),)),
            q_len=q, kv_len=tuple(k - 1 for k in kv) if decode else kv,
            num_heads=row["nh"], num_kv_heads=row["nkv"], head_dim=row["hd"], window=0,
        )  # fmt: skip
        found.append(
            MeasuredRows(
                OpBatch.of([op]), find_device(row["gpu"]).name,
                np.array([row["latency_us"] * 1e-6]), np.array([True]),
                {"phase": row["phase"], "kernel": row["attention_type"]},
                peers={"PipeWeave": np.array([row["pw_pred_us"] * 1e-6])},
            )
        )  # fmt: skip
    return {"latency_us": found}


SPLIT = (
    "Newest version of each engine on each device. One head geometry (heads, key-value heads, "
    "head width) in four, by hash, is never fitted and scored here; the others give the "
    "constants (benchmarks/fit_attention.py)."
)
SUITES = (
    Suite(
        name="attention-prefill",
        title="Attention prefill of TensorRT-LLM, vLLM and SGLang (aiconfigurator)",
        split=SPLIT,
        source=(PREFILL.path,),
        thresholds={"latency_us": {"mean_ape": 16.0, "bias_pct": 6.0}},
        predict=kernel_score(
            _decoders(PREFILL), roofline_s,
            {"engine": _engine, "formats": _formats,
             "regime": _lengths("q_len", 128, 2048, "new tokens")},
        ),
    ),
    Suite(
        name="attention-decode",
        title="Attention decode of TensorRT-LLM, vLLM and SGLang (aiconfigurator)",
        split=SPLIT,
        source=(DECODE.path,),
        thresholds={"latency_us": {"mean_ape": 16.0, "bias_pct": 6.0}},
        predict=kernel_score(
            _decoders(DECODE), roofline_s,
            {"engine": _engine, "formats": _formats,
             "regime": _lengths("kv_len", 256, 4096, "cached tokens")},
        ),
    ),
    Suite(
        name="attention-lengths",
        title="FlashInfer attention over batches of varied lengths (PipeWeave)",
        split=(
            "PipeWeave's own test rows, for scoring only: nothing is fitted on them. FlashInfer on "
            "A100, A40 and H20 was not fitted on other rows of these devices either, but for decode "
            "on H20 (equal lengths, InferSim)."
        ),
        source=(LENGTHS,),
        thresholds={"latency_us": {"mean_ape": 24.0, "bias_pct": 10.0}},
        predict=kernel_score(
            _varied_lengths, roofline_s, {"regime": word("phase"), "kernel": word("kernel")}
        ),
    ),
    Suite(
        name="encoder-attention",
        title="Bidirectional attention of encoders (aiconfigurator)",
        split=(
            "Newest version of each engine on each device (earlier ones of some engines ran two to "
            "five times slower). 13 of 36 head geometries (heads, head width), by hash, are never "
            "fitted and scored here; the others give the constants "
            "(benchmarks/fit_encoder_attention.py)."
        ),
        source=(ENCODER.path,),
        thresholds={"latency_us": {"mean_ape": 16.0, "bias_pct": 8.0}},
        predict=kernel_score(
            _newest_held_out(lambda data, _: encoder_rows(data)), roofline_s,
            {"engine": lambda rows, _: f"{rows.words['backend']} {rows.words['version']}",
             "width": _width, "regime": _encoder_lengths},
        ),
    ),
)  # fmt: skip
