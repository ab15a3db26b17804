"""Estimates what calibrations start from and writes catalog/physics/calibration.json.

    python -m lab.fit_calibration

Two kinds of numbers, both from rows that no suite scores, with every architecture predicted as an
unmeasured one:

- how far known devices lie from such predictions (of all kernels together, of each resource, of
  kernel to kernel, of noise): the priors of a calibration. Empirical Bayes: fits of tables under
  wide priors, whose results give means and spreads. One round: a second one would take what the
  first has drawn toward none for what devices differ in, and end at nothing.
- how much of one device's error carries over to another one, for identical kernels, between
  devices of one architecture and between architectures: the slope of one error on the other over
  the same kernels, and the spread of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants
from lab.scorecard.held_out import unknown_architecture
from lab.scorecard.suites.calibrated import SOURCES_READ
from lab.scorecard.user_tables import DEVICES, UserTable, user_tables
from silicast.core.numerics import F64
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.kernels.check import op_at
from silicast.kernels.physics.constants import replaced
from silicast.learning.calibration_fit import op_hash
from silicast.learning.features import Kernels, all_names
from silicast.learning.interpolation import (
    PHYSICS,
    InterpolationFit,
    coordinates,
    fit,
    placed,
    trend_names,
    trend_of,
)

SISTERS = ("H200-SXM-141GB", "GB200")
ROWS = 120
"""Rows of a table that priors are estimated with."""
PAIRED = 2000
"""Rows of a table that are paired with those of other devices, at most."""
WIDE = {
    "offset_log_sd": 0.2,
    "trend_log_sd": 0.15,
    "field_log_sd": 0.15,
    "noise_log_sd": 0.05,
    "scale": 0.3,
    "scale_spread": 1.0,
    "sd_spread": 1.0,
}
"""Judged: priors before any device was measured."""
LEAST_SPREAD = 0.3
LARGEST = 1.0
"""Ratios beyond e do not carry over from one device to another."""


@dataclass(frozen=True)
class Ratios:
    """Logs of measured over predicted time of a table's kernels, by op; shares of resources."""

    table: UserTable
    architecture: str
    log_ratio: Constants
    shares: dict[str, Constants]


class Calibration(Fitter[list[UserTable]]):
    """Priors of calibrations, and what carries over between devices."""

    group = PHYSICS
    data = tuple(SOURCES_READ)
    split = "rows that no suite scores; every architecture predicted without its own rows"
    notes = "scales are per usual length of a coordinate: three octaves, a third of a share"

    def rows(self, data: Path) -> list[UserTable]:
        return list(user_tables(data, (*DEVICES, *SISTERS)))

    def fit(self, rows: list[UserTable]) -> Body:
        constants = _priors(_first(rows), WIDE) | _carried([_ratios(table) for table in rows])
        print({name: round(value, 4) for name, value in constants.items()}, flush=True)
        default = {name: float(f"{value:.3g}") for name, value in constants.items()}
        return {"default": default, "architectures": {}, "fallback": {}}

    def scores(self, rows: list[UserTable], body: Body) -> Mapping[str, Any]:
        return {"tables": len(_first(rows)), "tables_of_pairs": len(rows)}


def _first(tables: list[UserTable]) -> list[UserTable]:
    """Those of the devices that calibrations are scored on."""
    devices = {find_device(name).name for name in DEVICES}
    return [table for table in tables if find_device(table.device).name in devices]


def _priors(tables: list[UserTable], constants: Constants) -> Constants:
    """Means and spreads over the fits of all tables."""
    fits: list[tuple[float, InterpolationFit]] = []
    physics = fitting.physics(fitting.card("", [], ""), constants)
    for table in tables:
        fit_rows = table.drawn()
        fit_rows = np.sort(fit_rows[~table.held_out[fit_rows]][:ROWS])
        # constants of calibrations are replaced inside, as the context forgets what is outside
        with unknown_architecture(table.hardware.architecture), replaced({PHYSICS: physics}):
            fits.append(_fit(table.take(fit_rows)))
    medians = np.array([median for median, _ in fits])
    trends = np.concatenate([offset.trend[1:] for _, offset in fits])
    fields = np.log([offset.field_log_sd for _, offset in fits])
    noises = np.log([offset.noise_log_sd for _, offset in fits])
    scales = np.log(np.concatenate([offset.scales for _, offset in fits]))
    return {
        "offset_log_sd": _sd(medians),
        "trend_log_sd": _sd(trends),
        "field_log_sd": float(np.exp(np.median(fields))),
        "noise_log_sd": float(np.exp(np.median(noises))),
        "scale": float(np.exp(np.median(scales))),
        "scale_spread": max(LEAST_SPREAD, float(scales.std())),
        "sd_spread": max(LEAST_SPREAD, float(np.concatenate([fields, noises]).std() / np.sqrt(2))),
    }


