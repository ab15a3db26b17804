"""Attention kernels: three engines' prefill and decode, and batches of varied lengths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import take
from silicast.kernels.implementation import KernelTimes, implementation_for
from silicast.validation.suite import Labels, Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._attention_rows import Campaign, read_campaigns
from silicast.workload.op import Op, OpBatch, Variant

ROWS_PER_DEVICE = 60_000


def roofline_s(times: KernelTimes, batch: OpBatch, device: Device) -> F64:
    """Useful FLOPs at the datasheet's rate and compulsory bytes at its bandwidth, seconds."""
    pipe = next(name for name in times.analysis.demand.pipe_work if name != "xu")
    dtype = batch.variant.dtype
    clock = device.bound_per_s(pipe, dtype) / device.peak_per_s(pipe, dtype)
    moved = times.analysis.demand.level_bytes["l2"]
    return np.maximum(
        times.analysis.resource_s["tensor"] * clock,
        moved / device.dram.bandwidth_bytes_per_s,
    )


class _EngineAttention(Suite):
    """Shared by prefill and decode: held-out head geometries of the newest campaigns."""

    table: ClassVar[str]
    family: ClassVar[str]
    split: ClassVar[str] = (
        "Newest version of each engine on each device. One head geometry (heads, key-value heads, "
        "head width) in four, by hash, is never fitted and scored here; the others give the "
        "constants (benchmarks/fit_attention.py)."
    )

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """All held-out rows, at most about 15,000 a device."""
        per_device = ROWS_PER_DEVICE if limit is None else max(400, limit)
        found = [
            part
            for campaign in read_campaigns(data, self.table, per_device)
            if campaign.newest and campaign.held.any()
            for part in [self._held(campaign)]
        ]
        scored = _joined(found)
        if limit is None:
            return [scored]
        return [_picked(scored, subsample(len(scored.measured), limit))]

    def _held(self, campaign: Campaign) -> Scored:
        rows = np.flatnonzero(campaign.held)
        batch = take(campaign.batch, rows)
        model = implementation_for(self.family, "simt")
        assert model is not None
        times = timed(model, batch, campaign.device)
        engine = "triton" if "triton" in campaign.kernel else campaign.backend
        return Scored(
            metric="latency_us",
            measured=campaign.latency_us[rows],
            estimate=times.estimate_s * 1e6,
            p05=times.p05_s * 1e6,
            p95=times.p95_s * 1e6,
            roofline=roofline_s(times, batch, campaign.device) * 1e6,
            groups={
                "device": np.full(len(rows), campaign.device.name),
                "engine": np.full(len(rows), engine),
                "formats": np.full(len(rows), f"{batch.variant.dtype}/{batch.variant.kv_dtype}"),
                "regime": self._regime(batch),
            },
        )

    @staticmethod
    @abstractmethod
    def _regime(batch: OpBatch) -> Labels:
        """A label a row to report by."""


@final
@register_suite
class AttentionPrefillSuite(_EngineAttention):
    """Prefill of engines' attention layers, cache update included."""

    name: ClassVar[str] = "attention-prefill"
    title: ClassVar[str] = "Attention prefill of TensorRT-LLM, vLLM and SGLang (aiconfigurator)"
    source: ClassVar[tuple[str, ...]] = ("aiconfigurator/context_attention.parquet",)
    table: ClassVar[str] = "context"
    family: ClassVar[str] = "attention_prefill"
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 16.0, "bias_pct": 6.0}
    }

    @staticmethod
    def _regime(batch: OpBatch) -> Labels:
        return _lengths(batch.dims["q_len"], (128, 2048), "new tokens")


@final
@register_suite
class AttentionDecodeSuite(_EngineAttention):
    """Decode of engines' attention layers, cache update included."""

    name: ClassVar[str] = "attention-decode"
    title: ClassVar[str] = "Attention decode of TensorRT-LLM, vLLM and SGLang (aiconfigurator)"
    source: ClassVar[tuple[str, ...]] = ("aiconfigurator/generation_attention.parquet",)
    table: ClassVar[str] = "generation"
    family: ClassVar[str] = "attention_decode"
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 16.0, "bias_pct": 6.0}
    }

    @staticmethod
    def _regime(batch: OpBatch) -> Labels:
        return _lengths(batch.dims["kv_len"], (256, 4096), "cached tokens")


