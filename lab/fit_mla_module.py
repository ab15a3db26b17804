"""Fits the constants of latent-attention blocks and writes catalog/physics/mla_module.json.

    python lab/fit_mla_module.py [--check] [--transfer]

Run after fit_gemm.py, fit_streaming.py and fit_mla.py: a block's parts take their own families'
times, and only factors on them are fitted here. Reads the aiconfigurator tables of blocks
(SILICAST_DATA or ../shared/data), the newest version of each engine on each device. One pair of
heads and batch size in four, by hash, is held out and scored. ``--transfer`` writes the constants
that every architecture would get without its rows, validation/scorecard/held_out/
mla_module.json. Deterministic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab import fitting
from lab.fitting import Constants, F, Key, Prior, Tables
from silicast.kernels.mla_module import MlaModule
from silicast.validation.scorecard.rows import MeasuredRows, held_out, newest, subsample
from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.suites.mla import BLOCKS, mla_rows

ROWS_PER_CAMPAIGN = 300

FACTORS: dict[str, Prior] = {
    "linear_bf16": (1.0, 0.4, 2.5), "linear_fp8_block": (1.0, 0.4, 2.5),
    "linear_nvfp4": (1.0, 0.4, 2.5), "latent": (1.0, 0.3, 3.0), "attention": (1.0, 0.4, 2.5),
    "attention_narrow": (1.0, 0.4, 2.5), "small": (1.0, 0.2, 4.0), "moves": (0.3, 0.01, 8.0),
    "head_moves": (0.3, 0.01, 8.0),
}  # fmt: skip
MODULE: Prior = (1e-6, 1e-8, 3e-5)
HOST: Prior = (4e-4, 1e-4, 1e-3)
EAGER = "sglang_context"
"""The one style whose rows were launched one by one."""
EARLY = "vllm_early"
"""Styles that versions before the newest show."""
FALLBACK = {
    "blackwell-rtx": "ada", "ampere": "ada", "ampere-ga10x": "ada", "turing": "ada", "volta": "ada",
    "pascal": "ada",
}  # fmt: skip


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
        priors, lambda c: [log_ratio(part, c) for part in parts], first,
        sum(len(part.measured_s) for part in parts), weight=0.02,
    )  # fmt: skip


def log_sd(parts: Sequence[Blocks], c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    return round(fitting.own_log_sd(log_ratios(parts, c), (0.04, 0.05), wider=1.1, least=0.03), 3)


def named(style: str, c: Mapping[str, float]) -> Constants:
    """Constants of a style under qualified names."""
    return {f"{style}.{name}": value for name, value in sorted(c.items())}


SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.05, "unmeasured_widening": 4.0}
START = {
    **{f"{n}.efficiency": p[0] for n, p in FACTORS.items()},
    "module_s": MODULE[0], "host_s": 0.0, "efficiency": 1.0,
}  # fmt: skip


def grouped() -> tuple[dict[Key, list[Blocks]], dict[Key, list[Blocks]]]:
    """Rows to fit and held-out ones of every architecture and style."""
    fitted: dict[Key, list[Blocks]] = {}
    held: dict[Key, list[Blocks]] = {}
    for table in BLOCKS:
        every = list(mla_rows(data_folder(), table))
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
    return dict(sorted(fitted.items())), held


def fitted_file() -> dict[str, Any]:
    """The constants file."""
    rows, held = grouped()
    by_style = {
        style: fit([p for k, g in rows.items() if k[1] == style for p in g], START,
                   eager=style == EAGER)
        for style in sorted({k[1] for k in rows})
    }  # fmt: skip
    default: dict[str, float] = START | SPREAD
    for style, constants in by_style.items():
        default |= named(style, constants)
    architectures: Tables = {}
    scores: dict[str, Any] = {}
    spreads = []
    for (architecture, style), parts in rows.items():
        c = fit(parts, by_style[style], eager=style == EAGER)
        c["independent_log_sd"] = log_sd(parts, c)
        spreads.append(c["independent_log_sd"])
        architectures.setdefault(architecture, {}).update(named(style, c))
        ratios = log_ratios(held[architecture, style], c)
        scores[f"{architecture} {style}"] = fitting.shares(ratios)
        print(architecture, style, scores[f"{architecture} {style}"], flush=True)
    default["independent_log_sd"] = max(spreads)
    return {
        "format": 1,
        "card": fitting.card(
            "python lab/fit_mla_module.py",
            [table.path for table in BLOCKS],
            "newest version of each engine per device; one pair of heads and batch size in"
            " four, by hash, held out and scored",
            scores,
        ),
        "default": default,
        "architectures": architectures,
        "fallback": FALLBACK,
    }


def transfer() -> dict[str, Any]:
    """What every architecture would get without its rows: the constants that an engine's blocks
    have on all others together, or any engine's of that phase where it was timed nowhere else.
    """
    shipped = json.loads((fitting.PHYSICS / "mla_module.json").read_text())
    rows, held = grouped()
    bodies: dict[str, Any] = {}
    for out in sorted({architecture for architecture, _ in rows}):
        others = {k: found for k, found in rows.items() if k[0] != out}
        default: dict[str, float] = START | SPREAD
        spreads = []
        for style in sorted({style for _, style in rows}):
            phase = style.rpartition("_")[2]
            same = [p for k, found in others.items() if k[1] == style for p in found]
            phased = [p for k, found in others.items() if k[1].endswith(phase) for p in found]
            c = fit(same or phased, START, eager=style == EAGER and bool(same))
            spreads.append(log_sd(same or phased, c))
            default |= named(style, c)
            if scored := held.get((out, style)):
                print(out, style, fitting.shares(log_ratios(scored, c)), flush=True)
        default["independent_log_sd"] = max(spreads)
        kept = {k: v for k, v in shipped["architectures"].items() if k != out}
        bodies[out] = {"default": default, "architectures": kept, "fallback": {}}
    return bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fit and compare, write nothing")
    parser.add_argument("--transfer", action="store_true", help="leave out each architecture")
    options = parser.parse_args()
    if options.transfer:
        fitting.write_json(fitting.HELD_OUT / "mla_module.json", transfer())
    else:
        fitting.write_json(fitting.PHYSICS / "mla_module.json", fitted_file(), check=options.check)


if __name__ == "__main__":
    main()
