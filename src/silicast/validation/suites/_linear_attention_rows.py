"""Measured kernels of recurrent mixers as arrays: which rows, and which of them are held out.

The suite scores what benchmarks/fit_linear_attention.py must not fit, so both read the rows here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.recurrent_mixer import kinds_of, phase_of
from silicast.kernels.recurrent_styles import style_of
from silicast.validation.gemm_rows import AIC_DEVICES, mixed
from silicast.workload.library_file import RecurrentStyle
from silicast.workload.op import OpBatch, Variant

_DELTA = {
    "num_k_heads": "num_k_heads", "num_v_heads": "num_v_heads", "head_k_dim": "head_k_dim",
    "head_v_dim": "head_v_dim", "d_conv": "d_conv",
}  # fmt: skip
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "gdn": _DELTA,
    "kda": _DELTA,
    "mamba2": {
        "nheads": "nheads", "head_dim": "head_dim", "d_state": "d_state", "n_groups": "n_groups",
        "chunk_size": "chunk_size", "d_conv": "d_conv",
    },
}  # fmt: skip
"""Family -> dimension -> column of its table, heads first."""

KEYS = ("system", "backend", "version", "kernel_source", "phase")


@final
@dataclass(frozen=True)
class Rows:
    """Rows of one device and variant.

    Attributes:
        family: "gdn", "kda" or "mamba2".
        device, variant: what ran them and how.
        dims: dimension -> int64 array of shape (n,).
        seconds: measured time of one call, the median where a shape was timed several times.
        noise: mean |log| of the repeats to their median; NaN where there is one.
        held_out: rows that no constant may be fitted on.
    """

    family: str
    device: str
    variant: Variant
    dims: Mapping[str, I64]
    seconds: F64
    noise: F64
    held_out: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, index: NDArray[np.bool_] | I64) -> Rows:
        """Some of the rows."""
        return replace(
            self,
            dims={name: values[index] for name, values in self.dims.items()},
            seconds=self.seconds[index],
            noise=self.noise[index],
            held_out=self.held_out[index],
        )

    @property
    def batch(self) -> OpBatch:
        """The rows as ops."""
        return OpBatch(self.family, self.variant, self.dims)

    @property
    def style(self) -> RecurrentStyle:
        """The style of kernel that the model takes them for."""
        (kind,) = kinds_of(self.variant)
        architecture = find_device(self.device).architecture
        return style_of(self.family, kind, phase_of(self.variant), self.variant, architecture)


def read_rows(data: Path, family: str, *, held_out: bool | None = None) -> list[Rows]:
    """All rows of one family's table.

    One in four pairs of a mixer's heads and a batch size is held out: never fitted, on any
    device, in any campaign, for any length.

    Args:
        data: the data folder.
        family: whose table.
        held_out: only rows that are (or are not) held out.
    """
    import pyarrow.parquet as pq

    columns = {"batch_size": "batch_size", "seq_len": "seq_len", **COLUMNS[family]}
    names = [*KEYS, *columns.values(), "latency_us"]
    table = pq.read_table(data / f"aiconfigurator/{family}.parquet", columns=names)
    words = [[str(value) for value in table[key].to_pylist()] for key in KEYS]
    labels = np.array(["|".join(row) for row in zip(*words, strict=True)])
    sizes = np.stack([table[name].to_numpy().astype(np.int64) for name in columns.values()])
    seconds = table["latency_us"].to_numpy().astype(np.float64) * 1e-6
    found = []
    for label in np.unique(labels).tolist():
        system, backend, version, kernel, phase = label.split("|")
        if system not in AIC_DEVICES:
            continue
        here = labels == label
        unique, medians, noise = _medians(sizes[:, here], seconds[here])
        heads = unique[2:4] if family != "mamba2" else unique[2:6]
        held = mixed(unique[0], *heads, seed=7) % np.uint64(4) == 0
        flags = ((phase, True),) if phase != "context" else ()
        variant = Variant(
            dtype="bf16", library=backend, version=version, kernel=kernel, flags=flags
        )
        dims = dict(zip(columns, unique, strict=True))
        rows = Rows(family, AIC_DEVICES[system], variant, dims, medians, noise, held)
        if held_out is not None:
            rows = rows.take(rows.held_out == held_out)
        if len(rows):
            found.append(rows)
    return found


def sample(rows: Rows, count: int) -> Rows:
    """A deterministic subsample of about so many rows, by hash of the sizes."""
    if len(rows) <= count:
        return rows
    key = mixed(*rows.dims.values(), seed=1)
    return rows.take(np.sort(np.argsort(key, kind="stable")[:count]))


def _medians(sizes: I64, seconds: F64) -> tuple[I64, F64, F64]:
    """Each shape once: models that share heads were timed apart."""
    unique, inverse = np.unique(sizes, axis=1, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    starts = np.searchsorted(inverse.reshape(-1)[order], np.arange(unique.shape[1]))
    parts: list[NDArray[Any]] = np.split(seconds[order], starts[1:])
    medians = np.array([float(np.median(part)) for part in parts])
    noise = np.array([
        float(np.mean(np.abs(part / middle - 1.0))) if len(part) > 1 else float("nan")
        for part, middle in zip(parts, medians, strict=True)
    ])  # fmt: skip
    return np.ascontiguousarray(unique), medians, noise
