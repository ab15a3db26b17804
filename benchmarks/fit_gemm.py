"""Fits the constants of dense matrix products and writes catalog/physics/gemm.json.

    OPENBLAS_NUM_THREADS=1 python benchmarks/fit_gemm.py [--dry] [--transfer] [--narrow]

Stages: 1. bf16 campaigns: constants shared by all architectures together with a few of each;
2. fp8 and fp8_block on top; 3. fp32 on FMA pipes on top, then its kernels for few rows (alone with
--narrow: all other constants stay). Robust (soft L1) on log ratios; priors pull every constant to
its start. Deterministic. Rows marked held out are never fitted, only scored.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.core.dtypes import recipe_for
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.gemm import Setting, estimate, selected
from silicast.validation.gemm_rows import (
    Rows,
    bf16_rows,
    fp32_rows,
    pipeweave_rows,
    quantised_rows,
    sample,
    vidur_rows,
)
from silicast.validation.suite import data_folder

F = NDArray[np.float64]
DATA = data_folder()
OUT = Path(__file__).resolve().parents[1] / "src/silicast/catalog/physics/gemm.json"

START = {
    "tensor_efficiency": 0.92,
    "operand_bytes_per_clock": 250.0,
    "step_s": 5e-8,
    "wave_s": 1e-7,
    "split_s": 2.5e-6,
    "launch_s": 1.9e-6,
    "fill_s": 5.5e-7,
    "dram_efficiency": 0.87,
    "core_dram_bytes_per_s": 6.0e10,
    "store_bytes_per_clock": 14.0,
    "l2_efficiency": 0.9,
    "l2_share": 0.8,
    "resident_share": 0.6,
    "quantisation": 0.3,
    "overlap_loss": 0.22,
    "l2_bytes_per_clock_per_core": 32.0,
    "stream_launch_s": 2.0e-5,
    "quantise_s": 3e-6,
    "quantise_row_s": 1e-9,
    "quantise_bytes": 3.0,
    "quantise_l2_share": 0.4,
    "extra_s": 0.0,
    "smallest_tile_m": 0.0,
    "smallest_tile_n": 0.0,
    "page_miss_share": 0.0,
    "page_reach_bytes": 1e8,
    "fp8.smallest_tile_m:pipeweave": 128.0,
}
MONOLITHIC_L2 = 0.75
"""Share of L2 that serves one buffer where the cache is not split in two partitions (Ada)."""

SPREAD = {
    "device_log_sd": 0.04, "family_log_sd": 0.03, "unmeasured_device_log_sd": 0.18,
    "unmeasured_format_log_sd": 0.18,
}  # fmt: skip
"""Error factors that all rows of a device share: the bias of whole held-out sets; of formats that
were fitted nowhere, as much again."""
HOST_SPREAD = {"stream_launch_log_sd": 0.5, "fp32.stream_launch_log_sd": 0.25}
"""Hosts differ by so much in what a call from them adds; judgement, but for fp32's fitted one."""

SHARED = (
    "operand_bytes_per_clock", "wave_s", "split_s", "fill_s", "core_dram_bytes_per_s",
    "overlap_loss",
)  # fmt: skip
OWN = (
    "launch_s", "tensor_efficiency", "dram_efficiency", "quantisation", "store_bytes_per_clock",
    "l2_efficiency", "step_s",
)  # fmt: skip
PRIOR_SD = {
    "l2_efficiency": 0.3, "tensor_efficiency": 0.05, "quantisation": 1.0,
    "operand_bytes_per_clock": 0.3, "quantise_bytes": 0.2, "quantise_s": 0.5,
}  # fmt: skip
FP32_PRIOR_SD = {
    "step_s": 2.0, "store_bytes_per_clock": 0.3, "operand_bytes_per_clock": 1.0,
    "stream_launch_s": 0.2, "split_s": 0.3, "wave_s": 0.5,
}  # fmt: skip
DEFAULT_PRIOR_SD = 1.0
PRIOR_WEIGHT = 0.6
ROWS_PER_DEVICE = 900

