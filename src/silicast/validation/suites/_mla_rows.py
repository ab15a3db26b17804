"""Rows of the latent-attention tables: kernels and whole modules, as ops."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.validation.gemm_rows import heads_held_out
from silicast.validation.suites._attention_rows import SYSTEMS, _codes
from silicast.workload.op import OpBatch, Variant

HELD_OUT = 4
"""One pair of heads and batch size in so many is never fitted on."""
DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
WIDTHS = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
"""DeepSeek-V3's, those of every measured row."""
BLOCK = {"hidden": 7168, "q_lora_rank": 1536}
BLOCK_TABLES = (
    "mla_context_module", "mla_generation_module", "wideep_context_mla", "wideep_generation_mla",
)  # fmt: skip


def held_out(heads: int, batch: int) -> bool:
    """Whether rows are kept for scoring; by hash, so that it never changes."""
    return zlib.crc32(f"mla {heads}/{batch}".encode()) % HELD_OUT == 0


@final
@dataclass(frozen=True)
class MlaCampaign:
    """Rows of one table that one kernel model call can answer.

    Attributes:
        table: file name without its ending.
        system, backend, version, kernel: as the table names them.
        newest: no newer version of this backend was measured on the system.
        batch: the ops. latency_us: measured, repeats averaged. held: row is kept for scoring.
    """

    table: str
    system: str
    backend: str
    version: str
    kernel: str
    newest: bool
    device: Device
    batch: OpBatch
    latency_us: F64
    held: NDArray[np.bool_]


def read_mla(data: Path, table: str) -> Iterator[MlaCampaign]:
    """All campaigns of ``context_mla`` or ``generation_mla``, in a fixed order.

    Of a generation row ``isl - 1 + step`` tokens are cached; of a context row ``step``.
    """
    decode = table == "generation_mla"
    formats = ("mla_dtype", "kv_cache_dtype")
    for names, rows in _read(data, table, formats, ("num_heads", "batch_size", "isl", "step")):
        heads, batch, isl, step = rows.keys
        dims = {
            "batch": batch,
            "q_len": np.ones_like(isl) if decode else isl,
            "kv_len": isl - 1 + step if decode else isl + step,
            "num_heads": heads,
            **{name: np.full_like(heads, size) for name, size in WIDTHS.items()},
        }
        dtype, kv = (DTYPES[rows.words[n]] for n in formats)
        variant = Variant(
            dtype, kv, rows.words["backend"], rows.words["version"], rows.words["kernel_source"],
            "graph", "", (("causal", True),),
        )  # fmt: skip
        family = "mla_decode" if decode else "mla_prefill"
        yield MlaCampaign(
            table, *names, newest=rows.newest, device=find_device(SYSTEMS[names[0]]),
            batch=OpBatch(family, variant, dims), latency_us=rows.latency_us,
            held=_held(heads, batch),
        )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    words: Mapping[str, str]
    newest: bool
    keys: Sequence[I64]
    latency_us: F64


def _held(heads: I64, batch: I64) -> NDArray[np.bool_]:
    pairs = zip(heads.tolist(), batch.tolist(), strict=True)
    return np.array([held_out(h, b) for h, b in pairs], dtype=bool)


