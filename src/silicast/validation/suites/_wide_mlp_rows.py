"""Shared experts beside wide expert parallelism: gate and up, activation, down on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes, implementation_for
from silicast.validation.gemm_rows import AIC_DEVICES
from silicast.validation.suite import timed
from silicast.workload.op import OpBatch, Variant


class MlpRows(NamedTuple):
    """Rows of one device and phase: arrays of shape (rows,).

    Attributes:
        kernels: predicted times of gate and up, activation, down.
        roofline: sum of the three bounds, seconds.
    """

    device: str
    phase: str
    tokens: F64
    seconds: F64
    kernels: tuple[KernelTimes, ...]
    roofline: F64


def mlp_rows(data: Path) -> list[MlpRows]:
    """SGLang's tables of the shared expert of DeepSeek-V3; nothing was fitted on them."""
    import pyarrow.parquet as pq

    found = []
    for phase in ("context", "generation"):
        table = pq.read_table(data / f"aiconfigurator/wideep_{phase}_mlp.parquet").to_pylist()
        for system in sorted({row["system"] for row in table} & set(AIC_DEVICES)):
            rows = [row for row in table if row["system"] == system]
            kernels = _kernels(AIC_DEVICES[system], rows)
            found.append(
                MlpRows(
                    AIC_DEVICES[system],
                    phase,
                    np.array([float(row["num_token"]) for row in rows]),
                    np.array([row["latency_us"] * 1e-6 for row in rows]),
                    kernels,
                    kernels[0].bound_s + kernels[1].bound_s + kernels[2].bound_s,
                )
            )
    return found


def _kernels(device: str, rows: list[dict[str, object]]) -> tuple[KernelTimes, ...]:
    """The three kernels of all rows, one after another in a graph."""

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([row[name] for row in rows], dtype=np.int64)

    tokens, hidden, inner = (
        column(name) for name in ("num_token", "hidden_size", "intermediate_size")
    )
    product = Variant(
        dtype=recipe_for(str(rows[0]["quant_type"])).name, library="sglang",
        version=str(rows[0]["version"]), launch="graph", flags=(("includes_quantize", True),),
    )  # fmt: skip
    one = np.ones_like(tokens)
    batches = (
        OpBatch("gemm", product, {"m": tokens, "n": 2 * inner, "k": hidden, "batch": one}),
        OpBatch("silu_mul", Variant(launch="graph"), {"tokens": tokens, "width": 2 * inner}),
        OpBatch("gemm", product, {"m": tokens, "n": hidden, "k": inner, "batch": one}),
    )
    found = []
    for batch in batches:
        model = implementation_for(batch.family, "simt")
        assert model is not None
        found.append(timed(model, batch, find_device(device)))
    return tuple(found)
