"""Fits the constants of expert layers and writes catalog/physics/moe.json.

    OPENBLAS_NUM_THREADS=1 python benchmarks/fit_moe.py [--dry] [--transfer]

One problem a style of kernel: constants that all architectures share, some of each architecture,
some of each architecture and number format. Robust (soft L1) on log ratios; priors pull every
constant to its start. Deterministic. Layers marked held out are never fitted, only scored.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.moe import Columns, Setting, layer_of, setting_with, throttled
from silicast.kernels.moe_model import Layer, estimate
from silicast.kernels.moe_recipes import EXCHANGES
from silicast.validation.suite import data_folder
from silicast.validation.suites._moe_rows import (
    Rows,
    aic_rows,
    fused_rows,
    pipeweave_rows,
    wide_rows,
)

F = NDArray[np.float64]
DATA = data_folder()
OUT = Path(__file__).resolve().parents[1] / "src/silicast/catalog/physics/moe.json"
ROWS = 160
"""Rows of each device, backend, version, kernel, format and distribution that are fitted."""

START = {
    "tensor_efficiency": 0.75, "operand_bytes_per_clock": 250.0, "unpack_per_clock": 100.0,
    "quantisation": 0.5, "store_bytes_per_clock": 20.0, "step_s": 5e-8, "wave_s": 1e-7,
    "l2_efficiency": 0.8, "core_dram_bytes_per_s": 5e10, "dram_efficiency": 0.85,
    "overlap_loss": 0.25, "smallest_tile": 8.0, "largest_tile": 128.0, "resident_share": 0.7,
    "weight_copies": 1.0, "launch_s": 2e-6, "around_s": 1.5e-5, "gather_passes": 1.0,
    "middle_passes": 1.0, "sum_passes": 1.0, "stream_l2_share": 0.3, "choice_s": 1e-10,
    "expert_s": 1e-9, "unaligned": 1.2, "ramp_s": 2e-6, "foreign_share": 0.05,
    "l2_bytes_per_clock_per_core": 32.0, "exchange_exposed": 0.3,
}  # fmt: skip
STYLE_START = {
    "triton.foreign_share": 0.9, "triton_sglang.foreign_share": 0.9,
    "triton_sglang_early.foreign_share": 0.9, "triton_sglang_early.smallest_tile": 16.0,
    "marlin.foreign_share": 0.5,
    "oai_triton.smallest_tile": 16.0, "oai_triton_trtllm.smallest_tile": 16.0,
    "triton.smallest_tile": 16.0, "triton_sglang.smallest_tile": 16.0,
    "ada.resident_share": 0.95,
}  # fmt: skip
SPREAD = {"device_log_sd": 0.06, "family_log_sd": 0.05, "unmeasured_device_log_sd": 0.2}
UNSEEN = 1.06
"""Layers that were not fitted err so much more than those that were."""

CEILING = {
    "tensor_efficiency": 1.0, "dram_efficiency": 0.95, "foreign_share": 1.1, "quantisation": 1.0,
    "overlap_loss": 1.0, "l2_efficiency": 1.5, "stream_l2_share": 1.0, "resident_share": 1.0,
}  # fmt: skip

SHARED = (
    "operand_bytes_per_clock", "quantisation", "store_bytes_per_clock", "step_s", "wave_s",
    "overlap_loss", "gather_passes", "middle_passes", "sum_passes",
    "choice_s", "expert_s", "foreign_share", "stream_l2_share",
    "unaligned",
)  # fmt: skip
OWN = ("ramp_s", "core_dram_bytes_per_s", "l2_efficiency", "resident_share", "middle_passes")
FORMAT = ("tensor_efficiency", "dram_efficiency", "around_s", "step_s")
UNPACKED = ("unpack_per_clock",)
EXCHANGED = ("exchange_exposed",)
"""Of styles whose kernel holds the exchange between ranks."""
PRIOR_SD = {
    "tensor_efficiency": 0.4, "dram_efficiency": 0.3, "foreign_share": 0.5, "overlap_loss": 0.5,
    "resident_share": 0.2, "l2_efficiency": 0.4, "middle_passes": 0.5, "step_s": 0.7,
}  # fmt: skip
PRIOR_WEIGHT = 0.25

Tables = dict[str, dict[str, float]]
"""Architecture -> qualified constant name -> value; "" = of all."""


@dataclass(frozen=True)
class Group:
    """Rows that share a setting: device, style, format, part and gate."""

    setting: Setting
    architecture: str
    layer: Layer
    seconds: F

    @property
    def dtype(self) -> str:
        return self.setting.recipe.name


def grouped(parts: Sequence[Rows]) -> dict[str, list[Group]]:
    """Groups by style; the layers are worked out once, whatever the constants."""
    base = {**START, **SPREAD, "independent_log_sd": 0.2, "skewed_log_sd": 0.1}
    found: dict[tuple[Any, ...], list[tuple[Setting, Rows]]] = defaultdict(list)
    for part in parts:
        if len(part):
            setting = setting_with(part.variant, find_device(part.device), base)
            key = (part.device, setting.style, setting.machine)
            found[key].append((setting, part))
    styles: dict[str, list[Group]] = defaultdict(list)
    for items in found.values():
        setting = items[0][0]
        layers = [layer_of(one, columns(part)) for one, part in items]
        seconds = np.concatenate([part.seconds for _, part in items])
        layer = Layer.join(layers)
        styles[setting.style].append(Group(setting, setting.device.architecture, layer, seconds))
    return dict(sorted(styles.items()))


def columns(part: Rows) -> Columns:
    d = part.dims
    return Columns(
        d["tokens"], d["experts"], np.minimum(d["topk"], d["experts"]), d["hidden"],
        -(-d["intermediate"] // d["tp"]), d["ep"],
    )  # fmt: skip


def log_ratio(group: Group, constants: Mapping[str, float]) -> F:
    """log(estimate / measured)."""
    found = estimate(group.layer, group.setting.machine, constants)
    return np.log(throttled(group.setting, group.layer, found) / group.seconds)


@dataclass(frozen=True)
class Parameter:
    """One free constant: of an architecture ("" = all) and a format ("" = all)."""

    architecture: str
    dtype: str
    name: str

    def touches(self, group: Group) -> bool:
        return self.architecture in ("", group.architecture) and self.dtype in ("", group.dtype)


def parameters(groups: Sequence[Group]) -> list[Parameter]:
    found = [Parameter("", "", name) for name in SHARED]
    if any(g.setting.style in EXCHANGES for g in groups):
        found += [Parameter("", "", name) for name in EXCHANGED]
    for a in sorted({g.architecture for g in groups}):
        found += [Parameter(a, "", name) for name in OWN]
        for dtype in sorted({g.dtype for g in groups if g.architecture == a}):
            unpacked = any(
                g.setting.machine.unpacks for g in groups if (g.architecture, g.dtype) == (a, dtype)
            )
            found += [Parameter(a, dtype, name) for name in FORMAT + (UNPACKED if unpacked else ())]
    return found


def start_of(style: str, architecture: str, name: str) -> float:
    for key in (f"{architecture}.{name}", f"{style}.{name}", name):
        if key in STYLE_START:
            return STYLE_START[key]
    return START[name]


def constants_of(
    group: Group, style: str, free: Sequence[Parameter], values: F
) -> dict[str, float]:
    table = {name: start_of(style, group.architecture, name) for name in START}
    for p, value in zip(free, values, strict=True):  # from the general to the specific
        if p.touches(group):
            table[p.name] = min(float(value), CEILING.get(p.name, math.inf))
    return table


def solve(style: str, groups: Sequence[Group], steps: int) -> tuple[list[Parameter], F]:
    """Free constants of one style at the optimum."""
    free = parameters(groups)
    first = np.log([start_of(style, p.architecture, p.name) for p in free])
    pull = PRIOR_WEIGHT * np.array([
        (1.0 if p.dtype or not p.architecture else 2.0) / PRIOR_SD.get(p.name, 1.0) for p in free
    ])  # fmt: skip
    weights = [1.0 / math.sqrt(max(1.0, len(g.seconds) / 600.0)) for g in groups]
    ends = np.concatenate(([0], np.cumsum([len(g.seconds) for g in groups]))).astype(int)

    def one(i: int, logs: F) -> F:
        table = constants_of(groups[i], style, free, np.exp(logs))
        return weights[i] * log_ratio(groups[i], table)

    def residuals(logs: F) -> F:
        found = [one(i, logs) for i in range(len(groups))]
        return np.concatenate([*found, (logs - first) * pull])

    def jacobian(logs: F) -> F:
        rows = int(ends[-1])
        matrix = np.zeros((rows + len(free), len(free)))
        base = [one(i, logs) for i in range(len(groups))]
        for j, parameter in enumerate(free):
            moved = logs.copy()
            moved[j] -= 1e-3
            for i, group in enumerate(groups):
                if parameter.touches(group):
                    matrix[ends[i] : ends[i + 1], j] = (base[i] - one(i, moved)) / 1e-3
            matrix[rows + j, j] = pull[j]
        return matrix

    solution = least_squares(
        residuals, first, jac=jacobian, loss="soft_l1", f_scale=0.1, max_nfev=steps
    )
    return free, np.exp(solution.x)


def fit(styles: Mapping[str, Sequence[Group]], steps: int = 30) -> Tables:
    """All constants: those shared by a style, and those of each architecture."""
    tables: Tables = {"": dict(START)}
    for name, value in STYLE_START.items():
        head, _ = name.split(".")
        if head in styles:
            tables[""][name] = value
    for style, groups in styles.items():
        free, values = solve(style, groups, steps)
        for p, value in zip(free, values, strict=True):
            prefix = f"{style}.{p.dtype}." if p.dtype else f"{style}."
            capped = min(float(value), CEILING.get(p.name, math.inf))
            tables.setdefault(p.architecture, {})[prefix + p.name] = capped
        spread(style, groups, tables)
    for table in tables.values():  # what was only measured in an early version stands in
        for name, value in list(table.items()):
            style, dot, rest = name.partition(".")
            if style.endswith("_early"):
                table.setdefault(style.removesuffix("_early") + dot + rest, value)
    return tables


def merged(tables: Tables, architecture: str) -> dict[str, float]:
    return {**tables[""], **tables.get(architecture, {})}


def plain(table: Mapping[str, float], style: str, dtype: str) -> dict[str, float]:
    from silicast.kernels.moe import selected

    return selected(table, style, dtype)


def spread(style: str, groups: Sequence[Group], tables: Tables) -> None:
    """Independent log sd per architecture and format: the 90 % error of the fitted rows."""
    shared = SPREAD["device_log_sd"] ** 2 + SPREAD["family_log_sd"] ** 2
    errors: dict[tuple[str, str], list[F]] = defaultdict(list)
    for group in groups:
        table = plain(merged(tables, group.architecture), style, group.dtype)
        errors[group.architecture, group.dtype].append(log_ratio(group, table))
    for (architecture, dtype), found in errors.items():
        total = float(np.quantile(np.abs(np.concatenate(found)), 0.9)) / Z90
        own = math.sqrt(max((UNSEEN * total) ** 2 - shared, 0.0025))
        tables[architecture][f"{style}.{dtype}.independent_log_sd"] = own


def with_defaults(tables: Tables) -> Tables:
    """Adds to the shared table the geometric mean over architectures of every constant of theirs;
    what no architecture has in a format comes from the style's other formats."""
    common = dict(tables[""])
    found: dict[str, list[float]] = defaultdict(list)
    for architecture, table in tables.items():
        if architecture:
            for name, value in table.items():
                style, *_, last = name.split(".")
                found[name].append(value)
                found[f"{style}.{last}"].append(value)
                if last == "independent_log_sd":
                    found[last].append(value)
    for name, values in found.items():
        mean = math.exp(sum(math.log(value) for value in values) / len(values))
        common.setdefault(name, mean)
    return {**tables, "": {**common, **SPREAD}}


