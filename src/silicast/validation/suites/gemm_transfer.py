"""Matrix products of devices whose whole architecture was held out, and of models never seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.gemm import Gemm
from silicast.kernels.implementation import KernelTimes
from silicast.validation.gemm_rows import Rows, fp32_rows, roofline_s, sample, vidur_rows
from silicast.validation.held_out import unmeasured
from silicast.validation.suite import Scored, Suite, register_suite, timed
from silicast.workload.op import OpBatch

TICKS_S = 20e-6
"""Vidur's clock ticks in microseconds: products shorter than that are reported apart."""
ROWS_PER_DEVICE = 6000


@register_suite
@final
class GemmTransfer(Suite):
    """Two laboratories with old GPUs and old libraries."""

    name: ClassVar[str] = "gemm-transfer"
    title: ClassVar[str] = "Matrix products: devices held out, models never seen"
    split: ClassVar[str] = (
        "fp32 (NeuSight's test rows) and fp16_device (all of Vidur's rows): constants fitted on no "
        "row of the device's whole architecture, of any laboratory or format. fp16_shape: Vidur's "
        "devices as shipped, on the one in five (n, k) pairs that are never fitted. Vidur's "
        "products below 20 us are apart: its clock ticks in microseconds."
    )
    source: ClassVar[tuple[str, ...]] = (
        "neusight/kernels_nvidia.parquet",
        "serving/vidur_linear_ops.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "fp32_linear_us": {"mean_ape": 24.0},
        "fp32_bmm_us": {"mean_ape": 22.0},
        "fp16_device_us": {"median_ape": 11.0},
        "fp16_shape_us": {"median_ape": 6.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured shape and device."""
        plain = [part.take(part.held_out) for part in fp32_rows(data, ROWS_PER_DEVICE)]
        single = [part.take(part.batch == 1) for part in plain]
        batched = [part.take(part.batch > 1) for part in plain]
        other = vidur_rows(data, ROWS_PER_DEVICE)
        unseen = [part.take(part.held_out) for part in other]
        return [
            _scored("fp32_linear_us", single, limit, known=False),
            _scored("fp32_bmm_us", batched, limit, known=False),
            _scored("fp16_device_us", _long(other), limit, known=False),
            _scored("fp16_device_short_us", _short(other), limit, known=False),
            _scored("fp16_shape_us", _long(unseen), limit, known=True),
            _scored("fp16_shape_short_us", _short(unseen), limit, known=True),
        ]


def _long(parts: Sequence[Rows]) -> list[Rows]:
    return [part.take(part.seconds >= TICKS_S) for part in parts]


def _short(parts: Sequence[Rows]) -> list[Rows]:
    return [part.take(part.seconds < TICKS_S) for part in parts]


def _times(part: Rows, known: bool) -> KernelTimes:
    """On all that is shipped, or on what nobody learned from the architecture."""
    device, batch = find_device(part.device), OpBatch("gemm", part.variant, part.dims)
    if known:
        return timed(Gemm(), batch, device)
    with unmeasured(device.architecture):
        return timed(Gemm(), batch, device)


def _scored(metric: str, parts: Sequence[Rows], limit: int | None, *, known: bool) -> Scored:
    kept = [part for part in parts if len(part)]
    if limit is not None:
        kept = [sample(part, max(10, limit // len(kept))) for part in kept]
    found = [_times(part, known) for part in kept]
    rows = np.concatenate([part.m for part in kept])

    def us(columns: Sequence[F64]) -> F64:
        return 1e6 * np.concatenate(columns)

    return Scored(
        metric=metric,
        measured=us([part.seconds for part in kept]),
        estimate=us([one.estimate_s for one in found]),
        p05=us([one.p05_s for one in found]),
        p95=us([one.p95_s for one in found]),
        roofline=us([roofline_s(part) for part in kept]),
        groups={
            "device": np.concatenate([np.full(len(part), part.device) for part in kept]),
            "regime": np.where(rows <= 64, "m <= 64", np.where(rows <= 512, "m 65-512", "m > 512")),
        },
    )
