"""Sparse attention: its kernels, and the modules of DeepSeek-V3.2 and V4, GLM-5 and MiniMax-M3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import op_at
from silicast.kernels.composite import Composite
from silicast.kernels.implementation import Implementation, KernelTimes, implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, timed
from silicast.validation.suites._sparse_rows import (
    KERNEL_TABLES,
    MODULE_TABLES,
    Rows,
    table_rows,
)

ROWS_PER_GROUP = 40
"""Rows of each device, engine version, format and model."""


@register_suite
@final
class SparseModules(Suite):
    """Shapes that no constant was fitted on; one metric a module."""

    name: ClassVar[str] = "sparse_modules"
    title: ClassVar[str] = "Sparse attention: indexer, selection, attention, whole modules"
    split: ClassVar[str] = (
        "one in five shapes (batch, new tokens, past tokens) is never fitted, on any device or of "
        "any engine; only those are scored. Campaigns of selection with equal scores everywhere, "
        "TensorRT-LLM's block-sparse reference path off Blackwell, and its block-sparse prefills "
        "on B200, of which equal calls differ by a factor of two, are left out."
    )
    source: ClassVar[tuple[str, ...]] = tuple(
        f"aiconfigurator/{table}.parquet" for table in (*KERNEL_TABLES, *MODULE_TABLES)
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "kernels_us": {"mean_ape": 20.0, "bias_pct": 8.0},
        "dsa_us": {"mean_ape": 22.0, "bias_pct": 8.0},
        "csa_us": {"mean_ape": 15.0, "bias_pct": 8.0},
        "hca_us": {"mean_ape": 10.0, "bias_pct": 6.0},
        "msa_us": {"mean_ape": 30.0, "bias_pct": 15.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured call."""
        count = ROWS_PER_GROUP if limit is None else max(2, limit // 400)
        kernels = _read(data, KERNEL_TABLES, 4 * count)
        modules = _read(data, MODULE_TABLES, count)
        found = [_scored("kernels_us", kernels)]
        for family in ("dsa", "csa", "hca", "msa"):
            own = [part for part in modules if part.batch.family == f"{family}_module"]
            found.append(_scored(f"{family}_us", own))
        return found


def _read(data: Path, tables: Mapping[str, object], count: int) -> list[Rows]:
    lowered = {**KERNEL_TABLES, **MODULE_TABLES}
    return [
        part
        for table in tables
        for part in table_rows(data, table, lowered[table], count, held_out=True)
    ]


def _model(part: Rows) -> Implementation:
    model = implementation_for(part.batch.family, "simt")
    assert model is not None
    return model


def roofline_s(part: Rows, times: KernelTimes) -> F64:
    """The larger of two times: products at their peak rate, and compulsory bytes at the datasheet
    bandwidth, whatever the cache may hold.
    """
    model, device = _model(part), find_device(part.device)
    if isinstance(model, Composite):
        work = model.work(part.batch, None)
        read, written = work.read_bytes, work.written_bytes
        moved = (read + written).astype(np.float64)
    else:
        ops = [op_at(part.batch, row) for row in range(len(part))]
        moved = np.array([float(model.compulsory_bytes(op)) for op in ops])
    resource_s = times.analysis.resource_s
    products = resource_s.get("tensor", np.zeros(len(part)))
    return np.maximum(products, moved / device.dram.bandwidth_bytes_per_s)


def _regime(part: Rows) -> Labels:
    """Phase and size of the call."""
    tokens = part.sizes[0] * part.sizes[1]
    decode = part.batch.variant.flag("generation") or part.batch.variant.flag("decode")
    phase = "generation" if decode else "context"
    size = np.where(tokens <= 64, "<= 64 tokens", np.where(tokens <= 4096, "65-4096", "> 4096"))
    labels: Labels = np.array([f"{phase}, {one}" for one in size.tolist()])
    return labels


def _scored(metric: str, parts: Sequence[Rows]) -> Scored:
    times = [timed(_model(part), part.batch, find_device(part.device)) for part in parts]

    def label(names: Sequence[str]) -> Labels:
        return np.repeat(np.array(names), [len(part) for part in parts])

    def joined(columns: Sequence[F64]) -> F64:
        return 1e6 * np.concatenate(columns)

    rooflines = [roofline_s(part, found) for part, found in zip(parts, times, strict=True)]
    return Scored(
        metric=metric,
        measured=joined([part.seconds for part in parts]),
        estimate=joined([found.estimate_s for found in times]),
        p05=joined([found.p05_s for found in times]),
        p95=joined([found.p95_s for found in times]),
        roofline=joined(rooflines),
        groups={
            "device": label([part.device for part in parts]),
            "engine": label([part.labels["backend"] for part in parts]),
            "table": label([part.table for part in parts]),
            "format": label([part.labels["gemm_type"] for part in parts]),
            "regime": np.concatenate([_regime(part) for part in parts]),
        },
    )