def evaluate(
    styles: Mapping[str, Sequence[Group]], tables: Tables, device: str = "device_log_sd"
) -> dict[str, dict[str, float]]:
    """Errors in percent by device, style and format; ``device``: the shared error of devices."""
    found = {}
    for style, groups in styles.items():
        for group in groups:
            table = plain(merged(tables, group.architecture), style, group.dtype)
            logs = log_ratio(group, table)
            sd = math.sqrt(
                table["independent_log_sd"] ** 2 + SPREAD[device] ** 2
                + SPREAD["family_log_sd"] ** 2
            )  # fmt: skip
            part = "" if group.setting.machine.part == "full" else f" {group.setting.machine.part}"
            gate = "" if group.setting.machine.gated else " ungated"
            name = f"{group.setting.device.name} {style} {group.dtype}{part}{gate}"
            found[name] = {
                "rows": len(logs),
                "mape": round(100 * float(np.mean(np.abs(np.exp(logs) - 1))), 1),
                "median": round(100 * float(np.median(np.abs(np.exp(logs) - 1))), 1),
                "bias": round(100 * float(np.exp(np.median(logs)) - 1), 1),
                "log_sd": round(float(np.std(logs)), 3),
                "coverage90": round(100 * float(np.mean(np.abs(logs) <= Z90 * sd)), 1),
            }
    return dict(sorted(found.items()))


