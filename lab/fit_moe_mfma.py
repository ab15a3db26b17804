"""Fits experts on matrix units that take MFMA instructions; writes catalog/physics/moe_mfma.json.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_moe_mfma

From the tuned layers of aiter on MI300X that are not held out. There are few, so that only what
differs most between libraries is fitted; the rest stands at where the fit of others starts, and a
prior holds all of it. A minute on one core. Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Prior
from lab.moe_groups import SPREAD, START
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.mfma import aiter_expert_groups
from silicast.kernels.physics.constants import replaced

STYLE, ARCHITECTURE = "ck", "cdna3"
PRIORS: dict[str, Prior] = {
    "around_s": (5e-6, 5e-7, 4e-5),
    "ramp_s": (5e-6, 5e-7, 4e-5),
    "core_dram_bytes_per_s": (2e10, 3e9, 1e11),
    "quantisation": (0.5, 0.05, 1.0),
    "store_bytes_per_clock": (6.0, 1.0, 100.0),
    "sum_passes": (0.5, 0.05, 4.0),
    "middle_passes": (0.5, 0.05, 4.0),
    "overlap_loss": (0.4, 0.1, 0.7),
    "operand_bytes_per_clock": (40.0, 15.0, 1000.0),
}
"""Of both formats."""
OF_FORMAT: dict[str, Prior] = {
    "tensor_efficiency": (0.6, 0.2, 1.0),
    "dram_efficiency": (0.75, 0.4, 0.95),
    "step_s": (2e-7, 1e-8, 3e-6),
}
WEIGHT = 0.05
LEAST_LOG_SD = 0.12
"""So few layers tell little of how far off others are."""


def off(parts: Sequence[MeasuredRows], table: Constants) -> list[F]:
    """Log of predicted over measured time of each part, at the clock that the board holds."""
    body = fitting.physics(fitting.card("", [], ""), table, {ARCHITECTURE: table})
    with replaced({"moe_mfma": body}):
        return [
            np.log(part.model.times(part.batch, part.hardware).estimate_s / part.seconds)
            for part in parts
        ]


class MfmaExperts(Fitter[list[MeasuredRows]]):
    """Experts of aiter on CDNA 3."""

    group = "moe_mfma"
    data = ("kernels/aiter_moe_mi300x",)
    split = "one layer in three is not fitted; scores are on these"
    notes = "default: CDNA 3, which stands in for later parts"

    def rows(self, data: Path) -> list[MeasuredRows]:
        return aiter_expert_groups(data)

    def fit(self, rows: list[MeasuredRows]) -> Body:
        train = held_out(rows, False)
        dtypes = sorted({part.batch.variant.dtype for part in rows})
        priors = {
            **PRIORS,
            **{f"{STYLE}.{d}.{n}": prior for d in dtypes for n, prior in OF_FORMAT.items()},
        }
        base: Constants = {**START, **SPREAD, "skewed_log_sd": 0.1, "independent_log_sd": 0.15}
        start = {**base, **{name: prior[0] for name, prior in priors.items()}}
        table = fitting.fit_within(
            priors, lambda c: off(train, c), start, sum(map(len, train)), weight=WEIGHT, steps=40
        )
        shared = (SPREAD["device_log_sd"], SPREAD["family_log_sd"])
        for part, logs in zip(train, off(train, table), strict=True):
            table[f"{STYLE}.{part.batch.variant.dtype}.independent_log_sd"] = fitting.own_log_sd(
                logs, shared, wider=1.1, least=LEAST_LOG_SD
            )
        # a format that was not measured: as the wider one of those that were
        table |= {n: table[f"{STYLE}.bf16.{n}"] for n in OF_FORMAT}
        current = {n: x for n, x in table.items() if x != base.get(n)}
        later = dict.fromkeys(("cdna4", "cdna5"), ARCHITECTURE)
        return fitting.body(table, {ARCHITECTURE: current}, later)

    def scores(self, rows: list[MeasuredRows], body: Body) -> Mapping[str, Any]:
        test = held_out(rows)
        table = {
            part.words["group"]: fitting.percent(logs, "rows", "mape", "median", "bias")
            for part, logs in zip(test, off(test, body["default"]), strict=True)
        }
        print(table)
        return {"held-out layers": table}


if __name__ == "__main__":
    MfmaExperts().run()
