"""Attention: measured prefill and decode kernels of three engines, and varied-length batches."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.workload.op import OpBatch, Variant

SYSTEMS = {
    "a100_sxm": "A100-SXM-80GB",
    "h100_sxm": "H100-SXM-80GB",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200",
    "gb200": "GB200",
    "l40s": "L40S",
}
"""aiconfigurator system -> device; the Intel card of the tables has no kernel model."""

DTYPES = {"bfloat16": "bf16", "fp8": "fp8"}
HELD_OUT = 4
"""One head geometry in so many is never fitted on."""


def held_out(heads: int, kv_heads: int, head_dim: int) -> bool:
    """Whether a head geometry is kept for scoring; by hash, so that it never changes."""
    return zlib.crc32(f"{heads}/{kv_heads}/{head_dim}".encode()) % HELD_OUT == 0


@final
@dataclass(frozen=True)
class Campaign:
    """Rows of one table that one kernel model call can answer.

    Attributes:
        table: "context" or "generation".
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


_COLUMNS = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")


def read_campaigns(data: Path, table: str, per_device: int | None = None) -> Iterator[Campaign]:
    """All campaigns of an aiconfigurator attention table, in a fixed order.

    Args:
        data: the data folder.
        table: "context" or "generation".
        per_device: if given, a deterministic subsample of about so many rows a device.
    """
    import pyarrow.parquet as pq

    read = pq.read_table(data / "aiconfigurator" / f"{table}_attention.parquet")
    names = ("system", "backend", "version", "kernel_source", "attn_dtype", "kv_cache_dtype")
    labels = {n: _codes(read[n]) for n in names}
    numbers = {n: read[n].to_numpy().astype(np.int64) for n in (*_COLUMNS, "window_size")}
    latency = read["latency_us"].to_numpy().astype(np.float64)
    systems, system_code = labels["system"]
    newest = _newest(labels)
    for index, system in enumerate(systems):
        if system not in SYSTEMS:
            continue
        rows = np.flatnonzero(system_code == index)
        if per_device is not None and len(rows) > per_device:
            rows = np.sort(np.random.default_rng(0).permutation(rows)[:per_device])
        keys = np.stack([labels[n][1][rows] for n in names[1:]], axis=1)
        for key in np.unique(keys, axis=0):
            picked = rows[(keys == key).all(axis=1)]
            backend, version, kernel, dtype, kv = (
                labels[n][0][k] for n, k in zip(names[1:], key, strict=True)
            )
            yield _campaign(
                table,
                (system, backend, version, kernel),
                Variant(
                    DTYPES[dtype],
                    DTYPES[kv],
                    backend,
                    version,
                    kernel,
                    "graph",
                    "",
                    (("causal", True),),
                ),
                newest=(system, backend, version) in newest,
                columns={n: v[picked] for n, v in numbers.items()},
                latency=latency[picked],
            )


