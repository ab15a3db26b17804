"""Rows of kernels that stream their operands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from silicast.learning.training import MeasuredKernels
from silicast.validation.source import AIC, SMALL, Read, Source
from silicast.validation.suites import _streaming_rows


def _streaming(family: str) -> Read:
    def read(data: Path) -> Iterator[MeasuredKernels]:
        for part in _streaming_rows.load_rows(data):
            if part.batch.family == family:
                seconds = part.measured_us * 1e-6
                yield MeasuredKernels(part.batch, part.device, seconds, ~part.fitted)

    return read


_TABLES = (
    "pipeweave/kernel_elementwise_sample.parquet", "neusight/kernels_nvidia.parquet",
    AIC + "computescale.parquet", AIC + "scale_matrix.parquet",
    "serving/llmservingsim_profile_dense.parquet", "serving/vidur_linear_ops.parquet",
)  # fmt: skip

_SPLIT = "every second size, the sources' own test split, or models that are never fitted"
_FAMILIES = (
    "rmsnorm", "layernorm", "softmax", "elementwise", "silu_mul", "quantize", "rope", "embedding",
)  # fmt: skip

SOURCES = tuple(Source(name, _TABLES, _SPLIT, _streaming(name), SMALL) for name in _FAMILIES)
