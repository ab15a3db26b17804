"""Least squares on log ratios of measured matrix products: what fit_gemm.py fits with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab import fitting
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows, held_out, least_hashed
from silicast.core.dtypes import Recipe, recipe_for
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.products.candidates import fetches_in_bulk
from silicast.kernels.products.gemm import GemmSetting, estimate
from silicast.kernels.products.gemm_constants import (
    NEAREST,
    SCALED,
    SIXTEEN_BITS,
    TYPICAL_OPS,
    WIDENED_BEFORE,
    from_specification,
    maker_of,
    run_as,
    selected,
)

SPREAD = {
    "device_log_sd": 0.04,
    "family_log_sd": 0.03,
    "unmeasured_device_log_sd": 0.18,
    "unmeasured_format_log_sd": 0.25,
    "fp8.unmeasured_device_log_sd": 0.22,
    "fp8_block.unmeasured_device_log_sd": 0.3,
    "fp8_static.unmeasured_device_log_sd": 0.3,
}
"""Error factors that all rows of a device share: the bias of whole held-out sets; of formats that
were fitted nowhere, more. Those of unmeasured devices cover at least 85 % of architectures
held out whole, formats together (lab/gemm_transfer.py prints it)."""
PRIOR_SD = {
    "l2_efficiency": 0.15,
    "tensor_efficiency": 0.05,
    "quantisation": 1.0,
    "operand_bytes_per_clock": 0.3,
    "quantise_bytes": 0.2,
    "quantise_s": 0.5,
}
DEFAULT_PRIOR_SD = 1.0
PRIOR_WEIGHT = 0.6
ROWS_PER_DEVICE = 900
SAME_KIND = 3.0
SCHEDULING = ("quantisation", "l2_efficiency")
"""What comes of how kernels hand out their blocks; an architecture whose kernels fetch operands the
same way counts so many times."""
QUANTISE = ("quantise_s", "quantise_row_s", "quantise_bytes")
UNLIKE_OTHERS = ("int4_wo", "int8_wo", "sq")
"""Recipes that borrow no other's constants."""
COPIES = {"ampere-ga10x": ("tensor_efficiency", "dram_efficiency", "quantisation")}
"""Architectures whose other constants are copies, or of a chip too unlike others to be averaged
(its L2 of 6 MB): only these of theirs are."""
DIFFERENCE = 1e-2
"""Step of the logs for differences: times have kinks where tiles change."""
REACHES = (3.0, 1.0, 0.3, 0.1, 0.03)
"""Distances of the logs over which tiles and splits change: the longest reaches the constant of a
kernel that is never chosen from one that is.
"""
STEPS = 200
"""Of the solver, where a fit is not asked to be quick."""


def architecture_of(rows: MeasuredRows) -> str:
    return rows.hardware.architecture


def maker(rows: MeasuredRows) -> str:
    return maker_of(rows.batch.variant, architecture_of(rows))


def recipe_of(rows: MeasuredRows) -> Recipe:
    variant = rows.batch.variant
    return run_as(recipe_for(variant.dtype), rows.hardware, variant.kernel)


def sizes_of(rows: MeasuredRows) -> tuple[F, ...]:
    return tuple(rows.batch.dims[name].astype(np.float64) for name in ("m", "n", "k", "batch"))


def predict(rows: MeasuredRows, table: Mapping[str, float]) -> F:
    """Seconds under a flat table of constants, "recipe.name" entries included."""
    device, variant = rows.hardware, rows.batch.variant
    flat = from_specification(table, device)
    constants = selected(flat, recipe_of(rows), maker(rows), variant.kernel)
    setting = GemmSetting.from_variant(variant, device, constants)
    return estimate(setting, *sizes_of(rows))[0] * fitting.slowdowns(rows)


def log_ratio(rows: MeasuredRows, table: Mapping[str, float]) -> F:
    """log(estimate / measured)."""
    return np.log(predict(rows, table) / rows.seconds)


@dataclass(frozen=True)
class Problem:
    """Which constants are free on which rows."""

    parts: Sequence[MeasuredRows]
    shared: tuple[str, ...]
    own: tuple[str, ...]
    base: Mapping[str, float]
    fixed: Mapping[str, Mapping[str, float]]
    start: Tables
    prior_sd: Mapping[str, float]

    @property
    def architectures(self) -> list[str]:
        return sorted({architecture_of(part) for part in self.parts})

    def names(self) -> list[tuple[str, str]]:
        own_names = [(a, name) for a in self.architectures for name in self.own]
        return [("", name) for name in self.shared] + own_names

    def table(self, logs: F) -> tuple[Constants, Tables]:
        common = dict(self.base)
        tables: Tables = {a: dict(self.fixed.get(a, {})) for a in self.architectures}
        for (architecture, name), value in zip(self.names(), np.exp(logs), strict=True):
            (tables[architecture] if architecture else common)[name] = float(value)
        return common, tables


