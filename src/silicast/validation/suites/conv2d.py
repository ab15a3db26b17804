"""Convolutions: DeepBench's layers on old GPUs of two vendors and a Xeon Phi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import op_at, take
from silicast.kernels.conv2d_model import pass_of
from silicast.kernels.implementation import implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._conv_rows import Rows, load_rows

MICRO = 1e6


@register_suite
@final
class Convolutions(Suite):
    """Layers that no constant was fitted on."""

    name: ClassVar[str] = "conv2d"
    title: ClassVar[str] = "Convolutions, forward and gradients (DeepBench)"
    split: ClassVar[str] = (
        "One layer in four (shape without the batch), by hash, is never fitted on any device, in "
        "any format or pass, and only those are scored; nothing is fitted on the Xeon Phi."
    )
    source: ClassVar[tuple[str, ...]] = ("kernels/deepbench.csv.gz",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 26.0, "bias_pct": 12.0}
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a layer, batch, device, format and pass."""
        parts = [_scored(rows) for rows in load_rows(data) if rows.held.any()]
        found = Scored(
            metric="latency_us",
            **{n: np.concatenate([p[n] for p in parts]) for n in COLUMNS},  # type: ignore[arg-type]
            groups={name: np.concatenate([p[name] for p in parts]) for name in GROUPS},
        )
        picked = subsample(len(found.measured), limit)
        return [
            Scored(
                metric=found.metric,
                **{name: getattr(found, name)[picked] for name in COLUMNS},
                groups={name: labels[picked] for name, labels in found.groups.items()},
            )
        ]


COLUMNS = ("measured", "estimate", "p05", "p95", "roofline")
GROUPS = ("device", "pass", "format", "regime")


def _scored(rows: Rows) -> dict[str, np.ndarray]:
    """Predictions and labels of the held-out rows of one device, format and pass."""
    held = np.flatnonzero(rows.held)
    batch, device = take(rows.batch, held), find_device(rows.device)
    model = implementation_for("conv2d", device.execution_model)
    assert model is not None
    times = timed(model, batch, device)
    dtype = batch.variant.dtype
    ops = [op_at(batch, row) for row in range(len(batch))]
    flops = np.array([float(model.flops(op)) for op in ops])
    moved = np.array([float(model.compulsory_bytes(op)) for op in ops])
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    roofline: F64 = np.maximum(flops / peak, moved / device.dram.bandwidth_bytes_per_s)
    count = len(held)
    return {
        "measured": rows.measured_us[held],
        "estimate": times.estimate_s * MICRO,
        "p05": times.p05_s * MICRO,
        "p95": times.p95_s * MICRO,
        "roofline": roofline * MICRO,
        "device": np.full(count, device.name),
        "pass": np.full(count, pass_of(batch.variant)),
        "format": np.full(count, dtype),
        "regime": _filters(rows, held),
    }


def _filters(rows: Rows, held: np.ndarray) -> Labels:
    """Kinds of filters: they decide which algorithms apply."""
    d = {name: values[held] for name, values in rows.batch.dims.items()}
    taps = d["kernel_h"] * d["kernel_w"]
    unit = (d["stride_h"] == 1) & (d["stride_w"] == 1)
    square = (d["kernel_h"] == d["kernel_w"]) & unit
    labels: Labels = np.where(
        taps == 1, "1x1", np.where(square & (taps == 9), "3x3, stride 1", "larger or strided")
    )
    return labels