THROTTLED = ("pascal", "turing")
UNTHROTTLED_QUANTILE = 0.3
"""NeuSight's T4 and P4 (and some P100) training rows were taken at a lower clock than its test rows
(its README): the efficiency is set by the faster rows."""

NARROW = {
    "fp32.narrow_share": 0.6,
    "fp32.narrow_step_s": 1e-7,
    "fp32.narrow_split_s": 4e-6,
}
"""Where the kernels for few rows or columns start; the share is of the tensor efficiency."""
NARROW_LIMIT = {"": {"fp32.narrow_rows": float(1 << 25)}, "pascal": {"fp32.narrow_rows": 16.0}}
"""Up to how many rows they exist: Pascal's single products of 17 rows and more take as long as 128
(read off the training rows)."""
FP64 = {
    "fp64_fma.tensor_efficiency": 0.95, "fp64_fma.page_miss_share": 0.0,
    "fp64_fma.skinny_rows": 8.0, "fp64_fma.smallest_tile_m": 0.0, "fp64_fma.smallest_tile_n": 0.0,
}  # fmt: skip
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

Constants = dict[str, dict[str, float]]


def architecture_of(rows: Rows) -> str:
    return find_device(rows.device).architecture


def predict(rows: Rows, table: Mapping[str, float]) -> F:
    """Seconds under a flat table of constants, "recipe.name" entries included."""
    recipe = recipe_for(rows.variant.dtype)
    constants = selected(table, recipe, rows.variant.library)
    setting = Setting.of(rows.variant, find_device(rows.device), constants)
    m, n, k, batch = (x.astype(np.float64) for x in (rows.m, rows.n, rows.k, rows.batch))
    return estimate(setting, m, n, k, batch)[0]


@dataclass(frozen=True)
class Problem:
    """Which constants are free on which rows."""

    parts: Sequence[Rows]
    shared: tuple[str, ...]
    own: tuple[str, ...]
    base: Mapping[str, float]
    fixed: Mapping[str, Mapping[str, float]]
    start: Constants
    prior_sd: Mapping[str, float]

    @property
    def architectures(self) -> list[str]:
        return sorted({architecture_of(part) for part in self.parts})

    def names(self) -> list[tuple[str, str]]:
        own = [(a, name) for a in self.architectures for name in self.own]
        return [("", name) for name in self.shared] + own

    def table(self, logs: F) -> tuple[dict[str, float], Constants]:
        common = dict(self.base)
        own: Constants = {a: dict(self.fixed.get(a, {})) for a in self.architectures}
        for (architecture, name), value in zip(self.names(), np.exp(logs), strict=True):
            (own[architecture] if architecture else common)[name] = float(value)
        return common, own


def solve(problem: Problem, steps: int = 40) -> tuple[dict[str, float], Constants]:
    """Shared and own constants at the optimum."""
    names = problem.names()
    first = np.log([
        problem.start.get(a, {}).get(n, problem.fixed.get(a, {}).get(n, problem.base[n]))
        for a, n in names
    ])  # fmt: skip
    pull = PRIOR_WEIGHT / np.array([
        problem.prior_sd.get(n.split(".")[-1].split(":")[0], DEFAULT_PRIOR_SD) for _, n in names
    ])  # fmt: skip

    def residuals(logs: F) -> F:
        common, own = problem.table(logs)
        found = [
            np.log(predict(part, {**common, **own[architecture_of(part)]}) / part.seconds)
            for part in problem.parts
        ]
        return np.concatenate([*found, (logs - first) * pull])

    solution = least_squares(
        residuals, first, loss="soft_l1", f_scale=0.05, diff_step=1e-3, max_nfev=steps
    )
    return problem.table(solution.x)


def training(parts: Sequence[Rows], count: int = ROWS_PER_DEVICE) -> list[Rows]:
    picked = [sample(part.take(~part.held_out), count) for part in parts]
    return [part for part in picked if len(part)]


