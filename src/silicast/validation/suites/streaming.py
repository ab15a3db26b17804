"""Suites of the kernels that stream data: norms, activations, elementwise, softmax, quantisation.

Only rows that the constants were not fitted on are scored (see ``_streaming_rows``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import op_at
from silicast.kernels.implementation import Implementation, implementation_for
from silicast.validation.suite import Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._streaming_rows import Rows, load_rows

SPLIT = (
    "Constants and interval sizes fitted on the sources' train rows only, by "
    "benchmarks/fit_streaming.py; scored: the test splits of PipeWeave (H800, L20: devices never "
    "fitted) and NeuSight, every second hidden size of the quantisation tables, every second token "
    "count of the layer profile."
)
MICRO = 1e6
VIDUR = "vidur"
LONG_US = 20.0
"""From here on Vidur's clock, which ticks in microseconds, is no floor of the error."""


class _StreamingSuite(Suite):
    """Held-out rows of some families and sources."""

    families: ClassVar[frozenset[str]]
    split: ClassVar[str] = SPLIT

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """Predicts every held-out row; see :meth:`Suite.score`."""
        rows = [r for r in load_rows(data) if self.takes(r)]
        held = [part for r in rows if len((part := r.at(~r.fitted)).measured_us)]
        total = sum(len(part.measured_us) for part in held)
        kept = np.zeros(total, dtype=bool)
        kept[subsample(total, limit)] = True
        parts, start = [], 0
        for part in held:
            end = start + len(part.measured_us)
            if kept[start:end].any():
                parts.append(part.at(kept[start:end]))
            start = end
        return self.metrics(parts)

    def takes(self, rows: Rows) -> bool:
        """Whether the suite scores rows of this source and family: Vidur's have their own."""
        return rows.batch.family in self.families and not rows.source.startswith(VIDUR)

    def metrics(self, parts: Sequence[Rows]) -> list[Scored]:
        """The held-out rows as metrics."""
        return [_scored(parts)]


def _scored(parts: Sequence[Rows], metric: str = "latency_us") -> Scored:
    """All parts as one metric."""
    columns: dict[str, list[F64]] = {}
    labels: dict[str, list[str]] = {"device": [], "regime": [], "source": [], "family": []}
    for part in parts:
        model = implementation_for(part.batch.family, "simt")
        assert model is not None
        device = find_device(part.device)
        times = timed(model, part.batch, device)
        missing = np.full(len(part.measured_us), np.nan)
        columns.setdefault("measured", []).append(part.measured_us)
        columns.setdefault("estimate", []).append(times.estimate_s * MICRO)
        columns.setdefault("p05", []).append(times.p05_s * MICRO)
        columns.setdefault("p95", []).append(times.p95_s * MICRO)
        peak = device.dram.bandwidth_bytes_per_s / MICRO
        columns.setdefault("roofline", []).append(_bytes(model, part) / peak)
        columns.setdefault("peer", []).append(missing if part.peer_us is None else part.peer_us)
        busy = np.asarray(times.analysis.features["busy_share"])
        labels["regime"] += ["busy" if share > 0.5 else "waiting" for share in busy.tolist()]
        for name, label in (
            ("device", device.name), ("source", part.source), ("family", part.batch.family),
        ):  # fmt: skip
            labels[name] += [label] * len(part.measured_us)
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    peers = {} if np.isnan(joined["peer"]).all() else {"pipeweave": joined["peer"]}
    return Scored(
        metric=metric,
        measured=joined["measured"],
        estimate=joined["estimate"],
        p05=joined["p05"],
        p95=joined["p95"],
        roofline=joined["roofline"],
        peers=peers,
        groups={name: np.array(values) for name, values in labels.items()},
    )


def _bytes(model: Implementation, part: Rows) -> F64:
    """Compulsory bytes of every row: the plain roofline knows of nothing else."""
    count = len(part.measured_us)
    return np.array(
        [model.compulsory_bytes(op_at(part.batch, row)) for row in range(count)], dtype=np.float64
    )