@final
@register_suite
class AttentionLengthsSuite(Suite):
    """FlashInfer over batches of varied lengths, chunked prefills and decodes."""

    name: ClassVar[str] = "attention-lengths"
    title: ClassVar[str] = "FlashInfer attention over batches of varied lengths (PipeWeave)"
    split: ClassVar[str] = (
        "PipeWeave's own test rows, for scoring only: nothing is fitted on them. FlashInfer on "
        "A100, A40 and H20 was not fitted on other rows of these devices either, but for decode "
        "on H20 (equal lengths, InferSim)."
    )
    source: ClassVar[tuple[str, ...]] = ("pipeweave/kernel_attn_test_sample.parquet",)
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "latency_us": {"mean_ape": 24.0, "bias_pct": 10.0}
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a batch; the peer's stored prediction beside ours."""
        import pyarrow.parquet as pq

        rows = pq.read_table(data / self.source[0]).to_pylist()
        rows = [rows[i] for i in subsample(len(rows), limit)]
        return [_joined([self._row(row) for row in rows])]

    @staticmethod
    def _row(row: Mapping[str, object]) -> Scored:
        decode = row["phase"] == "decode"
        family = "attention_decode" if decode else "attention_prefill"
        q, kv = _integers(row["q_lengths"]), _integers(row["kv_lengths"])
        op = Op.make(
            family,
            Variant("bf16", "bf16", "flashinfer", flags=(("causal", True),)),
            q_len=q,
            kv_len=tuple(k - 1 for k in kv) if decode else kv,
            num_heads=_integer(row["nh"]),
            num_kv_heads=_integer(row["nkv"]),
            head_dim=_integer(row["hd"]),
            window=0,
        )
        device, batch = find_device(str(row["gpu"])), OpBatch.of([op])
        model = implementation_for(family, "simt")
        assert model is not None
        times = timed(model, batch, device)
        return Scored(
            metric="latency_us",
            measured=np.array([float(str(row["latency_us"]))]),
            estimate=times.estimate_s * 1e6,
            p05=times.p05_s * 1e6,
            p95=times.p95_s * 1e6,
            roofline=roofline_s(times, batch, device) * 1e6,
            peers={"PipeWeave": np.array([float(str(row["pw_pred_us"]))])},
            groups={
                "device": np.array([device.name]),
                "regime": np.array([str(row["phase"])]),
                "kernel": np.array([str(row["attention_type"])]),
            },
        )


def _integers(value: object) -> tuple[int, ...]:
    assert isinstance(value, list)
    return tuple(int(item) for item in value)


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


def _lengths(lengths: np.ndarray, edges: tuple[int, int], unit: str) -> Labels:
    """Short, middle and long rows."""
    low, high = edges
    names = (f"<= {low} {unit}", f"{low + 1} to {high} {unit}", f"> {high} {unit}")
    index = (lengths > low).astype(int) + (lengths > high)
    labels: Labels = np.array(names)[index]
    return labels


def _arrays(parts: Sequence[Scored]) -> Iterator[tuple[str, F64]]:
    for name in ("measured", "estimate", "p05", "p95", "roofline"):
        yield name, np.concatenate([getattr(part, name) for part in parts])


def _joined(parts: Sequence[Scored]) -> Scored:
    """Rows of several parts, one after the other."""
    first = parts[0]
    return Scored(
        metric=first.metric,
        **dict(_arrays(parts)),  # type: ignore[arg-type]
        peers={n: np.concatenate([p.peers[n] for p in parts]) for n in first.peers},
        groups={n: np.concatenate([p.groups[n] for p in parts]) for n in first.groups},
    )


def _picked(scored: Scored, rows: np.ndarray) -> Scored:
    """Some rows of it."""
    return Scored(
        metric=scored.metric,
        **{n: v[rows] for n, v in _arrays([scored])},
        peers={n: v[rows] for n, v in scored.peers.items()},
        groups={n: v[rows] for n, v in scored.groups.items()},
    )