def _codes(column: Any) -> tuple[list[str], I64]:
    """Sorted distinct values of a text column and each row's index into them."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    order = np.argsort(np.array(values))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    return [values[i] for i in order], rank[encoded.indices.to_numpy()]


def _newest(labels: Mapping[str, tuple[list[str], I64]]) -> set[tuple[str, str, str]]:
    """The newest version of every backend on every system."""
    names = ("system", "backend", "version")
    codes = np.unique(np.stack([labels[n][1] for n in names], axis=1), axis=0)
    best: dict[tuple[str, str], str] = {}
    for row in codes:
        system, backend, version = (labels[n][0][k] for n, k in zip(names, row, strict=True))
        held = best.get((system, backend))
        if held is None or _version_key(version) > _version_key(held):
            best[system, backend] = version
    return {(system, backend, version) for (system, backend), version in best.items()}


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.replace("rc", ".").split(".") if part)


def _campaign(
    table: str,
    names: tuple[str, str, str, str],
    variant: Variant,
    *,
    newest: bool,
    columns: Mapping[str, I64],
    latency: F64,
) -> Campaign:
    """Averages repeats and turns columns into ops."""
    rows = np.stack([columns[n] for n in (*_COLUMNS, "window_size")], axis=1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    mean = np.bincount(inverse, weights=latency) / np.bincount(inverse)
    batch, isl, step, heads, kv_heads, width, window = distinct.T
    dims = {
        "batch": batch,
        "q_len": isl,
        "kv_len": step + isl if table == "context" else step,
        "num_heads": heads,
        "num_kv_heads": np.where(kv_heads > 0, kv_heads, heads),
        "head_dim": width,
        "window": window,
    }
    family = "attention_prefill" if table == "context" else "attention_decode"
    geometry = zip(heads, dims["num_kv_heads"], width, strict=True)
    return Campaign(
        table,
        *names,
        newest,
        find_device(SYSTEMS[names[0]]),
        OpBatch(family, variant, dims),
        mean,
        np.array([held_out(int(h), int(k), int(d)) for h, k, d in geometry], dtype=bool),
    )


def read_library_runs(data: Path, family: str) -> Iterator[Campaign]:
    """Kernels of bare libraries, timed by Vidur (A100, A30) and InferSim (H20).

    One row in four is held out, by hash of its sizes. Of InferSim's geometries only 32/8/128 on
    the H20 was timed without launches (10 us for the smallest size, not 27). Repeats are averaged.
    """
    runs = [*_vidur(data, family == "attention_prefill")]
    if family == "attention_decode":
        runs += _infersim(data)
    for device, library, geometry, rows in runs:
        repeats: dict[tuple[int, int, int], list[float]] = {}
        for sizes, latency in rows:
            repeats.setdefault(sizes, []).append(latency)
        sizes_of = sorted(repeats)
        batch, q, kv = np.array(sizes_of, dtype=np.int64).T
        heads, kv_heads, width = (np.full(len(batch), value) for value in geometry)
        dims = {
            "batch": batch, "q_len": q, "kv_len": kv, "num_heads": heads,
            "num_kv_heads": kv_heads, "head_dim": width, "window": np.zeros_like(batch),
        }  # fmt: skip
        variant = Variant("bf16", "bf16", library, "", "", "graph", "", (("causal", True),))
        yield Campaign(
            "library", device, library, "", "", True, find_device(device),
            OpBatch(family, variant, dims),
            np.array([float(np.mean(repeats[key])) for key in sizes_of]),
            np.array([zlib.crc32(repr(key).encode()) % HELD_OUT == 0 for key in sizes_of]),
        )  # fmt: skip


_Run = tuple[str, str, tuple[int, int, int], list[tuple[tuple[int, int, int], float]]]
"""Device, library, (heads, key-value heads, width), rows ((batch, q_len, kv_len), us)."""


def _vidur(data: Path, prefill: bool) -> Iterator[_Run]:
    """Llama-2-70B on two A100 (FlashAttention-2) and Qwen2-7B on an A30 (FlashInfer)."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / "serving" / "vidur_attention_available.parquet").to_pylist()
    column = f"time_stats.attn_{'prefill' if prefill else 'decode'}.median"
    for gpu, device, library in (
        ("A100", "A100-SXM-80GB", "fa2"),
        ("A30", "A30", "flashinfer"),
    ):
        rows: list[tuple[tuple[int, int, int], float]] = []
        geometry = (0, 0, 128)
        for row in table:
            if row["gpu"] != gpu or row["is_prefill"] != prefill or not row[column]:
                continue
            ranks = row["num_tensor_parallel_workers"]
            geometry = (row["n_q_head"] // ranks, row["n_kv_head"] // ranks, 128)
            past, new = row["kv_cache_size"], row["prefill_chunk_size"]
            sizes = (
                (row["batch_size"], new, past + new) if prefill else (row["batch_size"], 1, past)
            )
            rows.append((sizes, row[column] * 1e3))
        yield device, library, geometry, rows


def _infersim(data: Path) -> Iterator[_Run]:
    """FlashInfer decode on H20, BF16 caches."""
    import pyarrow.parquet as pq

    columns = ["path", "batch_size", "kv_len", "latency_us", "kv_dtype"]
    table = pq.read_table(data / "serving" / "infersim_bench_data.parquet", columns=columns)
    runs: dict[str, list[tuple[tuple[int, int, int], float]]] = {}
    for row in table.to_pylist():
        found = row["path"].endswith("mha/decode/h20/32-8-128.csv") and row["kv_dtype"] == "bf16"
        if found and row["latency_us"]:
            sizes = (int(row["batch_size"]), 1, int(row["kv_len"]) - 1)
            runs.setdefault(row["path"], []).append((sizes, row["latency_us"]))
    for path in sorted(runs):
        heads, kv_heads, width = (int(part) for part in Path(path).stem.split("-"))
        yield "H20", "flashinfer", (heads, kv_heads, width), runs[path]