@register_suite
@final
class Norms(_StreamingSuite):
    """RMSNorm and LayerNorm."""

    name: ClassVar[str] = "norms"
    title: ClassVar[str] = "RMSNorm (fused residual, bf16) and eager LayerNorm (fp32)"
    families: ClassVar[frozenset[str]] = frozenset({"rmsnorm", "layernorm"})
    source: ClassVar[tuple[str, ...]] = (
        "pipeweave/kernel_elementwise_sample.parquet",
        "neusight/kernels_nvidia.parquet",
        "serving/llmservingsim_profile_dense.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 10.0}}


@register_suite
@final
class SiluMulSuite(_StreamingSuite):
    """SiLU-and-multiply."""

    name: ClassVar[str] = "silu_mul"
    title: ClassVar[str] = "SiLU-and-multiply (bf16)"
    families: ClassVar[frozenset[str]] = frozenset({"silu_mul"})
    source: ClassVar[tuple[str, ...]] = (
        "pipeweave/kernel_elementwise_sample.parquet",
        "serving/llmservingsim_profile_dense.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 16.0}}


@register_suite
@final
class ElementwiseSuite(_StreamingSuite):
    """Elementwise kernels, RoPE and embedding."""

    name: ClassVar[str] = "elementwise"
    title: ClassVar[str] = "Eager elementwise kernels (fp32); RoPE and embedding of a pass (bf16)"
    families: ClassVar[frozenset[str]] = frozenset({"elementwise", "rope", "embedding"})
    source: ClassVar[tuple[str, ...]] = (
        "neusight/kernels_nvidia.parquet",
        "serving/llmservingsim_profile_dense.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 4.0}}


@register_suite
@final
class SoftmaxSuite(_StreamingSuite):
    """Softmax and sampling: rows that are scanned several times."""

    name: ClassVar[str] = "softmax"
    title: ClassVar[str] = "Eager softmax (fp32) and sampling from logits"
    families: ClassVar[frozenset[str]] = frozenset({"softmax", "sampling"})
    source: ClassVar[tuple[str, ...]] = (
        "neusight/kernels_nvidia.parquet",
        "serving/llmservingsim_profile_per_sequence.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 13.0}}


@register_suite
@final
class QuantizeSuite(_StreamingSuite):
    """Quantising activations to fp8."""

    name: ClassVar[str] = "quantize"
    title: ClassVar[str] = "fp8 quantisation of activations, static and per token"
    families: ClassVar[frozenset[str]] = frozenset({"quantize"})
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/scale_matrix.parquet",
        "aiconfigurator/computescale.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 6.5}}


@register_suite
@final
class VidurOperators(_StreamingSuite):
    """Norms, SiLU, RoPE, embedding and additions between the products of Vidur's models."""

    name: ClassVar[str] = "vidur_operators"
    title: ClassVar[str] = "Operators other than products in a pass (fp16, kernels of 2023)"
    families: ClassVar[frozenset[str]] = frozenset(
        {"rmsnorm", "layernorm", "silu_mul", "rope", "embedding", "elementwise"}
    )
    split: ClassVar[str] = (
        "Models internlm-20b and Qwen-2-7B: never fitted, nor any shape of theirs. latency_us: "
        "kernels of 20 us and more; short_latency_us: shorter ones, of which the clock tells "
        "whole microseconds only."
    )
    source: ClassVar[tuple[str, ...]] = ("serving/vidur_linear_ops.parquet",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 7.0, "median_ape": 4.5},
        "short_latency_us": {"mean_ape": 11.0},
    }

    def takes(self, rows: Rows) -> bool:
        """Vidur's rows, those of its fork too."""
        return rows.batch.family in self.families and rows.source.startswith(VIDUR)

    def metrics(self, parts: Sequence[Rows]) -> list[Scored]:
        """Long and short kernels apart."""
        long = [part.at(part.measured_us >= LONG_US) for part in parts]
        short = [part.at(part.measured_us < LONG_US) for part in parts]
        return [
            _scored([part for part in some if len(part.measured_us)], metric)
            for some, metric in ((long, "latency_us"), (short, "short_latency_us"))
        ]
