"""Architectures held out whole: what a device gets of whose kind nothing was ever measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.learning.training import MeasuredKernels
from silicast.validation.baselines.neusight import NeuSight
from silicast.validation.baselines.wave_scaling import WaveScaling
from silicast.validation.held_out import groups, held_out, unmeasured
from silicast.validation.held_rows import (
    Parts,
    Predicted,
    by_device,
    model_of,
    predicted,
    scored,
    some_rows,
)
from silicast.validation.source import all_tables
from silicast.validation.suite import Scored, Suite, register_suite

ROWS = 1000
"""Of each metric and device, about."""
FEW_PARTS = 16
"""Parts of each metric and device that a sample reads."""
LEARNT_FROM = 2000
"""Rows of each other device that baselines learn from."""

Say = Callable[[MeasuredKernels], F64]
_Key = tuple[str, str]


@register_suite
@final
class Architectures(Suite):
    """The analytic tier with constants that were fitted without the architecture."""

    name: ClassVar[str] = "architectures"
    title: ClassVar[str] = "Kernels of architectures held out whole"
    split: ClassVar[str] = (
        "each architecture with all sister chips is left out of the constants of the kernels that "
        "are scored (refitted without it, src/silicast/validation/held_out); what still holds its "
        "rows: the share of bandwidth that inline ECC takes, tuned tiles of Triton's experts, and "
        "how wide intervals of streaming kernels are. Of the rows that corrections hold out, some "
        "1,000 a device and format. Families that were not refitted (conv2d) are left out. No "
        "correction applies to an unmeasured architecture, so the learned tier is the analytic "
        "one. 'Architecture known' has constants and corrections with its own rows; NeuSight's law "
        "learns from the same other architectures; wave scaling starts from the other device that "
        "has most of the very rows measured, and answers those only."
    )
    source: ClassVar[tuple[str, ...]] = all_tables()
    both_tiers: ClassVar[bool] = False
    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "attention_decode_bf16_us": {"mean_ape": 36.0},
        "attention_prefill_bf16_us": {"mean_ape": 28.0},
        "attention_prefill_fp8_us": {"mean_ape": 35.0},
        "combine_bf16_us": {"mean_ape": 26.0},
        "combine_fp8_us": {"mean_ape": 54.0},
        "combine_nvfp4_us": {"mean_ape": 69.0},
        "csa_module_bf16_us": {"mean_ape": 23.0},
        "dispatch_bf16_us": {"mean_ape": 34.0},
        "dispatch_fp8_us": {"mean_ape": 70.0},
        "dispatch_nvfp4_us": {"mean_ape": 91.0},
        "dsa_module_bf16_us": {"mean_ape": 55.0},
        "elementwise_us": {"mean_ape": 14.0},
        "embedding_us": {"mean_ape": 23.0},
        "gdn_bf16_us": {"mean_ape": 32.0},
        "gemm_bf16_us": {"mean_ape": 14.0},
        "gemm_fp16_us": {"mean_ape": 16.0},
        "gemm_fp32_us": {"mean_ape": 22.0},
        "gemm_fp8_block_us": {"mean_ape": 26.0},
        "gemm_fp8_static_us": {"mean_ape": 37.0},
        "gemm_fp8_us": {"mean_ape": 21.0},
        "gemm_int4_wo_us": {"mean_ape": 40.0},
        "gemm_int8_wo_us": {"mean_ape": 38.0},
        "gemm_nvfp4_us": {"mean_ape": 41.0},
        "gemm_sq_us": {"mean_ape": 43.0},
        "hca_module_bf16_us": {"mean_ape": 14.0},
        "indexer_logits_fp8_us": {"mean_ape": 32.0},
        "kda_bf16_us": {"mean_ape": 32.0},
        "layernorm_us": {"mean_ape": 12.0},
        "mamba2_bf16_us": {"mean_ape": 16.0},
        "mla_decode_bf16_us": {"mean_ape": 31.0},
        "mla_module_bf16_us": {"mean_ape": 31.0},
        "mla_module_fp8_us": {"mean_ape": 34.0},
        "mla_prefill_bf16_us": {"mean_ape": 20.0},
        "moe_bf16_us": {"mean_ape": 26.0},
        "moe_fp8_block_us": {"mean_ape": 31.0},
        "moe_fp8_us": {"mean_ape": 31.0},
        "moe_int4_wo_us": {"mean_ape": 51.0},
        "moe_nvfp4_us": {"mean_ape": 31.0},
        "moe_w4a16_mxfp4_us": {"mean_ape": 34.0},
        "moe_w4a8_mxfp4_mxfp8_us": {"mean_ape": 33.0},
        "msa_module_bf16_us": {"mean_ape": 50.0},
        "quantize_fp8_us": {"mean_ape": 25.0},
        "rmsnorm_us": {"mean_ape": 22.0},
        "rope_us": {"mean_ape": 21.0},
        "silu_mul_us": {"mean_ape": 18.0},
        "softmax_us": {"mean_ape": 22.0},
        "sparse_attention_bf16_us": {"mean_ape": 36.0},
        "topk_fp32_us": {"mean_ape": 27.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One metric a family and format."""
        rows = by_device(data)
        wanted = {architecture for group in groups() for architecture in held_out(group)}
        found: dict[str, list[Predicted]] = {}
        origins: dict[_Key, WaveScaling] = {}
        for metric, device in rows:
            if find_device(device).architecture in wanted:
                more = _device_rows(rows, metric, device, limit, origins)
                found.setdefault(metric, []).extend(more)
        return [scored(metric, found[metric]) for metric in sorted(found) if found[metric]]


