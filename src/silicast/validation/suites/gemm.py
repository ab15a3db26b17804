"""Dense matrix products: repeated campaigns, narrow formats of three backends, fp32 on FMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.hardware.catalog import find_device
from silicast.kernels.gemm import Gemm
from silicast.validation.gemm_rows import (
    CAMPAIGNS,
    Rows,
    bf16_rows,
    bmm_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    roofline_s,
    sample,
    vidur_rows,
)
from silicast.validation.suite import Scored, Suite, register_suite, timed
from silicast.workload.op import OpBatch

ROWS_PER_TABLE = 12_000
"""Rows read of each device and campaign, before those that were fitted are left out."""


@register_suite
@final
class DenseGemm(Suite):
    """Only rows that no constant was fitted on; one metric a format or laboratory."""

    name: ClassVar[str] = "gemm"
    title: ClassVar[str] = "Dense matrix products"
    split: ClassVar[str] = (
        "bf16, fp16 and narrow formats: the one in five (n, k) pairs that are never fitted on any "
        "device; "
        "latent attention's batched products: one in five pairs of heads and direction; "
        "PipeWeave fp8 and NeuSight fp32: the sources' own test splits. Of fp16 only the A40 was "
        "fitted: its other devices are another laboratory's view of constants fitted elsewhere. "
        "Left out: vLLM's fp8_block rows, whose times hold 60 to 350 us of the host."
    )
    source: ClassVar[tuple[str, ...]] = (
        "kernels/aic_gemm_bf16_repeats.parquet",
        "aiconfigurator/gemm.parquet",
        "aiconfigurator/mla_bmm.parquet",
        "pipeweave/kernel_gemm_fp8.parquet",
        "neusight/kernels_nvidia.parquet",
        "serving/vidur_linear_ops.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "bf16_us": {"mean_ape": 5.0, "bias_pct": 4.0},
        "fp16_us": {"mean_ape": 10.0, "bias_pct": 7.0},
        "fp8_us": {"mean_ape": 6.0, "bias_pct": 5.0},
        "fp8_block_us": {"mean_ape": 6.0, "bias_pct": 5.0},
        "fp8_static_us": {"mean_ape": 10.0, "bias_pct": 5.0},
        "nvfp4_us": {"mean_ape": 6.0, "bias_pct": 4.0},
        "int4_wo_us": {"mean_ape": 8.0, "bias_pct": 5.0},
        "int8_wo_us": {"mean_ape": 8.0, "bias_pct": 5.0},
        "sq_us": {"mean_ape": 8.0, "bias_pct": 5.0},
        "fp8_scaled_mm_us": {"mean_ape": 3.0, "bias_pct": 8.0},
        "bmm_us": {"mean_ape": 9.0, "bias_pct": 5.0},
        "bmm_fp8_us": {"mean_ape": 9.0, "bias_pct": 5.0},
        "fp32_us": {"mean_ape": 14.0, "bias_pct": 8.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured shape, device and campaign."""
        count = ROWS_PER_TABLE if limit is None else max(60, limit // 3)
        quantised = quantised_rows(data, tuple(CAMPAIGNS), count=count)
        tables = {
            "bf16_us": bf16_rows(data, count),
            "fp16_us": vidur_rows(data, count),
            **{
                f"{dtype}_us": [part for part in quantised if part.variant.dtype == dtype]
                for dtype in CAMPAIGNS
            },
            "fp8_scaled_mm_us": pipeweave_rows(data, count),
            "bmm_us": bmm_rows(data, ("bf16",)),
            "bmm_fp8_us": bmm_rows(data, ("fp8",)),
            "fp32_us": fp32_rows(data, count),
        }
        return [_scored(metric, parts, limit) for metric, parts in tables.items()]


def _scored(metric: str, parts: Sequence[Rows], limit: int | None) -> Scored:
    held = [part.take(part.held_out) for part in parts]
    held = [part for part in held if len(part)]
    if limit is not None:
        held = [sample(part, max(10, limit // len(held))) for part in held]
    model = Gemm()
    times = [
        timed(model, OpBatch("gemm", part.variant, part.dims), find_device(part.device))
        for part in held
    ]
    spread = np.concatenate([(part.high - part.low) / part.seconds / 2.0 for part in held])
    rows = np.concatenate([part.m for part in held])
    regime = np.where(rows <= 64, "m <= 64", np.where(rows <= 512, "m 65-512", "m > 512"))
    return Scored(
        metric=metric,
        measured=1e6 * np.concatenate([part.seconds for part in held]),
        estimate=1e6 * np.concatenate([found.estimate_s for found in times]),
        p05=1e6 * np.concatenate([found.p05_s for found in times]),
        p95=1e6 * np.concatenate([found.p95_s for found in times]),
        roofline=1e6 * np.concatenate([roofline_s(part) for part in held]),
        groups={
            "device": np.concatenate([np.full(len(part), part.device) for part in held]),
            "library": np.concatenate(
                [np.full(len(part), part.variant.library or "-") for part in held]
            ),
            "regime": regime,
        },
        noise=spread if spread.any() else None,
    )