def _read(
    data: Path, table: str, formats: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str, str], _Rows]]:
    """Rows of a table by campaign and formats; repeats of a key are averaged."""
    import pyarrow.parquet as pq

    names = ("system", "backend", "version", "kernel_source", *formats)
    read: Any = pq.read_table(
        data / "aiconfigurator" / f"{table}.parquet", columns=[*names, *columns, "latency_us"]
    )
    labels = {n: _codes(read[n]) for n in names}
    numbers = np.stack([read[n].to_numpy().astype(np.int64) for n in columns], axis=1)
    latency = read["latency_us"].to_numpy().astype(np.float64)
    newest = _newest_versions(labels)
    codes = np.stack([labels[n][1] for n in names], axis=1)
    for key in np.unique(codes, axis=0):
        words = {n: labels[n][0][k] for n, k in zip(names, key, strict=True)}
        if words["system"] not in SYSTEMS:
            continue
        picked = np.flatnonzero((codes == key).all(axis=1))
        distinct, inverse = np.unique(numbers[picked], axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        mean = np.bincount(inverse, weights=latency[picked]) / np.bincount(inverse)
        campaign = (words["system"], words["backend"], words["version"], words["kernel_source"])
        yield campaign, _Rows(words, campaign[:3] in newest, list(distinct.T), mean)


def _newest_versions(labels: Mapping[str, tuple[list[str], I64]]) -> set[tuple[str, str, str]]:
    """The newest version of every backend on every system; "post2" comes after its release."""
    names = ("system", "backend", "version")
    best: dict[tuple[str, str], str] = {}
    for row in np.unique(np.stack([labels[n][1] for n in names], axis=1), axis=0):
        system, backend, version = (labels[n][0][k] for n, k in zip(names, row, strict=True))
        held = best.get((system, backend))
        if held is None or _order(version) > _order(held):
            best[system, backend] = version
    return {(system, backend, version) for (system, backend), version in best.items()}


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def read_mla_modules(data: Path, table: str) -> Iterator[MlaCampaign]:
    """All campaigns of a table of whole blocks; rows of models with the same widths are repeats.

    Args:
        table: "mla_context_module", "mla_generation_module", "wideep_context_mla" or
            "wideep_generation_mla".
    """
    decode = "generation" in table
    formats = ("mla_dtype", "kv_cache_dtype", "gemm_type")
    for names, rows in _read(data, table, formats, ("num_heads", "batch_size", "isl", "step")):
        heads, batch, isl, step = rows.keys
        dims = {
            "batch": batch,
            "q_len": np.ones_like(isl) if decode else isl,
            "kv_len": isl - 1 + step if decode else isl + step,
            "num_heads": heads,
            **{name: np.full_like(heads, size) for name, size in (WIDTHS | BLOCK).items()},
        }
        linear = DTYPES[rows.words["gemm_type"] or "fp8_block"]
        attention = DTYPES[rows.words["mla_dtype"]]
        flags = [(f"gemm_{linear}", True), *((("generation", True),) if decode else ())]
        variant = Variant(
            "bf16" if attention == "fp8_block" else attention,
            DTYPES[rows.words["kv_cache_dtype"]], rows.words["backend"], rows.words["version"],
            rows.words["kernel_source"], "graph", "", tuple(sorted(flags)),
        )  # fmt: skip
        yield MlaCampaign(
            table, *names, newest=rows.newest, device=find_device(SYSTEMS[names[0]]),
            batch=OpBatch("mla_module", variant, dims), latency_us=rows.latency_us,
            held=_held(heads, batch),
        )  # fmt: skip


def read_mla_products(data: Path, table: str) -> Iterator[MlaCampaign]:
    """All campaigns of ``mla_bmm``: queries to the latent (pre) and results back (post).

    fp8 calls quantise their activations; the rows held out are those of ``gemm_rows.bmm_rows``.
    """
    for names, rows in _read(data, table, ("bmm_dtype", "op_name"), ("num_heads", "num_tokens")):
        heads, tokens = rows.keys
        n, k = (512, 128) if rows.words["op_name"] == "mla_gen_pre" else (128, 512)
        dims = {
            "batch": heads,
            "m": tokens,
            "n": np.full_like(heads, n),
            "k": np.full_like(heads, k),
        }
        kernel = rows.words["kernel_source"]
        variant = Variant(
            dtype=DTYPES[rows.words["bmm_dtype"]], library=rows.words["backend"],
            version=rows.words["version"], kernel="bmm" if kernel == "default" else kernel,
            flags=(("includes_quantize", True),),
        )  # fmt: skip
        yield MlaCampaign(
            table, *names, newest=rows.newest, device=find_device(SYSTEMS[names[0]]),
            batch=OpBatch("gemm", variant, dims), latency_us=rows.latency_us,
            held=heads_held_out(heads, dims["n"]),
        )  # fmt: skip
