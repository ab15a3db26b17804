"""Ways to predict a kernel that was not measured, on a device that was: ours beside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.learning.tiers import Evidence
from silicast.validation.baselines.raw_shapes import RawShapes
from silicast.validation.baselines.throughput import Throughput
from silicast.validation.baselines.wave_scaling import keys
from silicast.validation.held_rows import (
    Parts,
    Predicted,
    by_device,
    model_of,
    predicted,
    scored,
    some_rows,
)
from silicast.validation.run import ANALYTIC
from silicast.validation.source import all_tables
from silicast.validation.suite import Scored, Suite, register_suite, resting

ROWS = 500
"""Of each metric and device, about."""
LEARNT_FROM = 6000
"""Rows of a device that the others learn from; our corrections have seen all that there are."""
FEWEST = 300
"""A device with fewer rows to learn from is left out."""


@register_suite
@final
class Ways(Suite):
    """Corrections, analytic tier and what is made again from others' papers, on the same rows."""

    name: ClassVar[str] = "ways"
    title: ClassVar[str] = "Ways to predict unseen kernels of a known device"
    split: ClassVar[str] = (
        "rows that corrections hold out, some 500 a device and format; the others learn from at "
        "most 6,000 of the remaining rows of the device. 'Best without variant' is no prediction: "
        "the median of what the campaigns of one problem measured, for problems with two or more; "
        "nobody who is not told library and version can be closer."
    )
    source: ClassVar[tuple[str, ...]] = all_tables()
    both_tiers: ClassVar[bool] = False
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "attention_decode_bf16_us": {"mean_ape": 5.0},
        "attention_prefill_bf16_us": {"mean_ape": 5.0},
        "attention_prefill_fp8_us": {"mean_ape": 5.0},
        "combine_bf16_us": {"mean_ape": 8.0},
        "combine_nvfp4_us": {"mean_ape": 6.0},
        "csa_module_bf16_us": {"mean_ape": 4.0},
        "dispatch_bf16_us": {"mean_ape": 7.0},
        "dispatch_nvfp4_us": {"mean_ape": 5.0},
        "dsa_module_bf16_us": {"mean_ape": 8.0},
        "elementwise_us": {"mean_ape": 4.0},
        "embedding_us": {"mean_ape": 6.0},
        "gdn_bf16_us": {"mean_ape": 5.0},
        "gemm_bf16_us": {"mean_ape": 5.0},
        "gemm_fp16_us": {"mean_ape": 11.0},
        "gemm_fp32_us": {"mean_ape": 14.0},
        "gemm_fp8_block_us": {"mean_ape": 6.0},
        "gemm_fp8_static_us": {"mean_ape": 9.0},
        "gemm_fp8_us": {"mean_ape": 5.0},
        "gemm_int4_wo_us": {"mean_ape": 7.0},
        "gemm_int8_wo_us": {"mean_ape": 7.0},
        "gemm_nvfp4_us": {"mean_ape": 5.0},
        "gemm_sq_us": {"mean_ape": 7.0},
        "hca_module_bf16_us": {"mean_ape": 3.0},
        "indexer_logits_fp8_us": {"mean_ape": 14.0},
        "kda_bf16_us": {"mean_ape": 8.0},
        "layernorm_us": {"mean_ape": 8.0},
        "mamba2_bf16_us": {"mean_ape": 6.0},
        "mla_decode_bf16_us": {"mean_ape": 6.0},
        "mla_module_bf16_us": {"mean_ape": 4.0},
        "mla_module_fp8_us": {"mean_ape": 3.0},
        "mla_prefill_bf16_us": {"mean_ape": 5.0},
        "moe_bf16_us": {"mean_ape": 11.0},
        "moe_fp8_block_us": {"mean_ape": 12.0},
        "moe_fp8_us": {"mean_ape": 14.0},
        "moe_int4_wo_us": {"mean_ape": 16.0},
        "moe_nvfp4_us": {"mean_ape": 14.0},
        "moe_w4a16_mxfp4_us": {"mean_ape": 15.0},
        "moe_w4a8_mxfp4_mxfp8_us": {"mean_ape": 14.0},
        "msa_module_bf16_us": {"mean_ape": 5.0},
        "quantize_fp8_us": {"mean_ape": 7.0},
        "rmsnorm_us": {"mean_ape": 10.0},
        "rope_us": {"mean_ape": 9.0},
        "silu_mul_us": {"mean_ape": 6.0},
        "softmax_us": {"mean_ape": 13.0},
        "sparse_attention_bf16_us": {"mean_ape": 8.0},
        "topk_fp32_us": {"mean_ape": 5.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One metric a family and format."""
        found: dict[str, list[Predicted]] = {}
        for (metric, _), parts in by_device(data).items():
            if limit is None or not found.get(metric):
                found.setdefault(metric, []).extend(_device_rows(parts, limit))
        return [scored(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _device_rows(parts: Parts, limit: int | None) -> Iterator[Predicted]:
    taught = some_rows(parts, LEARNT_FROM if limit is None else 2 * FEWEST, held_out=False)
    if sum(len(part.seconds) for part in taught) < FEWEST:
        return
    model = model_of(parts[0])
    trees, table = RawShapes(model, taught), Throughput(model, taught)
    medians = _medians(parts)
    for part in some_rows(parts, ROWS if limit is None else max(20, limit // 4), held_out=True):
        with resting(Evidence(learned=False)):
            analytic = predicted(part).estimate_s
        yield Predicted(
            part,
            predicted(part),
            {
                ANALYTIC: analytic,
                "trees over raw sizes": trees.seconds(part),
                "interpolated throughput": table.seconds(part),
                "best without variant": np.array([medians.get(k, np.nan) for k in keys(part)]),
            },
        )


def _medians(parts: Parts) -> dict[tuple[object, ...], float]:
    """Per problem that several campaigns measured, the median of their times."""
    found: dict[tuple[object, ...], list[float]] = {}
    for part in parts:
        for key, value in zip(keys(part), part.seconds.tolist(), strict=True):
            found.setdefault(key, []).append(value)
    return {key: float(np.median(values)) for key, values in found.items() if len(values) > 1}
