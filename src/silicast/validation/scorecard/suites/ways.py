"""Ways to predict a kernel that was not measured, on a device that was: ours beside others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from silicast.learning.tiers import Evidence
from silicast.validation.scorecard.baselines.raw_shapes import RawShapes
from silicast.validation.scorecard.baselines.throughput import Throughput
from silicast.validation.scorecard.baselines.wave_scaling import keys
from silicast.validation.scorecard.kernel_suite import LabelOf, scored_part
from silicast.validation.scorecard.rows import MeasuredRows, shares_of
from silicast.validation.scorecard.run import ANALYTIC
from silicast.validation.scorecard.suite import Scored, Suite, predicted, resting
from silicast.validation.scorecard.training import all_tables, by_metric_and_device

ROWS = 500
"""Of each metric and device, about."""
LEARNT_FROM = 6000
"""Rows of a device that the others learn from; our corrections have seen all that there are."""
FEWEST = 300
"""A device with fewer rows to learn from is left out."""
LABELS: Mapping[str, LabelOf] = {
    "device": lambda rows, _: rows.hardware.name,
    "architecture": lambda rows, _: rows.hardware.architecture,
}


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One metric a family and format; of a sample, the first device of each that has any rows."""
    found: dict[str, list[Scored]] = {}
    for (metric, _), parts in by_metric_and_device(data).items():
        if limit is None or not found.get(metric):
            found.setdefault(metric, []).extend(_of_device(metric, parts, limit))
    return [Scored.joined(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _of_device(metric: str, parts: Sequence[MeasuredRows], limit: int | None) -> Iterator[Scored]:
    taught = shares_of(parts, LEARNT_FROM if limit is None else 2 * FEWEST, held=False)
    if sum(len(part) for part in taught) < FEWEST:
        return
    model = parts[0].model
    trees, table = RawShapes(model, taught), Throughput(model, taught)
    medians = _medians(parts)
    for part in shares_of(parts, ROWS if limit is None else max(20, limit // 4), held=True):
        with resting(Evidence(learned=False)):
            analytic = predicted(part).estimate_s
        ways = {
            ANALYTIC: analytic,
            "trees over raw sizes": trees.seconds(part),
            "interpolated throughput": table.seconds(part),
            "best without variant": np.array([medians.get(k, np.nan) for k in keys(part)]),
        }
        yield scored_part(metric, part, predicted(part), lambda _, x: x.bound_s, LABELS, ways)


def _medians(parts: Sequence[MeasuredRows]) -> dict[tuple[object, ...], float]:
    """Per problem that several campaigns measured, the median of their times."""
    found: dict[tuple[object, ...], list[float]] = {}
    for part in parts:
        for key, value in zip(keys(part), part.seconds.tolist(), strict=True):
            found.setdefault(key, []).append(value)
    return {key: float(np.median(values)) for key, values in found.items() if len(values) > 1}


MEAN_APE = {
    "attention_decode_bf16_us": 5.0, "attention_prefill_bf16_us": 5.0,
    "attention_prefill_fp8_us": 5.0, "combine_bf16_us": 8.0, "combine_nvfp4_us": 6.0,
    "csa_module_bf16_us": 4.0, "dispatch_bf16_us": 7.0, "dispatch_nvfp4_us": 5.0,
    "dsa_module_bf16_us": 8.0, "elementwise_us": 4.0, "embedding_us": 6.0, "gdn_bf16_us": 5.0,
    "gemm_bf16_us": 5.0, "gemm_fp16_us": 11.0, "gemm_fp32_us": 14.0, "gemm_fp8_block_us": 6.0,
    "gemm_fp8_static_us": 9.0, "gemm_fp8_us": 5.0, "gemm_int4_wo_us": 7.0, "gemm_int8_wo_us": 7.0,
    "gemm_nvfp4_us": 5.0, "gemm_sq_us": 7.0, "hca_module_bf16_us": 3.0,
    "indexer_logits_fp8_us": 14.0, "kda_bf16_us": 8.0, "layernorm_us": 8.0, "mamba2_bf16_us": 6.0,
    "mla_decode_bf16_us": 6.0, "mla_module_bf16_us": 4.0, "mla_module_fp8_us": 3.0,
    "mla_prefill_bf16_us": 5.0, "moe_bf16_us": 11.0, "moe_fp8_block_us": 12.0, "moe_fp8_us": 14.0,
    "moe_int4_wo_us": 16.0, "moe_nvfp4_us": 14.0, "moe_w4a16_mxfp4_us": 15.0,
    "moe_w4a8_mxfp4_mxfp8_us": 14.0, "msa_module_bf16_us": 5.0, "quantize_fp8_us": 7.0,
    "rmsnorm_us": 10.0, "rope_us": 9.0, "silu_mul_us": 6.0, "softmax_us": 13.0,
    "sparse_attention_bf16_us": 8.0, "topk_fp32_us": 5.0,
}  # fmt: skip
SUITES = (
    Suite(
        name="ways",
        title="Ways to predict unseen kernels of a known device",
        split=(
            "rows that corrections hold out, some 500 a device and format; the others learn from "
            "at most 6,000 of the remaining rows of the device. 'Best without variant' is no "
            "prediction: the median of what the campaigns of one problem measured, for problems "
            "with two or more; no prediction without library and version can be closer."
        ),
        source=all_tables(),
        thresholds={metric: {"mean_ape": limit} for metric, limit in MEAN_APE.items()},
        predict=_score,
        both_tiers=False,
    ),
)
