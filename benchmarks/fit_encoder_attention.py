"""Fits what sets encoders' attention apart and writes catalog/physics/attention_encoder.json.

    python benchmarks/fit_encoder_attention.py [--dry | --transfer]

For each architecture and caller: the launch of a call without a cache, what a tile costs beyond a
causal one, and the cost of a step at three widths, over the constants of prefill
(benchmarks/fit_attention.py). Robust least squares (soft L1) on log ratios with a weak prior.
Newest campaign of every engine; held-out head geometries are only scored. Needs SILICAST_DATA or
../shared/data. Deterministic; about a minute.

With --transfer it writes validation/held_out/attention_encoder.json instead, from the fitted file:
an architecture's constants come from its own rows alone, so that leaving one out is leaving it
away, and what stands in for it is the geometric mean of the others, engine by engine.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

import silicast.validation
from silicast.core.catalog import CATALOG
from silicast.core.prediction import Z90
from silicast.kernels.attention_prefill import AttentionPrefill, attention_constants
from silicast.kernels.attention_schemes import scheme_for
from silicast.kernels.check import take
from silicast.validation.suite import data_folder
from silicast.validation.suites._encoder_rows import Campaign, encoder_campaigns

F = NDArray[np.float64]
TARGET = CATALOG / "physics" / "attention_encoder.json"
HELD_OUT = Path(silicast.validation.__file__).parent / "held_out" / "attention_encoder.json"
DATE = "2026-11-21"
ROWS = 900
NAMES = ("launch_cycles", "task_cycles", "encoder_64", "encoder_72", "encoder_80")
DEFAULT = {
    "encoder_64": 1.0,
    "encoder_72": 1.0,
    "encoder_80": 1.0,
    "encoder_128": 1.0,
}
PRIOR_SD = np.array([0.5, 1.0, 0.7, 0.7, 0.7])
MODEL_SD = 0.08
MODEL = AttentionPrefill()
FALLBACK = {"ampere": "ada", "ampere-ga10x": "ada", "blackwell-rtx": "ada"}


def part(campaign: Campaign, *, held: bool) -> tuple[Campaign, F]:
    """The campaign with its held-out or its other rows, and their latencies."""
    rows = np.flatnonzero(campaign.held == held)
    return (
        Campaign(
            campaign.backend,
            campaign.version,
            campaign.kernel,
            campaign.newest,
            campaign.device,
            take(campaign.batch, rows),
            campaign.latency_us[rows],
            campaign.held[rows],
        ),
        campaign.latency_us[rows],
    )


def log_ratio(campaign: Campaign, own: Mapping[str, float]) -> F:
    """log(estimate / measured) under prefill's constants with ``own`` put over them."""
    scheme = scheme_for(campaign.batch.variant, campaign.device)
    base = attention_constants("attention_prefill", campaign.device, scheme)
    found = MODEL.analyse_with(campaign.batch, campaign.device, {**base, **DEFAULT, **own})
    return np.log(np.maximum(found.time_s, found.bound_s) * 1e6 / campaign.latency_us)


def fit(campaigns: list[Campaign]) -> dict[str, float]:
    """The constants of one caller on one architecture."""
    first = campaigns[0]
    scheme = scheme_for(first.batch.variant, first.device)
    base = attention_constants("attention_prefill", first.device, scheme)
    guess = np.array([max(float(base[n]), 100.0) for n in NAMES[:2]] + [1.0] * 3)
    guess[0] = max(guess[0], 4e3)

    def residuals(logs: F) -> F:
        own = dict(zip(NAMES, (guess * np.exp(logs)).tolist(), strict=True))
        found = [log_ratio(one, own) / MODEL_SD for one in campaigns]
        scale = np.sqrt(200.0 / sum(len(one) for one in found))
        return np.concatenate([*(one * scale for one in found), logs / PRIOR_SD])

    found = least_squares(residuals, np.zeros(len(NAMES)), loss="soft_l1", max_nfev=60)
    values = guess * np.exp(found.x)
    return {name: float(f"{x:.4g}") for name, x in zip(NAMES, values.tolist(), strict=True)}


def means(tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Geometric mean over architectures of every constant, by name ("vllm.encoder_72")."""
    names = sorted({name for table in tables.values() for name in table})
    found = {}
    for name in names:
        logs = [np.log(table[name]) for table in tables.values() if name in table]
        found[name] = float(f"{np.exp(np.mean(logs)):.4g}")
    return found


def defaults(tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Constants of architectures that nothing stands in for."""
    return {**DEFAULT, "device_log_sd": 0.03, "family_log_sd": 0.03, **means(tables)}


def transfer() -> None:
    """What each architecture gets if no row of it was ever seen."""
    tables = json.loads(TARGET.read_text(encoding="utf-8"))["architectures"]
    found = {}
    for unseen in tables:
        rest = {name: table for name, table in tables.items() if name != unseen}
        fallback = {k: v for k, v in FALLBACK.items() if v != unseen}
        found[unseen] = {"default": defaults(rest), "architectures": rest, "fallback": fallback}
    HELD_OUT.parent.mkdir(exist_ok=True)
    HELD_OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Fits, prints the scores of held-out rows, writes the file."""
    if "--transfer" in sys.argv:
        transfer()
        return 0
    groups: dict[tuple[str, str], list[Campaign]] = defaultdict(list)
    for campaign in encoder_campaigns(data_folder(), ROWS):
        if campaign.newest:
            scheme = scheme_for(campaign.batch.variant, campaign.device)
            groups[campaign.device.architecture, scheme.caller].append(campaign)
    tables: dict[str, dict[str, float]] = defaultdict(dict)
    scores: dict[str, dict[str, float]] = {}
    errors = []
    for (architecture, caller), campaigns in sorted(groups.items()):
        own = fit([part(one, held=False)[0] for one in campaigns])
        train = np.concatenate([log_ratio(part(one, held=False)[0], own) for one in campaigns])
        spread = float(np.sort(np.abs(train))[int(0.9 * len(train))]) / Z90
        shared = {"device_log_sd": 0.03, "family_log_sd": 0.03}
        rest = max(spread**2 - sum(x * x for x in shared.values()), 0.04**2)
        own["independent_log_sd"] = float(f"{np.sqrt(rest):.3g}")
        tables[architecture] |= {f"{caller}.{name}": value for name, value in own.items()}
        held = np.concatenate([log_ratio(part(one, held=True)[0], own) for one in campaigns])
        errors.append(held)
        scores[f"{architecture}.{caller}"] = {
            "rows": float(len(held)),
            "mape": round(float(np.mean(np.abs(np.expm1(held)))), 4),
            "log_bias": round(float(np.median(held)), 4),
        }
        print(architecture, caller, scores[f"{architecture}.{caller}"], own)
    print("all", np.mean(np.abs(np.expm1(np.concatenate(errors)))))
    physics = {
        "format": 1,
        "card": {
            "data": ["aiconfigurator/encoder_attention.parquet"],
            "split": "newest campaign of every engine; 13 of 36 head geometries never fitted",
            "command": "python benchmarks/fit_encoder_attention.py",
            "date": DATE,
            "scores": scores,
        },
        "default": defaults(tables),
        "architectures": {name: dict(table) for name, table in sorted(tables.items())},
        "fallback": FALLBACK,
    }
    if "--dry" not in sys.argv:
        TARGET.write_text(json.dumps(physics, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