def _fit(table: UserTable) -> tuple[float, InterpolationFit]:
    """The median ratio of a table's rows, and what is fitted to the rest."""
    model, device = table.model, table.hardware
    names = all_names(model, [(part.batch, device) for part in table.parts])
    columns: list[tuple[F64, F64, F64]] = []
    for part in table.parts:
        times = type(model).times(model, part.batch, device)
        kernels = Kernels.from_analysis(model, times.analysis, part.batch, device)
        columns.append(
            (
                placed(coordinates(names, model.ragged), kernels),
                trend_of(trend_names(names), kernels),
                np.log(part.seconds / times.estimate_s),
            )
        )
    where, terms, target = (
        np.concatenate(arrays, axis=-1) for arrays in zip(*columns, strict=True)
    )
    median = float(np.median(target))
    return median, fit(where, terms, target - median)


def _ratios(table: UserTable) -> Ratios:
    """Ratios of a table's rows that no suite scores, its architecture unknown."""
    model, device = table.model, table.hardware
    fit_rows = table.drawn()
    sample = table.take(np.sort(fit_rows[~table.held_out[fit_rows]][:PAIRED]))
    ratio: Constants = {}
    shares: dict[str, Constants] = {}
    with unknown_architecture(device.architecture):
        for part in sample.parts:
            times = type(model).times(model, part.batch, device)
            logs = np.log(part.seconds / times.estimate_s)
            for row in range(len(part.batch)):
                key = f"{op_hash(op_at(part.batch, row))}"
                ratio[key] = float(np.clip(logs[row], -LARGEST, LARGEST))
                time = times.analysis.time_s[row]
                resources = times.analysis.resource_s.items()
                shares[key] = {name: float(seconds[row] / time) for name, seconds in resources}
    return Ratios(table, device.architecture, ratio, shares)


def _carried(every: list[Ratios]) -> Constants:
    """Shares that carry over within and between architectures, and the spread of the rest."""
    pairs: dict[str, list[tuple[F64, F64]]] = {"same": [], "other": []}
    for have in every:
        for wanted in every:
            own, target = have.table, wanted.table
            same_kernels = (own.family, own.dtype, own.library) == (
                target.family,
                target.dtype,
                target.library,
            )
            keys = sorted(have.log_ratio.keys() & wanted.log_ratio.keys())
            if own.device == target.device or not same_kernels or len(keys) < 40:
                continue
            kind = "same" if have.architecture == wanted.architecture else "other"
            alike = np.array([_alike(have.shares[key], wanted.shares[key]) for key in keys])
            told = np.array([have.log_ratio[key] for key in keys]) * alike
            pairs[kind].append((told, np.array([wanted.log_ratio[key] for key in keys])))
    constants = {}
    for kind, pair in pairs.items():
        top = np.mean([float(np.mean(x * y)) for x, y in pair])
        share = float(np.clip(top / np.mean([float(np.mean(x * x)) for x, _ in pair]), 0.0, 1.0))
        left = [float(np.quantile(np.abs(y - share * x), 0.9)) / Z90 for x, y in pair]
        before = float(np.mean([np.abs(y).mean() for _, y in pair]))
        after = float(np.mean([np.abs(y - share * x).mean() for x, y in pair]))
        print(f"{kind} {len(pair)} pairs, |log| before {before:.3f} after {after:.3f}")
        constants[f"carried_{kind}"] = share
        constants[f"carried_{kind}_log_sd"] = float(np.median(left))
    return constants


def _alike(one: Constants, other: Constants) -> float:
    names = one.keys() | other.keys()
    pairs = [(one.get(name, 0.0), other.get(name, 0.0)) for name in names]
    return sum(map(min, pairs)) / max(sum(map(max, pairs)), 1e-30)


def _sd(values: F64) -> float:
    """Root mean square, outliers held at three times the usual size."""
    limit = 3.0 * float(np.quantile(np.abs(values), 0.683))
    return float(np.sqrt(np.mean(np.square(np.clip(values, -limit, limit)))))


if __name__ == "__main__":
    Calibration().run()
