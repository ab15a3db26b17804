"""Fits experts on matrix units that take MFMA instructions; writes catalog/physics/moe_mfma.json.

    OPENBLAS_NUM_THREADS=1 python -m lab.fit_moe_mfma

From the tuned layers of aiter on MI300X and MI355X that are not held out. There are few, so that
only what differs most between libraries is fitted; the rest stands at where the fit of others
starts, and a prior holds all of it. Deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Prior
from lab.moe_groups import SPREAD, START, UNFITTED, Group, grouped, log_ratio
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.mfma import aiter_expert_groups
from silicast.kernels.experts.moe import grown, selected
from silicast.kernels.physics.constants import replaced

STYLE, CHIPS = "ck", ("cdna3", "cdna4")
PRIORS: dict[str, Prior] = {
    "around_s": (5e-6, 5e-7, 4e-5),
    "ramp_s": (5e-6, 5e-7, 4e-5),
    "core_dram_bytes_per_s": (6.5e10, 5e10, 1.5e11),
    "quantisation": (0.5, 0.05, 1.0),
    "store_bytes_per_clock": (6.0, 1.0, 100.0),
    "sum_passes": (0.5, 0.05, 4.0),
    "middle_passes": (0.5, 0.05, 4.0),
    "overlap_loss": (0.4, 0.1, 0.7),
    "operand_bytes_per_clock": (40.0, 15.0, 1000.0),
    "l2_efficiency": (0.8, 0.3, 2.2),
}
"""Of all formats. A core keeps in flight what its shared memory holds, 64 KiB over a microsecond of
latency: a board with all cores tells no more than that it suffices, one with a quarter of them
needs it."""
OF_FORMAT: dict[str, Prior] = {
    "tensor_efficiency": (0.6, 0.1, 1.0),
    "dram_efficiency": (0.75, 0.4, 0.95),
    "step_s": (2e-7, 1e-8, 3e-6),
}
WEIGHT = 0.05
AS_LATER = 0.2
"""Weight of CDNA 4's constants in the fit of CDNA 3, which has a tenth of the rows."""
MEMORY = 0.5
"""Rate of CDNA 3's shared memory over CDNA 4's, at which operands come."""
LEAST_LOG_SD = 0.12
"""So few layers tell little of how far off others are."""
FIGURES = ("rows", "mape", "median", "bias")
BASE: Constants = {**START, **SPREAD, "skewed_log_sd": 0.1, "independent_log_sd": 0.15}


def groups_of(parts: Sequence[MeasuredRows]) -> list[Group]:
    """Rows by setting, at boost: what the power limit does is told from no earlier fit."""
    with replaced({"moe_mfma": UNFITTED}):
        return [group for groups in grouped(parts).values() for group in groups]


def off(group: Group, table: Constants) -> F:
    """Log of predicted over measured time under one architecture's constants."""
    constants = selected(table, STYLE, group.dtype)
    return log_ratio(group, grown(constants, group.setting.rates))


def fit(train: Sequence[MeasuredRows], origin: Mapping[str, float], weight: float) -> Constants:
    """Constants of one architecture, drawn to those of ``origin`` where it has them."""
    groups = groups_of(train)
    of_formats = {
        f"{STYLE}.{d}.{n}": prior
        for d in sorted({group.dtype for group in groups})
        for n, prior in OF_FORMAT.items()
    }
    priors = {**PRIORS, **of_formats}
    start = {**BASE, **{name: origin.get(name, prior[0]) for name, prior in priors.items()}}
    table = fitting.fit_within(
        priors,
        lambda c: [off(group, c) for group in groups],
        start,
        sum(map(len, train)),
        weight=weight,
        steps=40,
    )
    shared = (SPREAD["device_log_sd"], SPREAD["family_log_sd"])
    for group in groups:
        table[f"{STYLE}.{group.dtype}.independent_log_sd"] = fitting.own_log_sd(
            off(group, table), shared, wider=1.1, least=LEAST_LOG_SD
        )
    return table


def completed(table: Constants, relative: Constants) -> Constants:
    """With the other chip's constants of formats that have no rows; a kernel that neither has runs
    as the widest of these.
    """
    every = {**{n: x for n, x in relative.items() if n.startswith(f"{STYLE}.")}, **table}
    return every | {n: every[f"{STYLE}.bf16.{n}"] for n in OF_FORMAT}


class MfmaExperts(Fitter[list[MeasuredRows]]):
    """Experts of aiter on CDNA 3 and CDNA 4."""

    group = "moe_mfma"
    data = ("kernels/aiter_moe_mi300x, aiter_moe_mi355x",)
    split = "one layer in three is not fitted; scores are on these"
    notes = "default: CDNA 4, which stands in for later parts"

    def rows(self, data: Path) -> list[MeasuredRows]:
        return aiter_expert_groups(data)

    def fit(self, rows: list[MeasuredRows]) -> Body:
        train = held_out(rows, False)
        early, late = (
            [part for part in train if part.hardware.architecture == name] for name in CHIPS
        )
        cdna4 = fit(late, {}, WEIGHT)
        operands = cdna4["operand_bytes_per_clock"] * MEMORY
        cdna3 = fit(early, {**cdna4, "operand_bytes_per_clock": operands}, AS_LATER)
        tables = dict(zip(CHIPS, (completed(cdna3, cdna4), completed(cdna4, cdna3)), strict=True))
        changed = {
            name: {n: x for n, x in table.items() if x != BASE.get(n)}
            for name, table in tables.items()
        }
        return fitting.body(tables["cdna4"], changed, {"cdna5": "cdna4"})

    def scores(self, rows: list[MeasuredRows], body: Body) -> Mapping[str, Any]:
        test = held_out(rows)
        table = {
            f"{group.setting.device.name} {group.dtype}": fitting.percent(
                off(group, {**BASE, **body["architectures"][group.architecture]}), *FIGURES
            )
            for group in groups_of(test)
        }
        print(table)
        return {"held-out layers": table}


if __name__ == "__main__":
    MfmaExperts().run()