def solve(problem: Problem, steps: int = 40) -> tuple[Constants, Tables]:
    """Shared and own constants at the optimum."""
    names = problem.names()
    first = np.log(
        [
            problem.start.get(a, {}).get(n, problem.fixed.get(a, {}).get(n, problem.base[n]))
            for a, n in names
        ]
    )
    pull = PRIOR_WEIGHT / np.array(
        [problem.prior_sd.get(n.split(".")[-1].split(":")[0], DEFAULT_PRIOR_SD) for _, n in names]
    )

    def errors(logs: F, i: int) -> F:
        part = problem.parts[i]
        common, architectures = problem.table(logs)
        return log_ratio(part, {**common, **architectures[architecture_of(part)]})

    solution = fitting.fit_by_groups(
        errors,
        [len(part) for part in problem.parts],
        lambda j, i: _touches(*names[j], problem.parts[i]),
        first,
        pull,
        step=DIFFERENCE,
        reaches=REACHES,
        f_scale=0.05,
        max_nfev=steps,
    )
    return problem.table(solution.x)


def _touches(architecture: str, name: str, rows: MeasuredRows) -> bool:
    """Whether rows can depend on a constant: its architecture's, its library's."""
    of_library = name.partition(":")[2].removesuffix("bmm").removesuffix("_")
    return architecture in ("", architecture_of(rows)) and of_library in ("", maker(rows))


def training(parts: Sequence[MeasuredRows], count: int = ROWS_PER_DEVICE) -> list[MeasuredRows]:
    return [least_hashed(part, count) for part in held_out(parts, False)]


def score(rows: MeasuredRows, table: Mapping[str, float]) -> Constants:
    """Errors in percent; the baseline is the roofline times its median ratio on these rows."""
    logs = log_ratio(rows, table)
    device, variant, recipe = rows.hardware, rows.batch.variant, recipe_of(rows)
    pipe = device.matrix_pipe(recipe.compute)
    m, n, k, b = sizes_of(rows)
    moved = m * k * recipe.activation_bits + n * k * recipe.weight_bits + m * n * 16.0
    roof = np.maximum(
        2 * m * n * k * b / device.peak_per_s(pipe, recipe.compute),
        moved * b / 8.0 / device.dram.bandwidth_bytes_per_s,
    )
    plain = roof / rows.seconds
    plain = plain / np.median(plain)
    errors = np.abs(np.exp(logs) - 1.0)
    sd = selected(table, recipe, maker(rows), variant.kernel)["independent_log_sd"]
    width = Z90 * math.sqrt(sd**2 + SPREAD["device_log_sd"] ** 2 + SPREAD["family_log_sd"] ** 2)
    return {
        "rows": len(rows),
        "mape": round(100 * float(errors.mean()), 2),
        "median": round(100 * float(np.median(errors)), 2),
        "p95": round(100 * float(np.quantile(errors, 0.95)), 1),
        "bias": round(100 * float(np.exp(np.median(logs)) - 1), 2),
        "coverage90": round(100 * float(np.mean(np.abs(logs) <= width)), 1),
        "log_sd": round(float(np.std(logs)), 4),
        "roofline_constant": round(100 * float(np.abs(plain - 1).mean()), 1),
        "campaign_spread": 0.0
        if rows.noise is None
        else round(100 * float(np.nanmean(rows.noise)), 1),
    }


def label(rows: MeasuredRows) -> str:
    variant = rows.batch.variant
    source = rows.words.get("source", "aic bmm" if rows.words.get("table") == "mla_bmm" else "aic")
    name = f"{source} {rows.device} {variant.dtype}"
    if WIDENED_BEFORE in variant.kernel:
        name = f"{name} as bf16"
    return f"{name} {maker(rows)}".strip()


def report(
    title: str, parts: Sequence[MeasuredRows], common: Constants, architectures: Tables
) -> Tables:
    """Held-out scores, printed and returned."""
    print(f"== {title}")
    tables = {}
    for part in held_out(parts):
        result = score(part, {**common, **architectures.get(architecture_of(part), {})})
        tables[label(part)] = result
        print(f"{label(part):44s}", "  ".join(f"{k} {v}" for k, v in result.items()))
    return tables