def show(title: str, scores: Mapping[str, Mapping[str, float]]) -> None:
    print(f"== {title}")
    for name, row in scores.items():
        print(f"{name:62s}", "  ".join(f"{k} {v}" for k, v in row.items()))
    count = np.array([row["rows"] for row in scores.values()])
    for name in ("mape", "coverage90"):
        values = np.array([row[name] for row in scores.values()])
        print(f"{title}: mean {name} {float((values * count).sum() / count.sum()):.1f}")


def transfer(parts: Sequence[Rows]) -> dict[str, Any]:
    """Every architecture predicted from constants fitted on the others."""
    found: dict[str, Any] = {}
    few = grouped([replace_few(part) for part in parts])
    for held in ("ampere", "ada", "hopper", "blackwell"):
        others = {
            style: [g for g in groups if g.architecture != held] for style, groups in few.items()
        }
        tables = with_defaults(fit({s: g for s, g in others.items() if g}, steps=8))
        mine = {
            style: [g for g in groups if g.architecture == held]
            for style, groups in few.items()
            if others[style]
        }
        scores = evaluate(mine, tables, "unmeasured_device_log_sd")
        show(f"{held} held out", scores)
        found |= scores
    return found


def replace_few(part: Rows) -> Rows:
    return part.take(np.arange(0, len(part), 3))


