"""Fits the constants of dense matrix products and writes catalog/physics/gemm.json.

    python -m lab.fit_gemm

Stages: 1. bf16 campaigns: constants shared by all architectures together with a few of each;
2. each narrow format on top; 3. fp32 on FMA pipes on top, then its kernels for few rows. Every
architecture's stand-in is fitted without its rows as well (lab/gemm_transfer.py). Robust (soft L1)
on log ratios; priors pull every constant to its start. Deterministic. Rows marked held out are
never fitted, only scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, Tables
from lab.gemm_formats import FORMATS, fit_bmm, fit_format
from lab.gemm_problem import (
    PRIOR_SD,
    ROWS_PER_DEVICE,
    SPREAD,
    STEPS,
    Problem,
    add_spread,
    architecture_of,
    borrowed,
    log_ratio,
    middle,
    predict,
    report,
    scaled,
    solve,
    training,
)
from lab.scorecard.rows import MeasuredRows
from lab.scorecard.suites.gemm import (
    bf16_rows,
    bmm_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    vidur_rows,
)
from silicast.kernels.products.candidates import fetches_in_bulk

START = {
    "tensor_efficiency": 0.92, "operand_bytes_per_clock": 340.0, "step_s": 5e-8, "wave_s": 1e-7,
    "split_s": 2.5e-6, "launch_s": 1.9e-6, "fill_s": 5.5e-7, "dram_efficiency": 0.87,
    "core_dram_bytes_per_s": 6.0e10, "store_bytes_per_clock": 14.0, "l2_efficiency": 0.9,
    "l2_share": 0.8, "resident_share": 0.5, "quantisation": 0.3, "overlap_loss": 0.22,
    "l2_bytes_per_clock_per_core": 32.0, "stream_launch_s": 2.0e-5, "quantise_s": 3e-6,
    "quantise_row_s": 1e-9, "quantise_bytes": 3.0, "quantise_l2_share": 0.4, "extra_s": 0.0,
    "smallest_tile_m": 0.0, "smallest_tile_n": 0.0, "page_miss_share": 0.0, "page_reach_bytes": 1e8,
    "fp8.smallest_tile_m:sgl_kernel": 128.0, "widen_ops": 1.0, "narrow_share": 0.3,
    "narrow_step_s": 2e-7, "narrow_split_s": 1.5e-5,
}  # fmt: skip
MONOLITHIC_L2 = 0.9
"""Share of L2 that serves one buffer where the cache is not split in two partitions."""
MONOLITHIC = ("ada", "blackwell-rtx")
"""Architectures whose cache is not; left free, the share is 0.96 on both."""

HOST_SPREAD = {"stream_launch_log_sd": 0.5, "fp32.stream_launch_log_sd": 0.25}
"""Hosts differ by so much in what a call from them adds; judgement, but for fp32's fitted one."""

SHARED = (
    "operand_bytes_per_clock",
    "wave_s",
    "split_s",
    "fill_s",
    "core_dram_bytes_per_s",
    "overlap_loss",
)
OWN = (
    "launch_s",
    "tensor_efficiency",
    "dram_efficiency",
    "quantisation",
    "store_bytes_per_clock",
    "l2_efficiency",
    "step_s",
)
FP32_PRIOR_SD = {
    "step_s": 2.0,
    "store_bytes_per_clock": 0.3,
    "operand_bytes_per_clock": 1.0,
    "stream_launch_s": 0.2,
    "split_s": 0.3,
    "wave_s": 0.5,
}
THROTTLED = ("pascal", "turing")
UNTHROTTLED_QUANTILE = 0.3
"""NeuSight's T4 and P4 (and some P100) training rows were taken at a lower clock than its test rows
(its README): the efficiency is set by the faster rows."""

STAND_IN = {False: "by_specification", True: "by_specification_bulk"}
"""Names of the constants of unmeasured architectures, by whether their kernels fetch in bulk."""
FALLBACK = {a: STAND_IN[fetches_in_bulk(a)] for a in ("ampere-ga10b", "maxwell", "rubin")}
"""Who takes whose: those of the same vendor and libraries."""
FMA_ONLY = ("pascal", "turing", "volta")
"""Measured in fp32 only: their tensor cores take them too."""

NARROW = {"fp32.narrow_share": 0.6, "fp32.narrow_step_s": 1e-7, "fp32.narrow_split_s": 4e-6}
"""Where the kernels for few rows or columns start; the share is of the tensor efficiency."""
NARROW_LIMIT = {"": {"fp32.narrow_rows": float(1 << 25)}, "pascal": {"fp32.narrow_rows": 16.0}}
"""Up to how many rows they exist: Pascal's single products of 17 rows and more take as long as 128
(read off the training rows)."""
FP64 = {
    "fp64_fma.tensor_efficiency": 0.95,
    "fp64_fma.page_miss_share": 0.0,
    "fp64_fma.skinny_rows": 8.0,
    "fp64_fma.smallest_tile_m": 0.0,
    "fp64_fma.smallest_tile_n": 0.0,
}
"""Not fitted, no data: fp64 on FMA pipes takes fp32's other constants, but not what was read off
fp32's throttled boards and batched kernels; a pipe this slow makes padding dear."""
NARROW_ROWS = 64
"""The narrow constants are fitted on single products of at most so many rows or columns."""
NARROW_FITTED = ("ampere", "volta")
"""Their rows: single products that narrow, on boards that were not throttled."""