def add_spread(
    parts: Sequence[MeasuredRows], common: Constants, tables: Tables, prefix: str, suffix: str = ""
) -> tuple[Constants, Tables]:
    """Independent log sd from training rows: their 90 % error, shared factors taken out."""
    shared = (SPREAD["device_log_sd"], SPREAD["family_log_sd"])
    tables = {a: dict(table) for a, table in tables.items()}
    name = f"{prefix}independent_log_sd"
    for architecture in sorted({architecture_of(part) for part in parts}):
        table = {**common, **tables.setdefault(architecture, {})}
        mine = [part for part in parts if architecture_of(part) == architecture]
        errors: dict[str, list[F]] = {maker(p): [] for p in mine}
        for part in mine:
            errors[maker(part)].append(log_ratio(part, table))
        bmm = f"_{suffix}" if suffix else ""
        marks = {f":{library}{bmm}": item for library, item in errors.items() if library}
        marks[f":{suffix}" if suffix else ""] = [
            error for item in errors.values() for error in item
        ]
        for mark, item in marks.items():
            if mark not in ("", f":{suffix}") and len(errors) == 1:
                continue
            sd = fitting.own_log_sd(np.concatenate(item), shared)
            tables[architecture][f"{name}{mark}"] = sd
    name = f"{name}:{suffix}" if suffix else name
    return {**common, **middle(tables, (name,))}, tables


def middle(tables: Tables, names: Sequence[str]) -> Constants:
    """Geometric means over architectures: what an architecture without data gets."""
    return fitting.means({n: table[n] for n in names if n in table} for table in tables.values())


def scaled(
    tables: Tables, common: Mapping[str, float], parts: Sequence[MeasuredRows], bulk: bool
) -> Constants:
    """Constants of an architecture that nobody measured, from those that were: one vote each.

    Those that :data:`~silicast.kernels.products.gemm_constants.SCALED` names are in units of the
    device;
    :func:`silicast.kernels.products.gemm_constants.from_specification` turns them back.

    Args:
        parts: rows of the architectures that are averaged.
        bulk: whether its kernels fetch operands in bulk (:func:`fetches_in_bulk`): how blocks are
            scheduled weighs :data:`SAME_KIND` on architectures of that kind. Of a library's kernels
            the median counts: a constant that an architecture's rows do not determine may lie
            anywhere. All else is a fact of chips.
    """
    devices: dict[str, set[str]] = {}
    for part in parts:
        devices.setdefault(architecture_of(part), set()).add(part.device)
    table: dict[str, list[tuple[bool, float]]] = {}
    for architecture, names in sorted(devices.items()):
        chips = [find_device(name) for name in sorted(names)]
        clock = fitting.geometric_mean(chip.clocks.boost_hz for chip in chips)
        size = max(chips[0].rate_per_core("tensor", x) for x in SIXTEEN_BITS) / TYPICAL_OPS
        alike = fetches_in_bulk(architecture) == bulk
        for name, value in tables.get(architecture, {}).items():
            plain = name.rpartition(".")[2].partition(":")[0]
            if name not in common or name.startswith("fp32.") or "log_sd" in name:
                continue
            if name not in COPIES.get(architecture, (name,)):
                continue
            new, unit = name, 1.0
            for by, (scaled_name, power) in SCALED.items():
                if plain == scaled_name:
                    new, unit = name.replace(plain, by), size**-power
                    unit *= clock if plain.endswith("_s") else 1.0
            table.setdefault(new, []).append((alike, value * unit))
    return {name: _pooled(name, values) for name, values in sorted(table.items())}


def _pooled(name: str, values: Sequence[tuple[bool, float]]) -> float:
    if ":" in name:
        return math.exp(float(np.median([math.log(value) for _, value in values])))
    weight_of_other = 1.0 / SAME_KIND if name.rpartition(".")[2] in SCHEDULING else 1.0
    weights = [1.0 if alike else weight_of_other for alike, _ in values]
    logs = (w * math.log(value) for w, (_, value) in zip(weights, values, strict=True))
    return math.exp(sum(logs) / sum(weights))


def borrowed(common: Mapping[str, float], libraries: Sequence[str]) -> Constants:
    """What recipes that were fitted nowhere take from those that were, for each library.

    Before the product: the median over libraries of the recipe that they borrow, as those kernels
    are each library's own. Around it, where they borrow none: the mean of what the library adds to
    the recipes that were fitted.
    """
    constants: Constants = {}
    fitted = sorted({name.partition(".")[0] for name in common if ".tensor_efficiency" in name})
    for recipe, before in NEAREST.items():
        values = {
            n: [common[f"{before}.{n}:{x}"] for x in libraries if f"{before}.{n}:{x}" in common]
            for n in QUANTISE
        }
        if recipe in fitted or not all(values.values()):
            continue
        for n, library_values in values.items():
            constants |= {f"{recipe}.{n}:{x}": float(np.median(library_values)) for x in libraries}
    for recipe in UNLIKE_OTHERS:
        for library in libraries:
            added = [
                common[f"{x}.quantise_s:{library}"] + common.get(f"{x}.extra_s", 0.0)
                for x in fitted
                if f"{x}.quantise_s:{library}" in common
            ]
            if added and f"{recipe}.step_s" not in common:
                constants[f"{recipe}.extra_s:{library}"] = fitting.geometric_mean(added)
    return constants