def _device_rows(
    rows: Mapping[_Key, Parts],
    metric: str,
    device: str,
    limit: int | None,
    origins: dict[_Key, WaveScaling],
) -> Iterator[Predicted]:
    """Rows of one metric and device; none if its family was not fitted without it."""
    count = ROWS if limit is None else max(10, limit // 4)
    parts = rows[metric, device]
    if limit is not None:
        parts = parts[:: math.ceil(len(parts) / FEW_PARTS)]
    parts = some_rows(parts, count, held_out=True)
    architecture = find_device(device).architecture
    known = [predicted(part).estimate_s for part in parts]
    with unmeasured(architecture):
        unknown = [predicted(part) for part in parts]
    if not parts or any(times.measured for times in unknown):
        return
    ways = _none() if limit is not None else _ways(rows, metric, architecture, parts, origins)
    for part, without, own in zip(parts, unknown, known, strict=True):
        others = {name: say(part) for name, say in ways.items()}
        yield Predicted(part, without, {"architecture known": own, **others})


def _ways(
    rows: Mapping[_Key, Parts],
    metric: str,
    architecture: str,
    parts: Parts,
    origins: dict[_Key, WaveScaling],
) -> dict[str, Say]:
    """Baselines that know the other architectures only; ``origins`` remembers tables of devices."""
    others = [
        key for key in rows if key[0] == metric and find_device(key[1]).architecture != architecture
    ]
    if not others:
        return _none()
    model = model_of(parts[0])
    taught = [part for key in others for part in some_rows(rows[key], LEARNT_FROM, held_out=False)]
    for key in others:
        if key not in origins:
            origins[key] = WaveScaling(model, rows[key])
    origin = max((origins[key] for key in others), key=lambda each: each.reach(parts))
    law = NeuSight(model, taught).seconds if taught else _unanswered
    return {"NeuSight's law": law, "wave scaling": origin.seconds}


def _none() -> dict[str, Say]:
    return {"NeuSight's law": _unanswered, "wave scaling": _unanswered}


def _unanswered(part: MeasuredKernels) -> F64:
    return np.full(len(part.seconds), np.nan)