def rounded(table: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in sorted(table.items())}


def main() -> None:
    parts = aic_rows(DATA, ROWS, held_out=False) + pipeweave_rows(DATA, 1200, held_out=False)
    parts += wide_rows(DATA, 60, held_out=False) + fused_rows(DATA, held_out=False)
    parts += wide_rows(DATA, 60, held_out=False, named=False)
    styles = grouped(parts)
    tables = with_defaults(fit(styles))
    show("fitted", evaluate(styles, tables))
    unseen = aic_rows(DATA, 120, held_out=True) + pipeweave_rows(DATA, 600, held_out=True)
    held = grouped(unseen + fused_rows(DATA, held_out=True))
    scores: dict[str, Any] = {"held-out layers": evaluate(held, tables)}
    show("held-out layers", scores["held-out layers"])
    if "--transfer" in sys.argv:
        scores["architecture held out"] = transfer(parts)
    if "--dry" not in sys.argv:
        write(tables, scores)


def write(tables: Tables, scores: dict[str, Any]) -> None:
    common = {**tables[""], "skewed_log_sd": 0.1}
    content = {
        "format": 1,
        "card": {
            "data": [
                "aiconfigurator/moe.parquet (subsample of every campaign)",
                "pipeweave/kernel_moe_w13.parquet",
                "aiconfigurator/wideep_context_moe.parquet, wideep_generation_moe.parquet",
                "aiconfigurator/dsv4_megamoe_module.parquet",
            ],
            "split": "one in five layers (experts, topk, hidden, intermediate) is never fitted on "
            "any device (wide and fused with the exchange: pairs of tokens and ranks); scores are "
            "on those",
            "command": "python benchmarks/fit_moe.py --transfer",
            "date": "2026-11-21",
            "scores": scores,
            "notes": "an architecture without data has the geometric mean of the others",
        },
        "default": rounded(common),
        "architectures": {a: rounded(t) for a, t in sorted(tables.items()) if a},
        "fallback": {"blackwell-rtx": "ada"},
    }
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