def score(rows: Rows, table: Mapping[str, float]) -> dict[str, float]:
    """Errors in percent; the baseline is the roofline times its median ratio on these rows."""
    ratio = predict(rows, table) / rows.seconds
    device, recipe = find_device(rows.device), recipe_for(rows.variant.dtype)
    pipe = device.matrix_pipe(recipe.compute)
    m, n, k, b = (x.astype(np.float64) for x in (rows.m, rows.n, rows.k, rows.batch))
    moved = m * k * recipe.activation_bits + n * k * recipe.weight_bits + m * n * 16.0
    roof = np.maximum(
        2 * m * n * k * b / device.peak_per_s(pipe, recipe.compute),
        moved * b / 8.0 / device.dram.bandwidth_bytes_per_s,
    )
    plain = roof / rows.seconds
    plain = plain / np.median(plain)
    errors = np.abs(ratio - 1.0)
    sd = selected(table, recipe, rows.variant.library)["independent_log_sd"]
    width = Z90 * math.sqrt(sd**2 + SPREAD["device_log_sd"] ** 2 + SPREAD["family_log_sd"] ** 2)
    return {
        "rows": len(rows),
        "mape": round(100 * float(errors.mean()), 2),
        "median": round(100 * float(np.median(errors)), 2),
        "p95": round(100 * float(np.quantile(errors, 0.95)), 1),
        "bias": round(100 * float(np.exp(np.median(np.log(ratio))) - 1), 2),
        "coverage90": round(100 * float(np.mean(np.abs(np.log(ratio)) <= width)), 1),
        "log_sd": round(float(np.std(np.log(ratio))), 4),
        "roofline_constant": round(100 * float(np.abs(plain - 1).mean()), 1),
        "campaign_spread": round(
            100 * float(np.mean((rows.high - rows.low) / rows.seconds / 2)), 1
        ),
    }


def label(rows: Rows) -> str:
    name = f"{rows.source} {rows.device} {rows.variant.dtype}"
    return f"{name} {rows.variant.library}".strip()


def report(
    title: str, parts: Sequence[Rows], common: dict[str, float], own: Constants
) -> dict[str, dict[str, float]]:
    """Held-out scores, printed and returned."""
    print(f"== {title}")
    found = {}
    for part in parts:
        held = part.take(part.held_out)
        if not len(held):
            continue
        result = score(held, {**common, **own.get(architecture_of(part), {})})
        found[label(part)] = result
        print(f"{label(part):44s}", "  ".join(f"{k} {v}" for k, v in result.items()))
    return found


def add_spread(
    parts: Sequence[Rows], common: dict[str, float], own: Constants, prefix: str
) -> tuple[dict[str, float], Constants]:
    """Independent log sd from training rows: their 90 % error, shared factors taken out."""
    shared = SPREAD["device_log_sd"] ** 2 + SPREAD["family_log_sd"] ** 2
    own = {a: dict(table) for a, table in own.items()}
    name = f"{prefix}independent_log_sd"
    for architecture in sorted({architecture_of(part) for part in parts}):
        table = {**common, **own.setdefault(architecture, {})}
        mine = [part for part in parts if architecture_of(part) == architecture]
        errors = np.concatenate([np.abs(np.log(predict(p, table) / p.seconds)) for p in mine])
        total = float(np.quantile(errors, 0.9)) / Z90
        own[architecture][name] = math.sqrt(max(total * total - shared, 0.0025))
    return {**common, **middle(own, (name,))}, own


def middle(own: Constants, names: Sequence[str]) -> dict[str, float]:
    """Geometric means over architectures: what an architecture without data gets."""
    found = {}
    for name in names:
        logs = [math.log(table[name]) for table in own.values() if name in table]
        if logs:
            found[name] = math.exp(sum(logs) / len(logs))
    return found


def rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in sorted(table.items())}


