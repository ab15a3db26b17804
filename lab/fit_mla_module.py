"""Fits the constants of latent-attention blocks and writes catalog/physics/mla_module.json.

    python -m lab.fit_mla_module

A block's parts take their own families' times, and only factors on them are fitted here. Reads the
aiconfigurator tables of blocks, the newest version of each engine on each device. One pair of heads
and batch size in four, by hash, is held out and scored. Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Key, Prior, Tables
from lab.scorecard.rows import MeasuredRows, held_out, newest, subsample
from lab.scorecard.suites.mla import BLOCKS, mla_rows
from silicast.kernels.attention.mla_module import MlaModule

ROWS_PER_CAMPAIGN = 300

FACTORS: dict[str, Prior] = {
    "linear_bf16": (1.0, 0.4, 2.5),
    "linear_fp8_block": (1.0, 0.4, 2.5),
    "linear_nvfp4": (1.0, 0.4, 2.5),
    "latent": (1.0, 0.3, 3.0),
    "attention": (1.0, 0.4, 2.5),
    "attention_narrow": (1.0, 0.4, 2.5),
    "small": (1.0, 0.2, 4.0),
    "moves": (0.3, 0.01, 8.0),
    "head_moves": (0.3, 0.01, 8.0),
}
MODULE: Prior = (1e-6, 1e-8, 3e-5)
HOST: Prior = (4e-4, 1e-4, 1e-3)
EAGER = "sglang_context"
"""The one style whose rows were launched one by one."""
EARLY = "vllm_early"
"""Styles that versions before the newest show."""
FALLBACK = {
    "blackwell-rtx": "ada",
    "ampere": "ada",
    "ampere-ga10x": "ada",
    "turing": "ada",
    "volta": "ada",
    "pascal": "ada",
}


@dataclass(frozen=True)
class Blocks:
    """Parts of a campaign's rows: times of shape (rows, factors), and what was measured."""

    parts_s: F
    bound_s: F
    measured_s: F

    @staticmethod
    def of(rows: MeasuredRows) -> Blocks:
        names = list(FACTORS)
        parts = np.zeros((len(rows), len(names)))
        for part in MlaModule().timed_parts(rows.batch, rows.hardware):
            parts[:, names.index(part.name)] += part.total_s
        return Blocks(parts, rows.model.times(rows.batch, rows.hardware).bound_s, rows.seconds)


def log_ratio(rows: Blocks, c: Mapping[str, float]) -> F:
    """Log of predicted over measured time, held above the bound as users get it."""
    factors = np.array([c[f"{name}.efficiency"] for name in FACTORS])
    time = np.maximum(rows.parts_s @ factors + c["module_s"], c["host_s"])
    ratio: F = np.log(np.maximum(time, rows.bound_s) / rows.measured_s)
    return ratio


def log_ratios(parts: Sequence[Blocks], c: Mapping[str, float]) -> F:
    return np.concatenate([log_ratio(part, c) for part in parts])


def fit(parts: Sequence[Blocks], start: Mapping[str, float], *, eager: bool) -> Constants:
    """Soft L1 on the log ratio, drawn to ``start``."""
    priors = {f"{n}.efficiency": p for n, p in FACTORS.items()} | {"module_s": MODULE}
    first = dict(start)
    if eager:
        priors["host_s"] = HOST
        first["host_s"] = start["host_s"] or HOST[0]
    return fitting.fit_within(
        priors,
        lambda c: [log_ratio(part, c) for part in parts],
        first,
        sum(len(part.measured_s) for part in parts),
        weight=0.02,
    )


def log_sd(parts: Sequence[Blocks], c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    return round(fitting.own_log_sd(log_ratios(parts, c), (0.04, 0.05), wider=1.1, least=0.03), 3)


def named(style: str, c: Mapping[str, float]) -> Constants:
    """Constants of a style under qualified names."""
    return {f"{style}.{name}": value for name, value in sorted(c.items())}


SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.05, "unmeasured_widening": 4.0}
START = {
    **{f"{n}.efficiency": p[0] for n, p in FACTORS.items()},
    "module_s": MODULE[0],
    "host_s": 0.0,
    "efficiency": 1.0,
}


