"""Fits the constants of latent-attention blocks and writes catalog/physics/mla_module.json.

    python benchmarks/fit_mla_module.py [--check] [--transfer]

Run after fit_gemm.py, fit_streaming.py and fit_mla.py: a block's parts take their own families'
times, and only factors on them are fitted here. Reads the aiconfigurator tables of blocks
(SILICAST_DATA or ../shared/data), the newest version of each engine on each device. One pair of
heads and batch size in four, by hash, is held out and scored. ``--transfer`` writes the constants
that every architecture would get without its rows, validation/held_out/mla_module.json.
Deterministic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import silicast.validation
from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.kernels.check import take
from silicast.kernels.mla_module import MlaModule
from silicast.validation.suite import data_folder
from silicast.validation.suites._mla_rows import BLOCK_TABLES, MlaCampaign, read_mla_modules

HELD_OUT = Path(silicast.validation.__file__).parent / "held_out" / "mla_module.json"
Z90 = 1.6448536269514722
PRIOR_WEIGHT = 0.02
ROWS_PER_CAMPAIGN = 300

Prior = tuple[float, float, float]
"""Where a constant starts and is drawn to, and the range it may take."""

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
class Rows:
    """Parts of a campaign's rows: times of shape (rows, factors), and what was measured."""

    parts_s: F64
    bound_s: F64
    measured_s: F64

    @property
    def count(self) -> int:
        return len(self.measured_s)


def rows_of(campaign: MlaCampaign, *, held: bool) -> Rows:
    """Every part of the fitted or the held-out rows, at most so many."""
    model = MlaModule()
    picked = np.flatnonzero(campaign.held == held)
    if not held and len(picked) > ROWS_PER_CAMPAIGN:
        rng = np.random.default_rng(0)
        picked = np.sort(rng.permutation(picked)[:ROWS_PER_CAMPAIGN])
    batch = take(campaign.batch, picked)
    names = list(FACTORS)
    parts = np.zeros((len(picked), len(names)))
    for part in model.timed_parts(batch, campaign.device):
        parts[:, names.index(part.name)] += part.total_s
    bound = model.times(batch, campaign.device).bound_s
    return Rows(parts, bound, campaign.latency_us[picked] * 1e-6)


def ratios(rows: Rows, c: Mapping[str, float]) -> F64:
    """Predicted over measured time, held above the bound as users get it."""
    factors = np.array([c[f"{name}.efficiency"] for name in FACTORS])
    time = np.maximum(rows.parts_s @ factors + c["module_s"], c["host_s"])
    ratio: F64 = np.maximum(time, rows.bound_s) / rows.measured_s
    return ratio


def fit(parts: Sequence[Rows], start: Mapping[str, float], *, eager: bool) -> dict[str, float]:
    """Soft L1 on the log ratio, drawn to ``start``."""
    priors = {f"{n}.efficiency": p for n, p in FACTORS.items()} | {"module_s": MODULE}
    if eager:
        priors["host_s"] = HOST
    names = list(priors)
    low = np.log([priors[n][1] for n in names])
    high = np.log([priors[n][2] for n in names])
    first = {**start, "host_s": start["host_s"] or HOST[0]} if eager else dict(start)
    origin = np.clip(np.log([first[n] for n in names]), low + 1e-6, high - 1e-6)
    pull = PRIOR_WEIGHT * np.sqrt(sum(p.count for p in parts) / len(names))

    def residuals(x: F64) -> F64:
        c = {**first, **dict(zip(names, np.exp(x).tolist(), strict=True))}
        return np.concatenate([*(np.log(ratios(p, c)) for p in parts), pull * (x - origin)])

    found = least_squares(residuals, origin, loss="soft_l1", f_scale=0.1, bounds=(low, high))
    values = {n: float(f"{v:.4g}") for n, v in zip(names, np.exp(found.x), strict=True)}
    return {**first, **values}


def figures(ratio: F64) -> dict[str, float]:
    off = np.abs(ratio - 1.0)
    return {
        "rows": len(ratio),
        "mape": round(float(np.mean(off)), 4),
        "median": round(float(np.median(off)), 4),
        "p90": round(float(np.quantile(off, 0.9)), 4),
        "log_bias": round(float(np.mean(np.log(ratio))), 4),
    }


