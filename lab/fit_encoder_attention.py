"""Fits what sets encoders' attention apart and writes catalog/physics/attention_encoder.json.

    python -m lab.fit_encoder_attention

For each architecture and caller: the launch of a call without a cache, what a tile costs beyond a
causal one, and the cost of a step at three widths, over the constants of prefill
(lab/fit_attention.py). Robust least squares (soft L1) on log ratios with a weak prior. Newest
campaign of every engine; held-out head geometries are only scored. Deterministic. An architecture's
constants come from its own rows alone: without them stands in what the others have in common,
the geometric mean of launches, and of a width's cost the median of theirs and of none, so that a
slow kernel of one architecture (TensorRT-LLM's for 72 on Blackwell) does not stand for all.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Key, Tables
from lab.scorecard.rows import MeasuredRows, held_out, newest
from lab.scorecard.suites.attention import ENCODER, encoder_rows
from silicast.kernels.attention.attention_scheduled import attention_constants
from silicast.kernels.attention.attention_schemes import scheme_for

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


def log_ratios(parts: Sequence[MeasuredRows], table: Mapping[str, float]) -> F:
    """log(estimate / measured) under prefill's constants with ``table`` put over them."""
    return np.concatenate(
        [fitting.log_ratio(part, {**base_of(part), **DEFAULT, **table}) for part in parts]
    )


def fit(parts: Sequence[MeasuredRows]) -> Constants:
    """The constants of one caller on one architecture."""
    base = base_of(parts[0])
    guess = np.array([max(float(base[n]), 100.0) for n in NAMES[:2]] + [1.0] * 3)
    guess[0] = max(guess[0], 4e3)
    scale = np.sqrt(200.0 / sum(len(part) for part in parts))

    def residuals(logs: F) -> F:
        table = dict(zip(NAMES, (guess * np.exp(logs)).tolist(), strict=True))
        return np.concatenate([log_ratios(parts, table) / MODEL_SD * scale, logs / PRIOR_SD])

    result = least_squares(residuals, np.zeros(len(NAMES)), loss="soft_l1", max_nfev=60)
    values = dict(zip(NAMES, (guess * np.exp(result.x)).tolist(), strict=True))
    return fitting.rounded(values, ordered=False)


def defaults(tables: Tables) -> Constants:
    """Constants of architectures that nothing stands in for."""
    means = fitting.means(tables.values())
    for name in means:
        if (plain := name.rpartition(".")[2]) in DEFAULT:
            values = [table[name] for table in tables.values() if name in table]
            means[name] = statistics.median([*values, DEFAULT[plain]])
    return {**DEFAULT, **SHARED, **fitting.rounded(means)}


class EncoderAttention(Fitter[Mapping[Key, list[MeasuredRows]]]):
    """Attention of encoders, over prefill's constants."""

    group = "attention_encoder"
    capped = True
    data = (ENCODER.path,)
    split = "newest campaign of every engine; 13 of 36 head geometries never fitted"

    def rows(self, data: Path) -> Mapping[Key, list[MeasuredRows]]:
        parts = newest(encoder_rows(data, ROWS))
        return fitting.by_key(parts, lambda x: scheme_for(x.batch.variant, x.hardware).caller)

    def fit(self, rows: Mapping[Key, list[MeasuredRows]]) -> Body:
        tables: Tables = defaultdict(dict)
        for (architecture, caller), parts in rows.items():
            train = held_out(parts, False)
            constants = fit(train)
            logs = log_ratios(train, constants)
            constants["independent_log_sd"] = fitting.own_log_sd(
                logs, list(SHARED.values()), least=0.04
            )
            tables[architecture] |= {f"{caller}.{name}": value for name, value in constants.items()}
        return fitting.body(defaults(tables), fitting.with_relatives(tables), FALLBACK)

    def scores(self, rows: Mapping[Key, list[MeasuredRows]], body: Body) -> dict[str, Any]:
        scores = {}
        for (architecture, caller), parts in rows.items():
            constants = fitting.own_of(body["architectures"][architecture], caller)
            held = log_ratios(held_out(parts), constants)
            scores[f"{architecture}.{caller}"] = fitting.shares(held)
            print(architecture, caller, scores[f"{architecture}.{caller}"], constants)
        return scores

    def without(
        self, rows: Mapping[Key, list[MeasuredRows]], architecture: str, body: Body
    ) -> Body:
        tables = {name: t for name, t in body["architectures"].items() if name != architecture}
        fallback = {k: v for k, v in FALLBACK.items() if v != architecture}
        return fitting.body(defaults(tables), tables, fallback)


if __name__ == "__main__":
    EncoderAttention().run()
