"""Suite of kernels on other vendors' devices and on GPUs of the years before them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import op_at, take
from silicast.kernels.implementation import Implementation, implementation_for
from silicast.validation.suite import Scored, Suite, register_suite, subsample, timed
from silicast.validation.suites._other_vendor_rows import Group, all_groups
from silicast.workload.op import OpBatch

MICRO = 1e6


@register_suite
@final
class OtherVendors(Suite):
    """AMD, Intel and Google devices, and NVIDIA's GPUs of 2015 to 2019."""

    name: ClassVar[str] = "other_vendors"
    title: ClassVar[str] = "kernels of AMD, Intel, Google and old NVIDIA devices"
    split: ClassVar[str] = (
        "Libraries of MI300X (XLA), MI100 (NeuSight), Arc Pro B60 (vLLM), MI25 and M40 (DeepBench) "
        "against stand-in constants: fitted on shapes with an even checksum; TPU v6e: constants "
        "fitted on every second block of 64 tokens (benchmarks/fit_other_vendors.py). The other "
        "rows are scored, thinned to about 200 a group (B60: 400, TPU: 600). Nothing is fitted on "
        "MI210, Vega Frontier Edition and Xeon Phi, nor on DeepBench's rows of other GPUs."
    )
    source: ClassVar[tuple[str, ...]] = (
        "serving/llmservingsim_v0_layers.parquet",
        "serving/llmservingsim_v0_attention.parquet",
        "neusight/kernels_amd.parquet",
        "kernels/xla_gemm.csv.gz",
        "kernels/llmcompass_real_hardware.csv",
        "kernels/deepbench.csv.gz",
        "aiconfigurator/gemm.parquet",
        "aiconfigurator/context_attention.parquet",
        "aiconfigurator/generation_attention.parquet",
        "aiconfigurator/moe.parquet",
    )
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {"latency_us": {"mean_ape": 22.0}}

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """Predicts every held-out row; see :meth:`Suite.score`."""
        groups = all_groups(data)
        total = sum(len(group.measured_s) for group in groups)
        kept = np.zeros(total, dtype=bool)
        kept[subsample(total, limit)] = True
        columns: dict[str, list[F64]] = {}
        labels: dict[str, list[str]] = {"device": [], "vendor": [], "family": [], "group": []}
        start = 0
        for group in groups:
            picked = np.flatnonzero(kept[start : start + len(group.measured_s)])
            start += len(group.measured_s)
            if len(picked):
                _add(columns, labels, group, take(group.batch, picked), group.measured_s[picked])
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        named = {name: np.array(values) for name, values in labels.items()}
        return [
            Scored(
                metric="latency_us",
                measured=joined["measured"],
                estimate=joined["estimate"],
                p05=joined["p05"],
                p95=joined["p95"],
                roofline=joined["roofline"],
                groups=named,
            )
        ]


def _add(
    columns: dict[str, list[F64]],
    labels: dict[str, list[str]],
    group: Group,
    batch: OpBatch,
    measured_s: F64,
) -> None:
    device = find_device(group.device)
    model = implementation_for(batch.family, device.execution_model)
    assert model is not None
    times = timed(model, batch, device)
    for name, seconds in (
        ("measured", measured_s),
        ("estimate", times.estimate_s),
        ("p05", times.p05_s),
        ("p95", times.p95_s),
        ("roofline", _roofline(model, batch, device)),
    ):
        columns.setdefault(name, []).append(seconds * MICRO)
    for name, label in (
        ("device", device.name),
        ("vendor", device.vendor),
        ("family", batch.family),
        ("group", group.name),
    ):
        labels[name] += [label] * len(measured_s)


def _roofline(model: Implementation, batch: OpBatch, device: Device) -> F64:
    """Useful operations over the matrix peak or compulsory bytes over the memory's, if longer."""
    recipe = RECIPES.get(batch.variant.dtype)
    compute = recipe.compute if recipe else batch.variant.dtype
    peak = device.peak_per_s(device.matrix_pipe(compute), compute)
    rows = [op_at(batch, row) for row in range(len(batch))]
    flops = np.array([float(model.flops(op)) for op in rows])
    moved = np.array([float(model.compulsory_bytes(op)) for op in rows])
    return np.maximum(flops / peak, moved / device.dram.bandwidth_bytes_per_s)
