"""Latent attention: kernels of three engines, whole blocks, and the products around the latent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.attention_work import element_bytes
from silicast.kernels.check import take
from silicast.kernels.implementation import KernelTimes, implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._mla_rows import (
    MlaCampaign,
    read_mla,
    read_mla_modules,
    read_mla_products,
)
from silicast.workload.op import OpBatch

HELD = (
    "Newest version of each engine on each device. One pair of heads and batch size in four, by "
    "hash, is never fitted and scored here; the others give the constants (the model's "
    "structure was chosen on all rows)"
)
Reader = Callable[[Path, str], Iterator[MlaCampaign]]


def roofline_s(times: KernelTimes, device: Device, dtype: str) -> F64:
    """Useful FLOPs at the datasheet's rates and compulsory bytes at its bandwidth, seconds."""
    found = times.analysis.resource_s
    pipe = device.matrix_pipe(dtype)
    clock = device.bound_per_s(pipe, dtype) / device.peak_per_s(pipe, dtype)
    inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    moved = found["l2" if "l2" in found else "chip"] * inner
    return np.maximum(found["tensor"] * clock, moved / device.dram.bandwidth_bytes_per_s)


def product_roofline_s(batch: OpBatch, device: Device) -> F64:
    """The same of a batched product in one format."""
    heads, m, n, k = (batch.dims[name].astype(np.float64) for name in ("batch", "m", "n", "k"))
    dtype, size = batch.variant.dtype, element_bytes(batch.variant.dtype)
    moved = heads * ((m * k + n * k) * size + m * n * 2.0)
    peak = device.peak_per_s(device.matrix_pipe(dtype), dtype)
    return np.maximum(2.0 * heads * m * n * k / peak, moved / device.dram.bandwidth_bytes_per_s)


def _scored(metric: str, campaigns: list[MlaCampaign], limit: int | None) -> Scored:
    """Held-out rows of campaigns as one set."""
    parts = [_part(metric, c) for c in campaigns if c.newest and c.held.any()]
    joined = Scored(
        metric=metric,
        measured=np.concatenate([p.measured for p in parts]),
        estimate=np.concatenate([p.estimate for p in parts]),
        p05=np.concatenate([p.p05 for p in parts]),
        p95=np.concatenate([p.p95 for p in parts]),
        roofline=np.concatenate([p.roofline for p in parts if p.roofline is not None]),
        groups={n: np.concatenate([p.groups[n] for p in parts]) for n in parts[0].groups},
    )
    rows = subsample(len(joined.measured), limit)
    assert joined.roofline is not None
    return Scored(
        metric=metric,
        measured=joined.measured[rows],
        estimate=joined.estimate[rows],
        p05=joined.p05[rows],
        p95=joined.p95[rows],
        roofline=joined.roofline[rows],
        groups={n: v[rows] for n, v in joined.groups.items()},
    )


def _part(metric: str, campaign: MlaCampaign) -> Scored:
    rows = np.flatnonzero(campaign.held)
    batch, device = take(campaign.batch, rows), campaign.device
    model = implementation_for(batch.family, "simt")
    assert model is not None
    times = timed(model, batch, device)
    variant = batch.variant
    if batch.family == "gemm":
        roofline = product_roofline_s(batch, device)
    else:
        roofline = roofline_s(times, device, variant.dtype)
    formats = f"{variant.dtype}/{variant.kv_dtype}" if variant.kv_dtype else variant.dtype
    linear = next((n for n, on in variant.flags if on and n.startswith("gemm_")), "")
    return Scored(
        metric=metric,
        measured=campaign.latency_us[rows],
        estimate=times.estimate_s * 1e6,
        p05=times.p05_s * 1e6,
        p95=times.p95_s * 1e6,
        roofline=roofline * 1e6,
        groups={
            "device": np.full(len(rows), device.name),
            "engine": np.full(len(rows), campaign.backend),
            "formats": np.full(len(rows), f"{formats} {linear}".strip()),
            "regime": _regime(times),
        },
    )


def _regime(times: KernelTimes) -> Labels:
    """By time: what waits for launches, what is short, what is long."""
    microseconds = times.estimate_s * 1e6
    return np.where(
        microseconds < 30.0, "below 30 us",
        np.where(microseconds < 300.0, "30 to 300 us", "above 300 us"),
    )  # fmt: skip


class _Tables(Suite):
    """Held-out rows of some tables."""

    metrics: ClassVar[Mapping[str, tuple[str, ...]]]
    reader: ClassVar[Reader]

    @final
    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """All held-out rows of the newest campaigns."""
        read = type(self).reader
        return [
            _scored(metric, [c for table in tables for c in read(data, table)], limit)
            for metric, tables in self.metrics.items()
        ]


@final
@register_suite
class LatentAttention(_Tables):
    """Prefill and decode as the engines call them."""

    name: ClassVar[str] = "mla"
    title: ClassVar[str] = "Latent attention of TensorRT-LLM, SGLang and vLLM (aiconfigurator)"
    split: ClassVar[str] = f"{HELD}: benchmarks/fit_mla.py."
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/context_mla.parquet",
        "aiconfigurator/generation_mla.parquet",
    )
    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "prefill_us": ("context_mla",),
        "decode_us": ("generation_mla",),
    }
    reader: ClassVar[Reader] = staticmethod(read_mla)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "prefill_us": {"mean_ape": 12.0, "bias_pct": 6.0},
        "decode_us": {"mean_ape": 16.0, "bias_pct": 6.0},
    }


@final
@register_suite
class LatentBlocks(_Tables):
    """Whole blocks, projections included."""

    name: ClassVar[str] = "mla-blocks"
    title: ClassVar[str] = "Blocks of latent attention (aiconfigurator)"
    split: ClassVar[str] = (
        f"{HELD}: benchmarks/fit_mla_module.py. On Blackwell vLLM 0.22 was fitted beside 0.24."
    )
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/mla_context_module.parquet",
        "aiconfigurator/mla_generation_module.parquet",
        "aiconfigurator/wideep_context_mla.parquet",
        "aiconfigurator/wideep_generation_mla.parquet",
    )
    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "context_us": ("mla_context_module",),
        "generation_us": ("mla_generation_module",),
        "wide_context_us": ("wideep_context_mla",),
        "wide_generation_us": ("wideep_generation_mla",),
    }
    reader: ClassVar[Reader] = staticmethod(read_mla_modules)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "context_us": {"mean_ape": 12.0, "bias_pct": 6.0},
        "generation_us": {"mean_ape": 16.0, "bias_pct": 8.0},
        "wide_context_us": {"mean_ape": 24.0, "bias_pct": 12.0},
        "wide_generation_us": {"mean_ape": 20.0, "bias_pct": 12.0},
    }


@final
@register_suite
class LatentProducts(_Tables):
    """Products of every head between queries, latent and results: the GEMM family, batched."""

    name: ClassVar[str] = "mla-products"
    title: ClassVar[str] = "Batched products around the latent (aiconfigurator)"
    split: ClassVar[str] = (
        "Newest version of each engine on each device; pairs of heads and direction: one in five, "
        "never fitted (benchmarks/fit_gemm.py)."
    )
    source: ClassVar[tuple[str, ...]] = ("aiconfigurator/mla_bmm.parquet",)
    metrics: ClassVar[Mapping[str, tuple[str, ...]]] = {"product_us": ("mla_bmm",)}
    reader: ClassVar[Reader] = staticmethod(read_mla_products)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "product_us": {"mean_ape": 12.0, "bias_pct": 5.0}
    }