NARROW_FP32_TILES = {
    "pascal": {
        "fp32.smallest_tile_m": 16.0,
        "fp32.smallest_tile_n": 128.0,
        **NARROW_LIMIT["pascal"],
    },
    "volta": {"fp32.smallest_tile_m": 16.0, "fp32.smallest_tile_n": 32.0},
    "turing": {"fp32.smallest_tile_m": 16.0, "fp32.smallest_tile_n": 32.0},
}
"""Where cuBLAS 12 runs fp32 products of fewer than 128 rows or columns without padding them to 128
(read off the training rows); from Ampere on it does not."""


def fit_bf16(
    parts: Sequence[MeasuredRows], rows: int = ROWS_PER_DEVICE, steps: int = STEPS
) -> tuple[Constants, Tables]:
    present = {architecture_of(part) for part in parts}
    fixed = {a: {"resident_share": MONOLITHIC_L2} for a in MONOLITHIC if a in present}
    common, architectures = solve(
        Problem(training(parts, rows), SHARED, OWN, START, fixed, {}, PRIOR_SD), steps
    )
    return add_spread(
        training(parts, rows), {**common, **middle(architectures, OWN)}, architectures, ""
    )


def fit_ga10x(
    parts: Sequence[MeasuredRows], common: Constants, tables: Tables
) -> tuple[Constants, Tables]:
    """Ampere's workstation chips from Vidur's A40, starting at Ada, their close relative; at the
    stand-in where Ada is held out.
    """
    names = ("tensor_efficiency", "dram_efficiency", "quantisation", "l2_efficiency")
    near = tables.get("ada", {"resident_share": MONOLITHIC_L2})
    base = {"ampere-ga10x": dict(near)}
    mine = [part for part in parts if part.device == "A40"]
    problem = Problem(training(mine, 1500), (), names, common, base, {}, PRIOR_SD)
    _, fitted = solve(problem)
    tables = {**tables, **fitted}
    common, tables = add_spread(training(mine), common, tables, "")
    others = [part for part in training(parts) if part.device != "A40"]
    biases = [
        float(np.median(log_ratio(p, {**common, **tables[architecture_of(p)]}))) for p in others
    ]
    common["fp16.borrowed_log_sd"] = math.sqrt(sum(x * x for x in biases) / len(biases))
    tables["ampere-ga10x"]["fp16.borrowed_log_sd"] = 0.0
    return common, tables


def fit_fp32(
    parts: Sequence[MeasuredRows], common: Constants, tables: Tables, rows: int = 1000
) -> tuple[Constants, Tables]:
    shared = tuple(
        f"fp32.{n}" for n in
        ("operand_bytes_per_clock", "step_s", "wave_s", "split_s", "core_dram_bytes_per_s",
         "overlap_loss", "page_reach_bytes",
         "stream_launch_s", "store_bytes_per_clock", "dram_efficiency")
    )  # fmt: skip
    names = ("fp32.tensor_efficiency", "fp32.page_miss_share")
    base = dict(common)
    for full in shared + names:
        base[full] = common[full.split(".")[1]]
    base["fp32.launch_s"] = 2e-6
    base["fp32.step_s"] = 5e-7
    base["fp32.page_miss_share"] = 0.2
    base |= {"fp32.smallest_tile_m": 128.0, "fp32.smallest_tile_n": 128.0}
    base |= {**NARROW, **NARROW_LIMIT[""], **FP64}
    fitted_parts = training(parts, rows)
    common, fitted = solve(
        Problem(fitted_parts, shared, names, base, NARROW_FP32_TILES, {}, FP32_PRIOR_SD), steps=40
    )
    for architecture, table in fitted.items():
        mine = [part for part in fitted_parts if architecture_of(part) == architecture]
        ratio = np.concatenate([part.seconds / predict(part, {**common, **table}) for part in mine])
        if architecture in THROTTLED:
            table["fp32.tensor_efficiency"] /= float(np.quantile(ratio, UNTHROTTLED_QUANTILE))
    common = fit_narrow(parts, common, fitted)
    full_speed = {a: table for a, table in fitted.items() if a not in THROTTLED}
    common = {**common, **middle(full_speed, names)}
    merged = {a: dict(table) for a, table in tables.items()}
    for architecture, table in fitted.items():
        merged.setdefault(architecture, {}).update(table)
    return add_spread(fitted_parts, common, merged, "fp32.")