def fit_bf16(parts: Sequence[Rows]) -> tuple[dict[str, float], Constants]:
    fixed = {"ada": {"resident_share": MONOLITHIC_L2}}
    present = {architecture_of(part) for part in parts}
    fixed = {a: table for a, table in fixed.items() if a in present}
    common, own = solve(Problem(training(parts), SHARED, OWN, START, fixed, {}, PRIOR_SD))
    return add_spread(training(parts), {**common, **middle(own, OWN)}, own, "")


def fit_ga10x(
    parts: Sequence[Rows], common: dict[str, float], own: Constants
) -> tuple[dict[str, float], Constants]:
    """Ampere's workstation chips from Vidur's A40, starting at Ada, their close relative."""
    names = ("tensor_efficiency", "dram_efficiency", "quantisation", "l2_efficiency")
    base = {"ampere-ga10x": dict(own["ada"])}
    mine = [part for part in parts if part.device == "A40"]
    problem = Problem(training(mine, 1500), (), names, common, base, {}, PRIOR_SD)
    _, fitted = solve(problem)
    own = {**own, **fitted}
    common, own = add_spread(training(mine), common, own, "")
    # Stand-in for other chips with mma.sync and one small L2 slice per core: between the two.
    own["mma_sync"] = middle({a: own[a] for a in ("ada", "ampere-ga10x")}, list(own["ada"]))
    return common, own


def transfer(parts: Sequence[Rows]) -> dict[str, dict[str, float]]:
    """Every architecture predicted from constants fitted on the others."""
    found: dict[str, dict[str, float]] = {}
    for held in sorted({architecture_of(part) for part in parts}):
        common, _ = fit_bf16([part for part in parts if architecture_of(part) != held])
        if held == "ada":
            common = {**common, "resident_share": MONOLITHIC_L2}  # a fact of the chip, not fitted
        mine = [replace_held(part) for part in parts if architecture_of(part) == held]
        found |= report(f"bf16, {held} held out whole", mine, common, {})
    return found


def replace_held(rows: Rows) -> Rows:
    return replace(rows, held_out=np.ones(len(rows), dtype=np.bool_))


def fit_quantised(
    parts: Sequence[Rows], common: dict[str, float], own: Constants
) -> tuple[dict[str, float], Constants]:
    for dtype in ("fp8", "fp8_block"):
        mine = [part for part in parts if part.variant.dtype == dtype]
        names = (f"{dtype}.tensor_efficiency",)
        backends = sorted({p.variant.library for p in mine if p.variant.flags})
        shared = (
            f"{dtype}.step_s", f"{dtype}.store_bytes_per_clock", f"{dtype}.extra_s",
            f"{dtype}.operand_bytes_per_clock", f"{dtype}.split_s",
            f"{dtype}.quantise_l2_share",
            *(f"{dtype}.{n}:{x}" for x in backends
              for n in ("quantise_s", "quantise_row_s", "quantise_bytes")),
        )  # fmt: skip
        base = {**common, f"{dtype}.extra_s": 1e-6}
        start: Constants = {a: {} for a in own}
        for full in names + shared:
            plain = full.split(".")[1].split(":")[0]
            base.setdefault(full, common[plain])
            for a in own:
                start[a][full] = own[a].get(plain, common[plain])
        problem = Problem(training(mine, 500), shared, names, base, own, start, PRIOR_SD)
        common, fitted = solve(problem, steps=25)
        own = {a: fitted.get(a, own[a]) for a in own}
        common = {**common, **middle(own, names)}
        for n in ("quantise_s", "quantise_row_s", "quantise_bytes"):  # of an unnamed backend
            values = [common[f"{dtype}.{n}:{x}"] for x in backends]
            common[f"{dtype}.{n}"] = min(values)
        common, own = add_spread(training(mine, 500), common, own, f"{dtype}.")
    return common, own


def fit_fp32(
    parts: Sequence[Rows], common: dict[str, float], own: Constants
) -> tuple[dict[str, float], Constants]:
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
    fitted_parts = training(parts, 1000)
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
    merged = {a: dict(table) for a, table in own.items()}
    for architecture, table in fitted.items():
        merged.setdefault(architecture, {}).update(table)
    return add_spread(fitted_parts, common, merged, "fp32.")


