"""Fits what sets encoders' attention apart and writes catalog/physics/attention_encoder.json.

    python lab/fit_encoder_attention.py [--dry | --transfer]

For each architecture and caller: the launch of a call without a cache, what a tile costs beyond a
causal one, and the cost of a step at three widths, over the constants of prefill
(lab/fit_attention.py). Robust least squares (soft L1) on log ratios with a weak prior.
Newest campaign of every engine; held-out head geometries are only scored. Needs SILICAST_DATA or
../shared/data. Deterministic; about a minute.

With --transfer it writes held_out/attention_encoder.json of the scorecard instead, from the fitted
file: an architecture's constants come from its own rows alone, so that only its entry is dropped,
and the geometric mean of the others stands in for it, engine by engine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitting import Constants, F, Tables
from silicast.core.prediction import Z90
from silicast.kernels.attention_prefill import attention_constants
from silicast.kernels.attention_schemes import scheme_for
from silicast.validation.scorecard.rows import MeasuredRows, held_out, newest
from silicast.validation.scorecard.suite import data_folder
from silicast.validation.scorecard.suites.attention import ENCODER, encoder_rows

TARGET = fitting.PHYSICS / "attention_encoder.json"
ROWS = 900
NAMES = ("launch_cycles", "task_cycles", "encoder_64", "encoder_72", "encoder_80")
DEFAULT = {"encoder_64": 1.0, "encoder_72": 1.0, "encoder_80": 1.0, "encoder_128": 1.0}
SHARED = {"device_log_sd": 0.03, "family_log_sd": 0.03}
PRIOR_SD = np.array([0.5, 1.0, 0.7, 0.7, 0.7])
MODEL_SD = 0.08
FALLBACK = {"ampere": "ada", "ampere-ga10x": "ada", "blackwell-rtx": "ada"}


def base_of(rows: MeasuredRows) -> Mapping[str, float]:
    """Prefill's constants of the rows' kernels."""
    scheme = scheme_for(rows.batch.variant, rows.hardware)
    return attention_constants("attention_prefill", rows.hardware, scheme)


def log_ratios(parts: Sequence[MeasuredRows], own: Mapping[str, float]) -> F:
    """log(estimate / measured) under prefill's constants with ``own`` put over them."""
    return np.concatenate(
        [fitting.log_ratio(part, {**base_of(part), **DEFAULT, **own}) for part in parts]
    )


def fit(parts: Sequence[MeasuredRows]) -> Constants:
    """The constants of one caller on one architecture."""
    base = base_of(parts[0])
    guess = np.array([max(float(base[n]), 100.0) for n in NAMES[:2]] + [1.0] * 3)
    guess[0] = max(guess[0], 4e3)
    scale = np.sqrt(200.0 / sum(len(part) for part in parts))

    def residuals(logs: F) -> F:
        own = dict(zip(NAMES, (guess * np.exp(logs)).tolist(), strict=True))
        return np.concatenate([log_ratios(parts, own) / MODEL_SD * scale, logs / PRIOR_SD])

    found = least_squares(residuals, np.zeros(len(NAMES)), loss="soft_l1", max_nfev=60)
    values = dict(zip(NAMES, (guess * np.exp(found.x)).tolist(), strict=True))
    return fitting.rounded(values, ordered=False)


def defaults(tables: Tables) -> Constants:
    """Constants of architectures that nothing stands in for."""
    return {**DEFAULT, **SHARED, **fitting.rounded(fitting.means(tables.values()))}


def transfer() -> None:
    """What each architecture gets if no row of it was ever seen."""
    tables = json.loads(TARGET.read_text(encoding="utf-8"))["architectures"]
    found = {}
    for unseen in tables:
        rest = {name: table for name, table in tables.items() if name != unseen}
        fallback = {k: v for k, v in FALLBACK.items() if v != unseen}
        found[unseen] = {"default": defaults(rest), "architectures": rest, "fallback": fallback}
    fitting.write_json(fitting.HELD_OUT / "attention_encoder.json", found)


def main() -> None:
    """Fits, prints the scores of held-out rows, writes the file."""
    if fitting.asked("--transfer"):
        transfer()
        return
    parts = newest(encoder_rows(data_folder(), ROWS))
    groups = fitting.by_key(parts, lambda x: scheme_for(x.batch.variant, x.hardware).caller)
    tables: Tables = defaultdict(dict)
    scores: dict[str, dict[str, float]] = {}
    errors = []
    for (architecture, caller), parts in groups.items():
        train = held_out(parts, False)
        own = fit(train)
        logs = log_ratios(train, own)
        spread = float(np.sort(np.abs(logs))[int(0.9 * len(logs))]) / Z90
        rest = max(spread**2 - sum(x * x for x in SHARED.values()), 0.04**2)
        own["independent_log_sd"] = float(f"{np.sqrt(rest):.3g}")
        tables[architecture] |= {f"{caller}.{name}": value for name, value in own.items()}
        held = log_ratios(held_out(parts), own)
        errors.append(held)
        scores[f"{architecture}.{caller}"] = {
            "rows": float(len(held)),
            "mape": fitting.shares(held)["mape"],
            "log_bias": round(float(np.median(held)), 4),
        }
        print(architecture, caller, scores[f"{architecture}.{caller}"], own)
    print("all", np.mean(np.abs(np.expm1(np.concatenate(errors)))))
    physics = {
        "format": 1,
        "card": fitting.card(
            "python lab/fit_encoder_attention.py",
            [ENCODER.path],
            "newest campaign of every engine; 13 of 36 head geometries never fitted",
            scores,
        ),
        "default": defaults(tables),
        "architectures": {name: dict(table) for name, table in sorted(tables.items())},
        "fallback": FALLBACK,
    }
    if not fitting.asked("--dry"):
        fitting.write_json(TARGET, physics)


if __name__ == "__main__":
    main()
