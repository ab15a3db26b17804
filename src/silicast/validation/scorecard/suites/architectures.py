"""Architectures held out whole: what a device gets if none of its architecture was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.validation.scorecard.baselines.neusight import NeuSight
from silicast.validation.scorecard.baselines.wave_scaling import WaveScaling
from silicast.validation.scorecard.held_out import groups, held_out, unmeasured
from silicast.validation.scorecard.kernel_suite import scored_part
from silicast.validation.scorecard.rows import MeasuredRows, shares_of
from silicast.validation.scorecard.suite import Scored, Suite, predicted
from silicast.validation.scorecard.suites.ways import LABELS
from silicast.validation.scorecard.training import all_tables, by_metric_and_device

ROWS = 1000
"""Of each metric and device, about."""
FEW_PARTS = 16
"""Parts of each metric and device that a sample reads."""
LEARNT_FROM = 2000
"""Rows of each other device that baselines learn from."""

_Way = Callable[[MeasuredRows], F64]
_Key = tuple[str, str]
_Rows = Mapping[_Key, Sequence[MeasuredRows]]


def _score(data: Path, limit: int | None) -> list[Scored]:
    """One metric a family and format."""
    rows = by_metric_and_device(data)
    wanted = {architecture for group in groups() for architecture in held_out(group)}
    found: dict[str, list[Scored]] = {}
    origins: dict[_Key, WaveScaling] = {}
    for metric, device in rows:
        if find_device(device).architecture in wanted:
            more = _of_device(rows, metric, device, limit, origins)
            found.setdefault(metric, []).extend(more)
    return [Scored.joined(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _of_device(
    rows: _Rows, metric: str, device: str, limit: int | None, origins: dict[_Key, WaveScaling]
) -> Iterator[Scored]:
    """Rows of one metric and device; none if its family was not fitted without it."""
    count = ROWS if limit is None else max(10, limit // 4)
    parts = rows[metric, device]
    if limit is not None:
        parts = parts[:: math.ceil(len(parts) / FEW_PARTS)]
    parts = shares_of(parts, count, held=True)
    architecture = find_device(device).architecture
    known = [predicted(part).estimate_s for part in parts]
    with unmeasured(architecture):
        unknown = [predicted(part) for part in parts]
    if not parts or any(times.measured for times in unknown):
        return
    ways = _none() if limit is not None else _ways(rows, metric, architecture, parts, origins)
    for part, without, own in zip(parts, unknown, known, strict=True):
        others = {"architecture known": own, **{name: way(part) for name, way in ways.items()}}
        yield scored_part(metric, part, without, lambda _, x: x.bound_s, LABELS, others)


def _ways(
    rows: _Rows, metric: str, architecture: str, parts: Sequence[MeasuredRows],
    origins: dict[_Key, WaveScaling],
) -> dict[str, _Way]:  # fmt: skip
    """Baselines that know the other architectures only; ``origins`` remembers tables of devices."""
    others = [
        key for key in rows if key[0] == metric and find_device(key[1]).architecture != architecture
    ]
    if not others:
        return _none()
    model = parts[0].model
    taught = [part for key in others for part in shares_of(rows[key], LEARNT_FROM, held=False)]
    for key in others:
        if key not in origins:
            origins[key] = WaveScaling(model, rows[key])
    origin = max((origins[key] for key in others), key=lambda each: each.reach(parts))
    law = NeuSight(model, taught).seconds if taught else _unanswered
    return {"NeuSight's law": law, "wave scaling": origin.seconds}


def _none() -> dict[str, _Way]:
    return {"NeuSight's law": _unanswered, "wave scaling": _unanswered}


def _unanswered(part: MeasuredRows) -> F64:
    return np.full(len(part), np.nan)


MEAN_APE = {
    "attention_decode_bf16_us": 36.0, "attention_prefill_bf16_us": 28.0,
    "attention_prefill_fp8_us": 35.0, "combine_bf16_us": 26.0, "combine_fp8_us": 54.0,
    "combine_nvfp4_us": 69.0, "csa_module_bf16_us": 23.0, "dispatch_bf16_us": 34.0,
    "dispatch_fp8_us": 70.0, "dispatch_nvfp4_us": 91.0, "dsa_module_bf16_us": 55.0,
    "elementwise_us": 14.0, "embedding_us": 23.0, "gdn_bf16_us": 32.0, "gemm_bf16_us": 14.0,
    "gemm_fp16_us": 16.0, "gemm_fp32_us": 22.0, "gemm_fp8_block_us": 26.0,
    "gemm_fp8_static_us": 37.0, "gemm_fp8_us": 21.0, "gemm_int4_wo_us": 40.0,
    "gemm_int8_wo_us": 38.0, "gemm_nvfp4_us": 41.0, "gemm_sq_us": 43.0, "hca_module_bf16_us": 14.0,
    "indexer_logits_fp8_us": 32.0, "kda_bf16_us": 32.0, "layernorm_us": 12.0,
    "mamba2_bf16_us": 16.0, "mla_decode_bf16_us": 31.0, "mla_module_bf16_us": 31.0,
    "mla_module_fp8_us": 34.0, "mla_prefill_bf16_us": 20.0, "moe_bf16_us": 26.0,
    "moe_fp8_block_us": 31.0, "moe_fp8_us": 31.0, "moe_int4_wo_us": 51.0, "moe_nvfp4_us": 31.0,
    "moe_w4a16_mxfp4_us": 34.0, "moe_w4a8_mxfp4_mxfp8_us": 33.0, "msa_module_bf16_us": 50.0,
    "quantize_fp8_us": 25.0, "rmsnorm_us": 22.0, "rope_us": 21.0, "silu_mul_us": 18.0,
    "softmax_us": 22.0, "sparse_attention_bf16_us": 36.0, "topk_fp32_us": 27.0,
}  # fmt: skip
SUITES = (
    Suite(
        name="architectures",
        title="Kernels of architectures held out whole",
        split=(
            "each architecture with all sister chips is left out of the constants of the kernels "
            "that are scored (refitted without it, validation/scorecard/held_out); what still "
            "holds its rows: the share of bandwidth that inline ECC takes, tuned tiles of "
            "Triton's experts, and how wide intervals of streaming kernels are. Of the rows that "
            "corrections hold out, some 1,000 a device and format. Families that were not "
            "refitted (conv2d) are left out. No correction applies to an unmeasured architecture,"
            " so the learned tier is the analytic one. 'Architecture known' has constants and "
            "corrections with its own rows; NeuSight's law learns from the same other "
            "architectures; wave scaling starts from the other device that has most of the very "
            "rows measured, and answers those only."
        ),
        source=all_tables(),
        thresholds={metric: {"mean_ape": limit} for metric, limit in MEAN_APE.items()},
        predict=_score,
        both_tiers=False,
    ),
)
