"""Rows of dense matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.gemm_rows import Rows as GemmRows
from silicast.validation.gemm_rows import (
    bf16_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    vidur_rows,
)
from silicast.validation.source import AIC, DEEP, MANY, Source
from silicast.workload.op import OpBatch


def _gemm(data: Path) -> Iterator[MeasuredKernels]:
    parts = [
        *bf16_rows(data, MANY),
        *quantised_rows(data, ("fp8", "fp8_block", "nvfp4", "fp8_static"), MANY // 2),
        *quantised_rows(data, ("int4_wo", "int8_wo", "sq"), MANY // 2),
        *pipeweave_rows(data, MANY),
        *fp32_rows(data, MANY),
        *vidur_rows(data, MANY),
    ]
    for part in parts:
        yield _of_gemm(part)


def _of_gemm(part: GemmRows) -> MeasuredKernels:
    batch = OpBatch("gemm", part.variant, part.dims)
    return MeasuredKernels(batch, part.device, part.seconds, part.held_out)


SOURCES = (
    Source(
        "gemm",
        (
            "kernels/aic_gemm_bf16_repeats.parquet", AIC + "gemm.parquet",
            "pipeweave/kernel_gemm_fp8.parquet", "neusight/kernels_nvidia.parquet",
            "serving/vidur_linear_ops.parquet",
        ),
        "one (n, k) pair in five, by hash, is held out on every device; PipeWeave's and "
        "NeuSight's own test splits",
        _gemm,
        DEEP,
    ),
)  # fmt: skip
