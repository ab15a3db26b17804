"""Layers of experts: three engines' kernels in seven formats, and Triton's first product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, final

import msgspec
import numpy as np

from silicast.core.dtypes import recipe_for
from silicast.core.numerics import F64
from silicast.core.prediction import ErrorFactors, Quantity
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.moe import PHYSICS, Moe, distribution_of
from silicast.kernels.physics import Physics, load_physics, replaced
from silicast.validation.suite import Scored, Suite, register_suite, timed
from silicast.validation.suites._moe_rows import (
    Rows,
    aic_rows,
    fused_rows,
    pipeweave_rows,
    sample,
    wide_cutlass_rows,
    wide_rows,
)
from silicast.validation.suites._wide_mlp_rows import MlpRows, mlp_rows
from silicast.workload.op import OpBatch

HELD_OUT = Path(__file__).parents[1] / "held_out"
_CARD = load_physics(PHYSICS).card
ROWS_PER_GROUP = 400
"""Rows read of each device, campaign, format, kernel and routing distribution."""


@register_suite
@final
class ExpertLayers(Suite):
    """Only rows that nothing was fitted on; whole layers and the first product apart."""

    name: ClassVar[str] = "moe"
    title: ClassVar[str] = "Layers of experts"
    split: ClassVar[str] = (
        "one in five layers (experts, topk, hidden, intermediate) is never fitted on any device, "
        "in any format or campaign (layer_us, w13_us). Of the other layers one share of a rank in "
        "five (layer, ep, tp) is never fitted either (shape_us), and of the first product one "
        "problem in five (tokens and layer: w13_problem_us). w13_device_us: constants fitted "
        "without any device of the architecture, no corrections. At most one in forty rows of a "
        "campaign is read. Wide expert parallelism and kernels that hold the exchange: SGLang's "
        "layers by pairs of tokens and ranks; nothing was fitted on TensorRT-LLM's."
    )
    source: ClassVar[tuple[str, ...]] = (
        "aiconfigurator/moe.parquet",
        "pipeweave/kernel_moe_w13.parquet",
        "aiconfigurator/wideep_context_moe.parquet",
        "aiconfigurator/wideep_generation_moe.parquet",
        "aiconfigurator/wideep_moe.parquet",
        "aiconfigurator/dsv4_megamoe_module.parquet",
        "aiconfigurator/wideep_context_mlp.parquet",
        "aiconfigurator/wideep_generation_mlp.parquet",
    )

    thresholds: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "layer_us": {"mean_ape": 16.0, "bias_pct": 8.0},
        "shape_us": {"mean_ape": 11.0, "bias_pct": 5.0},
        "w13_us": {"mean_ape": 9.0, "bias_pct": 8.0},
        "w13_problem_us": {"mean_ape": 6.0, "bias_pct": 3.0},
        "w13_device_us": {"mean_ape": 20.0, "bias_pct": 15.0},
        "wide_sglang_us": {"mean_ape": 14.0, "bias_pct": 8.0},
        "wide_unnamed_us": {"mean_ape": 24.0, "bias_pct": 12.0},
        "wide_trtllm_us": {"mean_ape": 24.0, "bias_pct": 14.0},
        "fused_exchange_us": {"mean_ape": 15.0, "bias_pct": 8.0},
        "wide_shared_us": {"mean_ape": 30.0, "bias_pct": 15.0},
    }

    def score(self, data: Path, limit: int | None = None) -> list[Scored]:
        """One row a measured layer, device and campaign."""
        count = ROWS_PER_GROUP if limit is None else max(4, limit // 150)
        whole = aic_rows(data, count, held_out=True, known_layer=False)
        shapes = aic_rows(data, count, held_out=True, known_layer=True)
        first = pipeweave_rows(data, 10 * count, held_out=True, known_layer=False)
        problems = pipeweave_rows(data, 10 * count, held_out=True, known_layer=True)
        devices = pipeweave_rows(data, 2 * count)
        wide = wide_rows(data, count, held_out=True)
        unnamed = wide_rows(data, count, held_out=True, named=False)
        cutlass = wide_cutlass_rows(data, count)
        return [
            _scored("layer_us", whole, limit),
            _scored("shape_us", shapes, limit),
            _scored("w13_us", first, limit),
            _scored("w13_problem_us", problems, limit),
            _scored("w13_device_us", devices, limit, unknown_times),
            _scored("wide_sglang_us", wide, limit),
            _scored("wide_unnamed_us", unnamed, limit),
            _scored("wide_trtllm_us", cutlass, limit),
            _scored("fused_exchange_us", fused_rows(data, held_out=True), limit),
            _scored_mlp(mlp_rows(data)),
        ]


def roofline_s(rows: Rows) -> F64:
    """The larger of two times: operations of an even share at the peak rate, and the weights of
    the experts hit with tokens in and out at the datasheet bandwidth.
    """
    device, recipe = find_device(rows.device), recipe_for(rows.variant.dtype)
    d = {name: values.astype(np.float64) for name, values in rows.dims.items()}
    widths = 3.0 if rows.variant.flag("gated", True) else 2.0
    if rows.variant.flag("w13"):
        widths -= 1.0
    assigned = d["tokens"] * d["topk"]
    weights = d["hidden"] * d["intermediate"] / d["tp"] * widths
    peak = device.peak_per_s(device.matrix_pipe(recipe.compute), recipe.compute)
    hit = np.minimum(d["experts"], assigned) / d["ep"]
    moved = np.maximum(hit, 1.0) * weights * recipe.weight_bits / 8.0
    moved = moved + d["tokens"] * d["hidden"] * 4.0
    return np.maximum(
        2.0 * assigned / d["ep"] * weights / peak, moved / device.dram.bandwidth_bytes_per_s
    )


def known_times(part: Rows) -> KernelTimes:
    """As a prediction is made: both tiers."""
    return timed(Moe(), OpBatch("moe", part.variant, part.dims), find_device(part.device))


def unknown_times(part: Rows) -> KernelTimes:
    """As if nobody had measured any device of the architecture: the analytic tier alone."""
    device = find_device(part.device)
    with replaced({PHYSICS: _without(device.architecture)}):
        return Moe().times(OpBatch("moe", part.variant, part.dims), device)


def _without(architecture: str) -> Physics:
    """Constants for which no row of an architecture was looked at (benchmarks/fit_moe.py)."""
    bodies = msgspec.json.decode((HELD_OUT / f"{PHYSICS}.json").read_bytes())
    return msgspec.convert({**bodies[architecture], "format": 1, "card": _CARD}, Physics)


def _scored(
    metric: str,
    parts: Sequence[Rows],
    limit: int | None,
    times_of: Callable[[Rows], KernelTimes] = known_times,
) -> Scored:
    parts = [part for part in parts if len(part)]
    if limit is not None:
        parts = [sample(part, max(3, limit // len(parts))) for part in parts]
    times = [times_of(part) for part in parts]
    tokens = np.concatenate([part.sizes[0] for part in parts])

    def label(names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        return np.repeat(np.array(names), [len(part) for part in parts])

    return Scored(
        metric=metric,
        measured=1e6 * np.concatenate([part.seconds for part in parts]),
        estimate=1e6 * np.concatenate([found.estimate_s for found in times]),
        p05=1e6 * np.concatenate([found.p05_s for found in times]),
        p95=1e6 * np.concatenate([found.p95_s for found in times]),
        roofline=1e6 * np.concatenate([roofline_s(part) for part in parts]),
        groups={
            "device": label([part.device for part in parts]),
            "style": label([part.style for part in parts]),
            "format": label([part.variant.dtype for part in parts]),
            "routing": label([distribution_of(part.variant) for part in parts]),
            "regime": np.where(
                tokens <= 64, "tokens <= 64", np.where(tokens <= 1024, "65-1024", "> 1024")
            ),
        },
    )


def _scored_mlp(parts: Sequence[MlpRows]) -> Scored:
    """Three kernels in a row: their errors add up as those of the parts of a step do."""
    quantities = [_of_three(part, i) for part in parts for i in range(len(part.seconds))]
    counts = [len(part.seconds) for part in parts]
    return Scored(
        metric="wide_shared_us",
        measured=1e6 * np.concatenate([part.seconds for part in parts]),
        estimate=1e6 * np.array([q.estimate for q in quantities]),
        p05=1e6 * np.array([q.p05 for q in quantities]),
        p95=1e6 * np.array([q.p95 for q in quantities]),
        roofline=1e6 * np.concatenate([part.roofline for part in parts]),
        groups={
            "device": np.repeat(np.array([part.device for part in parts]), counts),
            "phase": np.repeat(np.array([part.phase for part in parts]), counts),
        },
    )


def _of_three(part: MlpRows, row: int) -> Quantity:
    terms = [
        (
            float(times.estimate_s[row]),
            ErrorFactors(times.shared_log_sd, float(times.independent_log_sd[row])),
        )
        for times in part.kernels
    ]
    total = sum(seconds for seconds, _ in terms)
    return Quantity.around(total, ErrorFactors.of_sum(terms).log_sd)