@dataclass(frozen=True)
class Rows:
    """Blocks to fit and held-out ones of every architecture and style."""

    fitted: Mapping[Key, list[Blocks]]
    held_out: Mapping[Key, list[Blocks]]


class MlaModules(Fitter[Rows]):
    """Whole blocks of latent attention."""

    group = "mla_module"
    data = tuple(table.path for table in BLOCKS)
    split = (
        "newest version of each engine per device; one pair of heads and batch size in four, by "
        "hash, held out and scored"
    )

    def rows(self, data: Path) -> Rows:
        fitted: dict[Key, list[Blocks]] = {}
        held: dict[Key, list[Blocks]] = {}
        for table in BLOCKS:
            every = list(mla_rows(data, table))
            recent = {id(part) for part in newest(every)}
            for part in every:
                style = MlaModule().style(part.batch.variant, part.hardware)
                if id(part) not in recent and not style.startswith(EARLY):
                    continue
                key = (part.hardware.architecture, style)
                free = part.take(~part.held_out)
                few = free.take(subsample(len(free), ROWS_PER_CAMPAIGN))
                fitted.setdefault(key, []).append(Blocks.of(few))
                held.setdefault(key, []).extend(Blocks.of(rows) for rows in held_out([part]))
        return Rows(dict(sorted(fitted.items())), held)

    def fit(self, rows: Rows) -> Body:
        by_style = {
            style: fit(of_style(rows.fitted, style), START, eager=style == EAGER)
            for style in sorted({style for _, style in rows.fitted})
        }
        architectures: Tables = {}
        spreads = []
        for (architecture, style), parts in rows.fitted.items():
            c = fit(parts, by_style[style], eager=style == EAGER)
            c["independent_log_sd"] = log_sd(parts, c)
            spreads.append(c["independent_log_sd"])
            architectures.setdefault(architecture, {}).update(named(style, c))
        tables = fitting.with_relatives(architectures)
        return fitting.body(default_of(by_style, spreads), tables, FALLBACK)

    def scores(self, rows: Rows, body: Body) -> dict[str, Any]:
        scores = {}
        for (architecture, style), parts in rows.held_out.items():
            table = {**START, **fitting.own_of(body["architectures"][architecture], style)}
            scores[f"{architecture} {style}"] = fitting.shares(log_ratios(parts, table))
        for name, figures in scores.items():
            print(name, figures, flush=True)
        return scores

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        """The constants that an engine's blocks have on all others together, or any engine's of
        that phase where it was timed nowhere else.
        """
        others = {key: item for key, item in rows.fitted.items() if key[0] != architecture}
        by_style, spreads = {}, []
        for style in sorted({style for _, style in rows.fitted}):
            same = of_style(others, style)
            phase = style.rpartition("_")[2]
            parts = same or [p for k, g in others.items() if k[1].endswith(phase) for p in g]
            by_style[style] = fit(parts, START, eager=style == EAGER and bool(same))
            spreads.append(log_sd(parts, by_style[style]))
            if scored := rows.held_out.get((architecture, style)):
                figures = fitting.shares(log_ratios(scored, by_style[style]))
                print(architecture, style, figures, flush=True)
        tables = {name: t for name, t in body["architectures"].items() if name != architecture}
        return fitting.body(default_of(by_style, spreads), tables)


def of_style(groups: Mapping[Key, list[Blocks]], style: str) -> list[Blocks]:
    """Blocks of a style, of every architecture."""
    return [part for key, group in groups.items() if key[1] == style for part in group]


def default_of(by_style: Mapping[str, Constants], spreads: Sequence[float]) -> Constants:
    """Constants of architectures without measured blocks."""
    default = START | SPREAD | {"independent_log_sd": max(spreads)}
    for style, constants in by_style.items():
        default |= named(style, constants)
    return default


if __name__ == "__main__":
    MlaModules().run()
