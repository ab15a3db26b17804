"""Fits the constants of expert layers and writes catalog/physics/moe.json.

    python -m lab.fit_moe

One problem a style of kernel and architecture, and one of all together for architectures without
measurements (lab/moe_pooled.py); some constants are of each number format. Robust (soft L1) on log
ratios; priors pull every constant to its start. Deterministic. Rows marked held out are never
fitted, only scored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting, moe_pooled
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Parameter, Tables
from lab.moe_groups import SPREAD, START, Group, Styles, evaluate, grouped, log_ratio, plain
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.moe import (
    fused_rows,
    layer_rows,
    pipeweave_rows,
    sample,
    thinned,
    wide_rows,
)
from silicast.kernels.experts.moe import GROWTHS, PHYSICS, grown
from silicast.workload.libraries.catalog import expert_styles

ROWS = 160
"""Rows of each device, backend, version, kernel, format and distribution that are fitted."""

STYLE_START = {
    "triton.foreign_share": 0.9,
    "triton_sglang.foreign_share": 0.9,
    "triton_sglang_early.foreign_share": 0.9,
    "triton_sglang_early.smallest_tile": 16.0,
    "oai_triton.foreign_share": 0.9,
    "oai_triton_trtllm.foreign_share": 0.9,
    "marlin.foreign_share": 0.9,
    "marlin_early.foreign_share": 0.9,
    "marlin_int4.foreign_share": 0.9,
    "oai_triton.smallest_tile": 16.0,
    "oai_triton_trtllm.smallest_tile": 16.0,
    "triton.smallest_tile": 16.0,
    "triton_sglang.smallest_tile": 16.0,
    "ada.resident_share": 0.95,
}
SKEWED_LOG_SD = 0.1
FALLBACK = {"blackwell-rtx": "ada"}
"""Workstation parts of Blackwell have GDDR memory, a large L2 and the tensor cores of Ada."""
UNSEEN = 1.06
"""Layers that were not fitted err so much more than those that were."""

CEILING = {
    "tensor_efficiency": 1.0,
    "dram_efficiency": 0.95,
    "foreign_share": 1.1,
    "quantisation": 1.0,
    "overlap_loss": 1.0,
    "l2_efficiency": 1.5,
    "stream_l2_share": 1.0,
    "resident_share": 1.0,
}

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
    "tensor_efficiency": 0.4,
    "dram_efficiency": 0.3,
    "foreign_share": 0.5,
    "overlap_loss": 0.5,
    "resident_share": 0.2,
    "l2_efficiency": 0.4,
    "middle_passes": 0.5,
    "step_s": 0.7,
}
PRIOR_WEIGHT = 0.25
POOLED_STEPS = 5
"""Further ones change constants of unmeasured architectures by less than these are known."""


def parameters(groups: Sequence[Group]) -> list[Parameter]:
    """Free constants of one style; where it ran on several architectures, they share all."""
    parameters = [Parameter("", name) for name in SHARED + OWN]
    if any(expert_styles()[g.setting.style].exchanges for g in groups):
        parameters += [Parameter("", name) for name in EXCHANGED]
    for dtype in sorted({g.dtype for g in groups}):
        unpacked = any(g.setting.rates.unpacks for g in groups if g.dtype == dtype)
        parameters += [Parameter(dtype, name) for name in FORMAT + (UNPACKED if unpacked else ())]
    return parameters


def start_of(style: str, architecture: str, name: str) -> float:
    for key in (f"{architecture}.{name}", f"{style}.{name}", name):
        if key in STYLE_START:
            return STYLE_START[key]
    return START[name]


def constants_of(group: Group, free: Sequence[Parameter], values: F) -> Constants:
    table = {name: start_of(group.setting.style, group.architecture, name) for name in START}
    for p, value in zip(free, values, strict=True):  # from the general to the specific
        if p.touches(group.dtype):
            table[p.name] = min(float(value), CEILING.get(p.name, math.inf))
    return table


def solve(groups: Sequence[Group], steps: int) -> tuple[list[Parameter], F]:
    """Free constants of one style, or of a kin of styles, at the optimum."""
    free, style = parameters(groups), groups[0].setting.style
    first = np.log([start_of(style, groups[0].architecture, p.name) for p in free])
    pull = PRIOR_WEIGHT * np.array(
        [(2.0 if p.name in OWN else 1.0) / PRIOR_SD.get(p.name, 1.0) for p in free]
    )
    weights = [1.0 / math.sqrt(max(1.0, len(g.seconds) / 600.0)) for g in groups]
    result = fitting.fit_by_groups(
        lambda logs, i: (
            weights[i] * log_ratio(groups[i], constants_of(groups[i], free, np.exp(logs)))
        ),
        [len(g.seconds) for g in groups],
        lambda j, i: free[j].touches(groups[i].dtype),
        first,
        pull,
        f_scale=0.1,
        max_nfev=steps,
    )
    return free, np.exp(result.x)


def fit(styles: Styles, steps: int = 20, *, without: str | None = None) -> Tables:
    """All constants: of each architecture, and of an unmeasured one.

    An architecture's constants are fitted on its own rows alone. What an unmeasured one gets is
    fitted on the rows of all: constants make up for each other, so that a mean of each would not
    belong together.

    Args:
        without: an architecture that is treated as unmeasured; its rows are not looked at, and
            those of the others are not fitted one by one.
    """
    tables: Tables = {"": dict(START)}
    for name, value in STYLE_START.items():
        head, _ = name.split(".")
        if head in styles:
            tables[""][name] = value
    seen = {
        style: [g for g in groups if g.architecture != without] for style, groups in styles.items()
    }
    if without is None:
        for style, groups in styles.items():
            for architecture in sorted({g.architecture for g in groups}):
                mine = [g for g in groups if g.architecture == architecture]
                keep(tables, architecture, style, mine, solve(mine, steps))
    for_any(tables, seen, {style: {g.dtype for g in groups} for style, groups in styles.items()})
    for table in tables.values():  # what was only measured in an early version stands in
        for name, value in list(table.items()):
            style, dot, remainder = name.partition(".")
            if style.endswith("_early"):
                table.setdefault(style.removesuffix("_early") + dot + remainder, value)
    return tables


def for_any(tables: Tables, seen: Styles, dtypes: Mapping[str, set[str]]) -> None:
    """Adds the constants of an architecture that was not measured, also of styles that ran on that
    one alone: these have what others of their make have.
    """
    groups = [group for item in seen.values() for group in item]
    starts = {style: {n: start_of(style, "", n) for n in START} for style in dtypes}
    of_format = frozenset((*FORMAT, *UNPACKED))
    names = tuple(dict.fromkeys((*SHARED, *OWN, *FORMAT, *UNPACKED, *EXCHANGED)))
    pooled = moe_pooled.fit(
        groups, [starts[g.setting.style] for g in groups], names, of_format, CEILING, POOLED_STEPS
    )
    table = tables[""]
    for style in sorted(dtypes):
        for dtype in sorted(dtypes[style]):
            for name, value in pooled.constants(style, dtype, starts[style]).items():
                prefix = f"{style}.{dtype}." if name in of_format else f"{style}."
                high = math.inf if name in GROWTHS.values() else CEILING.get(name, math.inf)
                table[prefix + name] = min(value, high)
        spread(style, seen[style], tables, "")


def keep(
    tables: Tables,
    architecture: str,
    style: str,
    groups: Sequence[Group],
    items: tuple[list[Parameter], F],
) -> None:
    """Writes constants of one style on one architecture into the tables."""
    table = tables.setdefault(architecture, {})
    for p, value in zip(*items, strict=True):
        prefix = f"{style}.{p.of}." if p.of else f"{style}."
        table[prefix + p.name] = min(float(value), CEILING.get(p.name, math.inf))
        if p.of:  # what the default constants grow with is in the fitted ones
            table |= {prefix + name: 0.0 for name in GROWTHS}
    spread(style, groups, tables, architecture)


def spread(style: str, groups: Sequence[Group], tables: Tables, architecture: str) -> None:
    """Independent log sd of each format: the 90 % error of the fitted rows."""
    device = "device_log_sd" if architecture else "unmeasured_device_log_sd"
    shared = (SPREAD[device], SPREAD["family_log_sd"])
    errors: dict[str, list[F]] = defaultdict(list)
    for group in groups:
        table = grown(plain(tables, architecture, style, group.dtype), group.setting.rates)
        errors[group.dtype].append(log_ratio(group, table))
    for dtype, error in errors.items():
        log_sd = fitting.own_log_sd(np.concatenate(error), shared, wider=UNSEEN)
        tables[architecture][f"{style}.{dtype}.independent_log_sd"] = log_sd


def with_defaults(tables: Tables) -> Tables:
    """Adds to the shared table what a style's formats have in the geometric mean, for formats in
    which it was not measured."""
    common = dict(tables[""])
    table: dict[str, list[float]] = defaultdict(list)
    for name, value in tables[""].items():
        style, _, remainder = name.partition(".")
        _, dot, last = remainder.partition(".")
        if dot:
            table[f"{style}.{last}"].append(value)
            if last == "independent_log_sd":
                table[last].append(value)
    common |= {
        name: fitting.geometric_mean(values) for name, values in table.items() if name not in common
    }
    return {**tables, "": {**common, **SPREAD}}


def body_of(tables: Tables, fallback: Mapping[str, str]) -> Body:
    """Default and architectures as the file has them."""
    return fitting.body({**tables[""], "skewed_log_sd": SKEWED_LOG_SD}, tables, fallback)


@dataclass(frozen=True)
class Rows:
    """Those that are fitted, as rows and by style, and those held out by style."""

    fitted: list[MeasuredRows]
    styles: Styles
    held_out: Styles


class Experts(Fitter[Rows]):
    """Layers of experts."""

    group = PHYSICS
    data = (
        "aiconfigurator/moe.parquet (subsample of every campaign)",
        "pipeweave/kernel_moe_w13.parquet",
        "aiconfigurator/wideep_context_moe.parquet, wideep_generation_moe.parquet",
        "aiconfigurator/dsv4_megamoe_module.parquet",
    )
    split = (
        "one in five layers (experts, topk, hidden, intermediate) is never fitted on any device, "
        "nor one in five shares of the others on a rank (layer, ep, tp; of w13 tokens and layer; "
        "wide and fused with the exchange: tokens and ranks); scores are on those"
    )
    notes = "an architecture without data has constants fitted on the rows of all"

    def rows(self, data: Path) -> Rows:
        layers, first, wide, unnamed, fused = (
            {held: held_out(parts, held) for held in (False, True)}
            for parts in (
                layer_rows(data),
                pipeweave_rows(data),
                wide_rows(data),
                wide_rows(data, named=False),
                fused_rows(data),
            )
        )
        fitted = [
            *thinned(layers[False], ROWS),
            *(sample(part, 1200) for part in first[False]),
            *(sample(part, 60) for part in wide[False]),
            *fused[False],
            *(sample(part, 60) for part in unnamed[False]),
        ]
        held = [*thinned(layers[True], 120), *(sample(part, 600) for part in first[True])]
        return Rows(fitted, grouped(fitted), grouped([*held, *fused[True]]))

    def fit(self, rows: Rows) -> Body:
        return body_of(fitting.with_relatives(with_defaults(fit(rows.styles))), FALLBACK)

    def scores(self, rows: Rows, body: Body) -> dict[str, Any]:
        result = evaluate(rows.held_out, {"": body["default"], **body["architectures"]})
        fitting.show("held-out layers", result, 62)
        return {"held-out layers": result}

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        """The others' own constants, and those of an unknown architecture fitted on the others."""
        few = grouped([part.take(np.arange(0, len(part), 3)) for part in rows.fitted])
        unknown = with_defaults(fit(few, without=architecture))
        mine = {
            style: [group for group in groups if group.architecture == architecture]
            for style, groups in few.items()
        }
        scores = evaluate(mine, unknown, "unmeasured_device_log_sd")
        fitting.show(f"{architecture} held out", scores, 62)
        others = {
            name: item for name, item in body["architectures"].items() if name != architecture
        }
        fallback = {name: other for name, other in FALLBACK.items() if other != architecture}
        return body_of({**others, "": unknown[""]}, fallback)


if __name__ == "__main__":
    Experts().run()
