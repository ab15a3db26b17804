"""Measured bidirectional attention of encoders: three engines' kernels, no cache, equal lengths.

Head geometries (heads, width) are held out by hash: 13 of 36, some of each of the three widths.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.validation.suites._attention_rows import SYSTEMS
from silicast.workload.op import OpBatch, Variant

TABLE = "aiconfigurator/encoder_attention.parquet"
_LABELS = ("system", "backend", "version", "kernel_source")
_SIZES = ("batch_size", "isl", "num_heads", "head_dim")


@final
@dataclass(frozen=True)
class Campaign:
    """Rows of one device, engine and version.

    Attributes:
        backend, version, kernel: as the table names them.
        newest: no newer version of this engine was measured on the device.
        latency_us: shape (n,); repeats averaged.
        held: geometry is kept for scoring, shape (n,).
    """

    backend: str
    version: str
    kernel: str
    newest: bool
    device: Device
    batch: OpBatch
    latency_us: F64
    held: NDArray[np.bool_]


def encoder_campaigns(data: Path, per_campaign: int | None = None) -> Iterator[Campaign]:
    """All campaigns of the table, in a fixed order.

    Args:
        data: the data folder.
        per_campaign: if given, a deterministic subsample of at most so many rows each.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(data / TABLE, columns=[*_LABELS, *_SIZES, "latency_us"])
    labels = np.stack([np.array(table[name].to_pylist()) for name in _LABELS])
    sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in _SIZES])
    latency = table["latency_us"].to_numpy().astype(np.float64)
    keys = sorted(set(zip(*labels.tolist(), strict=True)))
    newest = {key[:2]: max(_number(k[2]) for k in keys if k[:2] == key[:2]) for key in keys}
    for key in keys:
        system, backend, version, _ = key
        if system not in SYSTEMS:
            continue
        rows = np.flatnonzero((labels == np.array(key)[:, None]).all(axis=0))
        if per_campaign is not None and len(rows) > per_campaign:
            rows = np.sort(np.random.default_rng(0).permutation(rows)[:per_campaign])
        distinct, inverse = np.unique(sizes[:, rows], axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        mean = np.bincount(inverse, weights=latency[rows]) / np.bincount(inverse)
        yield _campaign(key, distinct, mean, newest=_number(version) == newest[system, backend])


def held_out(heads: int, width: int) -> bool:
    """Whether a head geometry is kept for scoring; by hash, so that it never changes."""
    return zlib.crc32(f"vision {heads} {width}".encode()) % 4 == 0


def _campaign(
    key: tuple[str, ...], sizes: NDArray[np.int64], mean: F64, *, newest: bool
) -> Campaign:
    system, backend, version, kernel = key
    batch, length, heads, width = sizes
    dims = {
        "batch": batch, "q_len": length, "kv_len": length, "num_heads": heads,
        "num_kv_heads": heads, "head_dim": width, "window": np.zeros_like(batch),
    }  # fmt: skip
    flags = (("causal", False),)
    variant = Variant("bf16", "bf16", backend, version, kernel, "graph", "", flags)
    held = [held_out(h, w) for h, w in zip(heads.tolist(), width.tolist(), strict=True)]
    return Campaign(
        backend,
        version,
        kernel,
        newest,
        find_device(SYSTEMS[system]),
        OpBatch("attention_prefill", variant, dims),
        mean,
        np.array(held, dtype=bool),
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.replace("rc", ".").split(".") if part)