def fit_narrow(parts: Sequence[Rows], common: dict[str, float], own: Constants) -> dict[str, float]:
    """The constants of kernels for few rows or columns, on top of everything else of fp32."""
    mine = []
    for part in parts:
        few = (part.batch == 1) & (np.minimum(part.m, part.n) <= NARROW_ROWS) & ~part.held_out
        if architecture_of(part) in NARROW_FITTED and few.any():
            mine.append(part.take(few))
    problem = Problem(mine, tuple(NARROW), (), common, own, {}, {})
    return solve(problem)[0]


def refit_narrow() -> None:
    """Only the constants of narrow fp32 kernels; all others stay as the file has them."""
    content = json.loads(OUT.read_text())
    default, own = content["default"], content["architectures"]
    default.update({**FP64, **SPREAD, **HOST_SPREAD})
    for architecture, limit in NARROW_LIMIT.items():
        (own[architecture] if architecture else default).update(limit)
    parts = fp32_rows(DATA)
    fitted = fit_narrow(parts, {**default, **NARROW}, own)
    default.update({name: float(f"{fitted[name]:.4g}") for name in NARROW})
    content["default"] = dict(sorted(default.items()))
    content["architectures"] = {a: dict(sorted(table.items())) for a, table in own.items()}
    content["card"]["scores"]["held-out shapes"] |= report("fp32", parts, default, own)
    content["card"]["command"] = (
        "python benchmarks/fit_gemm.py --transfer, then --narrow for fp32.narrow_*"
    )
    if "--dry" not in sys.argv:
        OUT.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    if "--narrow" in sys.argv:
        refit_narrow()
        return
    bf16 = bf16_rows(DATA)
    common, own = fit_bf16(bf16)
    scores = {"held-out shapes": report("bf16", bf16, common, own)}
    vidur = vidur_rows(DATA)
    common, own = fit_ga10x(vidur, common, own)
    scores["held-out shapes"] |= report("another laboratory, fp16", vidur, common, own)
    if "--transfer" in sys.argv:
        scores["architecture held out"] = transfer(bf16)
    if "--bf16" not in sys.argv:
        quantised = quantised_rows(DATA) + pipeweave_rows(DATA)
        common, own = fit_quantised(quantised, common, own)
        scores["held-out shapes"] |= report("fp8", quantised, common, own)
        plain = fp32_rows(DATA)
        common, own = fit_fp32(plain, common, own)
        scores["held-out shapes"] |= report("fp32", plain, common, own)
    for architecture, table in {"shared": common, **own}.items():
        print(architecture, rounded(table))
    if "--dry" not in sys.argv:
        write(common, own, scores)


def write(common: dict[str, float], own: Constants, scores: dict[str, Any]) -> None:
    content = {
        "format": 1,
        "card": {
            "data": [
                "kernels/aic_gemm_bf16_repeats.parquet (medians of campaigns)",
                "aiconfigurator/gemm.parquet (fp8, fp8_block: newest version of each backend)",
                "pipeweave/kernel_gemm_fp8.parquet (train split)",
                "serving/vidur_linear_ops.parquet (A40; other devices only scored)",
                "neusight/kernels_nvidia.parquet (linear, bmm; train split, >= 0.1 ms)",
            ],
            "split": "one in five (n, k) pairs is never fitted (aiconfigurator); the sources' own "
            "train splits elsewhere; scores are on rows that were not fitted",
            "command": "python benchmarks/fit_gemm.py --transfer",
            "date": "2026-11-21",
            "scores": scores,
            "notes": "an architecture without data has the geometric mean of the others",
        },
        "default": rounded({**common, **SPREAD, **HOST_SPREAD}),
        "architectures": {a: rounded(table) for a, table in sorted(own.items())},
        "fallback": {"blackwell-rtx": "mma_sync"},
    }
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
