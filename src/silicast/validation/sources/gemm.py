"""Rows of dense matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from silicast.learning.boosting import Settings
from silicast.learning.training import MeasuredKernels
from silicast.validation.gemm_rows import Rows as GemmRows
from silicast.validation.gemm_rows import (
    bf16_rows,
    bmm_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    vidur_rows,
)
from silicast.validation.source import AIC, MANY, Source
from silicast.workload.op import OpBatch

SETTINGS = Settings(trees=60, depth=7, rate=0.2, regions=20, own_trees=80)
"""Several libraries share the trees of a format: with fewer regions PipeWeave's and TensorRT-LLM's
kernels keep the errors of others."""


def _gemm(data: Path) -> Iterator[MeasuredKernels]:
    bf16 = bf16_rows(data, MANY)
    parts = [
        *bf16,
        *_batched(bmm_rows(data), bf16),
        *quantised_rows(data, ("fp8", "fp8_block", "nvfp4", "fp8_static"), MANY // 2),
        *quantised_rows(data, ("int4_wo", "int8_wo", "sq"), MANY // 2),
        *pipeweave_rows(data, MANY),
        *fp32_rows(data, MANY),
        *vidur_rows(data, MANY),
    ]
    for part in parts:
        yield of_rows(part)


def _batched(parts: list[GemmRows], bf16: list[GemmRows]) -> Iterator[GemmRows]:
    """Batched calls; those of bf16 name a library only where the other rows of bf16 do.

    The latter are medians over libraries, and marks that they lack would make them strangers.
    """
    named = {part.device: part.variant.library for part in bf16}
    for part in parts:
        variant = part.variant
        if variant.dtype == "bf16":
            variant = replace(variant, library=named.get(part.device, ""), version="")
        yield replace(part, variant=variant)


def of_rows(part: GemmRows) -> MeasuredKernels:
    """Rows of a table as corrections take them."""
    batch = OpBatch("gemm", part.variant, part.dims)
    return MeasuredKernels(batch, part.device, part.seconds, part.held_out)


SOURCES = (
    Source(
        "gemm",
        (
            "kernels/aic_gemm_bf16_repeats.parquet", AIC + "gemm.parquet",
            AIC + "mla_bmm.parquet", "pipeweave/kernel_gemm_fp8.parquet",
            "neusight/kernels_nvidia.parquet", "serving/vidur_linear_ops.parquet",
        ),
        "one (n, k) pair in five, by hash, is held out on every device; of batched calls one "
        "pair of heads and direction in five; PipeWeave's and NeuSight's own test splits",
        _gemm,
        SETTINGS,
    ),
)  # fmt: skip