def log_sd(parts: Sequence[Rows], c: Mapping[str, float]) -> float:
    """Spread whose interval holds 90 % of the fitted rows, less the shared part, a tenth up."""
    logs = np.abs(np.log(np.concatenate([ratios(p, c) for p in parts])))
    total = 1.1 * float(np.quantile(logs, 0.9)) / Z90
    return round(float(np.sqrt(max(total**2 - 0.04**2 - 0.05**2, 0.03**2))), 3)


Key = tuple[str, str]
"""Architecture and style."""
SPREAD = {"family_log_sd": 0.04, "device_log_sd": 0.05, "unmeasured_widening": 4.0}
START = {
    **{f"{n}.efficiency": p[0] for n, p in FACTORS.items()},
    "module_s": MODULE[0], "host_s": 0.0, "efficiency": 1.0,
}  # fmt: skip


def grouped() -> dict[Key, list[MlaCampaign]]:
    """Campaigns of every architecture and style."""
    groups: dict[Key, list[MlaCampaign]] = {}
    for table in BLOCK_TABLES:
        for campaign in read_mla_modules(data_folder(), table):
            style = MlaModule().style(campaign.batch.variant, campaign.device)
            if campaign.newest or style.startswith(EARLY):
                groups.setdefault((campaign.device.architecture, style), []).append(campaign)
    return dict(sorted(groups.items()))


def of_style(rows: Mapping[Key, Sequence[Rows]]) -> dict[str, dict[str, float]]:
    """Constants of every style, fitted on all its rows."""
    return {
        style: fit(
            [p for k, found in rows.items() if k[1] == style for p in found], START,
            eager=style == EAGER,
        )
        for style in sorted({k[1] for k in rows})
    }  # fmt: skip


def fitted_file() -> dict[str, Any]:
    """The constants file."""
    groups = grouped()
    rows = {k: [rows_of(c, held=False) for c in g] for k, g in groups.items()}
    held = {
        k: [r for c in g for r in [rows_of(c, held=True)] if r.count] for k, g in groups.items()
    }
    by_style = of_style(rows)
    default: dict[str, float] = START | SPREAD
    for style, constants in by_style.items():
        default |= {f"{style}.{n}": v for n, v in sorted(constants.items())}
    architectures: dict[str, dict[str, float]] = {}
    scores: dict[str, Any] = {}
    spreads = []
    for (architecture, style), parts in rows.items():
        c = fit(parts, by_style[style], eager=style == EAGER)
        c["independent_log_sd"] = log_sd(parts, c)
        spreads.append(c["independent_log_sd"])
        own = {f"{style}.{n}": v for n, v in sorted(c.items())}
        architectures.setdefault(architecture, {}).update(own)
        ratio = np.concatenate([ratios(p, c) for p in held[architecture, style]])
        scores[f"{architecture} {style}"] = figures(ratio)
        print(architecture, style, scores[f"{architecture} {style}"], flush=True)
    default["independent_log_sd"] = max(spreads)
    card = {
        "data": [f"aiconfigurator/{table}.parquet" for table in BLOCK_TABLES],
        "split": "newest version of each engine per device; one pair of heads and batch size in"
        " four, by hash, held out and scored",
        "command": "python benchmarks/fit_mla_module.py",
        "date": "2026-11-21",
        "scores": scores,
    }
    return {
        "format": 1,
        "card": card,
        "default": default,
        "architectures": architectures,
        "fallback": FALLBACK,
    }


def transfer() -> dict[str, Any]:
    """What every architecture would get without its rows: the constants that an engine's blocks
    have on all others together, or any engine's of that phase where it was timed nowhere else.
    """
    shipped = json.loads((CATALOG / "physics" / "mla_module.json").read_text())
    groups = grouped()
    rows = {k: [rows_of(c, held=False) for c in g] for k, g in groups.items()}
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
            default |= {f"{style}.{n}": v for n, v in sorted(c.items())}
            held = [rows_of(g, held=True) for g in groups.get((out, style), [])]
            if held:
                ratio = np.concatenate([ratios(p, c) for p in held if p.count])
                print(out, style, figures(ratio), flush=True)
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
        HELD_OUT.write_text(json.dumps(transfer(), indent=1) + "\n")
        return
    path = CATALOG / "physics" / "mla_module.json"
    text = json.dumps(fitted_file(), indent=1) + "\n"
    if options.check:
        print("same" if path.read_text() == text else "differs")
    else:
        path.write_text(text)


if __name__ == "__main__":
    main()