def fit_narrow(parts: Sequence[MeasuredRows], common: Constants, tables: Tables) -> Constants:
    """The constants of kernels for few rows or columns, on top of everything else of fp32."""
    mine = []
    for part in parts:
        d = part.batch.dims
        few = (d["batch"] == 1) & (np.minimum(d["m"], d["n"]) <= NARROW_ROWS) & ~part.held_out
        if architecture_of(part) in NARROW_FITTED and few.any():
            mine.append(part.take(few))
    problem = Problem(mine, tuple(NARROW), (), common, tables, {}, {})
    return solve(problem)[0]


def with_stand_in(common: Constants, tables: Tables, parts: Sequence[MeasuredRows]) -> Tables:
    """And what architectures get of whose tensor cores nothing was fitted: scaled constants."""
    libraries = sorted({name.partition(":")[2] for name in common if ".step_s:" in name})
    taken = borrowed(common, libraries)
    stand_in = {STAND_IN[x]: {**scaled(tables, common, parts, x), **taken} for x in (False, True)}
    unknown = {a: {**tables[a], **stand_in[STAND_IN[False]]} for a in FMA_ONLY if a in tables}
    return {**tables, **stand_in, **unknown}


Groups = dict[str, list[MeasuredRows]]
"""Rows of every stage of the fit, those held out among them."""


class Products(Fitter[Groups]):
    """Dense matrix products."""

    group = "gemm"
    capped = True
    data = (
        "kernels/aic_gemm_bf16_repeats.parquet (medians of campaigns)",
        "aiconfigurator/gemm.parquet (fp8, fp8_block, nvfp4: newest of each backend)",
        "aiconfigurator/gemm.parquet (fp8_block on Blackwell: kernels of earlier releases)",
        "aiconfigurator/gemm.parquet (fp8_static, int4_wo, int8_wo, sq: the only one)",
        "aiconfigurator/mla_bmm.parquet (newest of each backend)",
        "pipeweave/kernel_gemm_fp8.parquet (train split)",
        "serving/vidur_linear_ops.parquet (A40; other devices only scored)",
        "neusight/kernels_nvidia.parquet (linear, bmm; train split, >= 0.1 ms)",
    )
    split = (
        "one in five (n, k) pairs is never fitted (aiconfigurator); the sources' own train splits "
        "elsewhere; scores are on rows that were not fitted"
    )
    notes = (
        "an architecture without data has the geometric mean of the others; NVIDIA's have the "
        "means of scaled constants"
    )

    def __init__(self) -> None:
        self.known: tuple[Constants, Tables] | None = None

    def rows(self, data: Path) -> Groups:
        return {
            "bf16": bf16_rows(data),
            "another laboratory, fp16": vidur_rows(data),
            "narrow formats": quantised_rows(data, tuple(f.dtype for f in FORMATS), early=True)
            + pipeweave_rows(data),
            "batched calls": bmm_rows(data),
            "fp32": fp32_rows(data),
        }

    def fit(self, rows: Groups) -> Body:
        common, architectures = fit_bf16(rows["bf16"])
        common, architectures = fit_ga10x(rows["another laboratory, fp16"], common, architectures)
        for form in FORMATS:
            common, architectures = fit_format(form, rows["narrow formats"], common, architectures)
        common, architectures = fit_bmm(rows["batched calls"], common, architectures)
        common, architectures = fit_fp32(rows["fp32"], common, architectures)
        architectures = with_stand_in(
            common, architectures, rows["bf16"] + rows["another laboratory, fp16"]
        )
        return body(common, architectures, FALLBACK)

    def scores(self, rows: Groups, body: Body) -> dict[str, Any]:
        tables: Tables = {}
        for title, parts in rows.items():
            tables |= report(title, parts, body["default"], body["architectures"])
        return {"held-out shapes": tables}

    def left_out(self, rows: Groups, body: Body) -> tuple[str, ...]:
        return (*MONOLITHIC, "ampere-ga10x", "ampere", "blackwell", "hopper", *FMA_ONLY)

    def without(self, rows: Groups, architecture: str, body: Body) -> Body:
        from lab import gemm_transfer

        if architecture in FMA_ONLY and self.known is None:
            self.known = gemm_transfer.fit_tensor(rows, "")
        tensor_constants = self.known if architecture in FMA_ONLY else None
        return gemm_transfer.hold_out(rows, architecture, tensor_constants)


def body(common: Constants, tables: Tables, fallback: dict[str, str]) -> Body:
    """Default, architectures and fallback of a constants file."""
    return fitting.body({**common, **SPREAD, **HOST_SPREAD}, tables, fallback)


if __name__ == "__main__":
    Products().run()
