"""Fits the constants of recurrent layers and writes catalog/physics/recurrent_layers.json.

    python -m lab.fit_recurrent

Robust least squares (soft L1) on log(estimate / measured) with a weak prior around datasheet-like
guesses: constants of all architectures first, then those of each architecture around them.
Sizes marked held out are only scored. Deterministic; a minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F
from lab.recurrent_rows import recurrent_rows
from lab.scorecard.rows import Mask, MeasuredRows
from lab.scorecard.suites.other_vendors import DEEPBENCH
from silicast.core.prediction import Z90
from silicast.hardware.device import Device
from silicast.kernels.recurrent.recurrent_layers import (
    NARROW,
    LayerRates,
    LayerShape,
    RecurrentLayer,
    layer_rates,
    layer_time,
)
from silicast.kernels.timed_parts import timed
from silicast.workload.graphs.op import Variant

SHARED = {
    "forward.step_s": 6e-6, "data.step_s": 8e-6, "weights.step_s": 2e-7, "call_s": 1e-4,
    "forward.dram_efficiency": 0.75, "data.dram_efficiency": 0.6, "forward.efficiency": 0.5,
    "data.efficiency": 0.5, "weights.efficiency": 1.0, "gates_efficiency": 0.6,
    "forward.sum_cycles": 60.0, "data.sum_cycles": 60.0, "added_columns": 20.0, "l2_time": 0.5,
}  # fmt: skip
"""Constants that rows tell, and where they start."""
NARROW_CYCLES = "narrow_sum_cycles"
NARROW_TILES = ("pascal",)
"""Architectures whose rows show narrow tiles: 32 sequences take up to four times as long as 64. On
all others more sequences never take less time.
"""
FIXED = {
    NARROW_CYCLES: 0.0,
    "launch_s": 5e-6, "l2_share": 0.7,
    # no such kernel is in the table: a barrier of all cores (Zhang et al., A Study of Single and
    # Multi-device Synchronization Methods in Nvidia GPUs, 2020: 1.4 to 2.5 us on P100 and V100)
    "barrier_s": 2e-6, "register_share": 0.75, "persistent_efficiency": 0.5,
}  # fmt: skip
UPPER = {"forward.efficiency": 1.3, "data.efficiency": 1.3}
PRIOR_SD, OWN_SD, NARROW_SD = 0.7, 0.4, 3.0
"""Of logs: of shared constants, of an architecture's around them, of its narrow tiles."""
CLIP = 0.2
STAND_INS = {
    "turing": "volta", "ampere": "volta", "ampere-ga10x": "volta", "ada": "volta",
    "hopper": "volta", "blackwell": "volta", "blackwell-rtx": "volta",
    "cdna2": "gcn5", "cdna3": "gcn5", "cdna4": "gcn5", "rdna3": "gcn5", "rdna4": "gcn5",
}  # fmt: skip
"""Architecture without rows -> the nearest one: the newest of its vendor."""


@dataclass(frozen=True)
class Part:
    """One pass of rows, ready to be evaluated under any constants."""

    shape: LayerShape
    variant: Variant
    rates: LayerRates
    once_s: F

    @staticmethod
    def of(rows: MeasuredRows) -> Part:
        model, batch, device = rows.model, rows.batch, rows.hardware
        assert isinstance(model, RecurrentLayer)
        floats = {name: values.astype(np.float64) for name, values in batch.dims.items()}
        once_s = sum(part.total_s for part in timed(model.once(batch), device))
        rates = layer_rates.__wrapped__(batch.variant, device)
        return Part(model.shape(floats), batch.variant, rates, np.asarray(once_s))

    def time(self, c: Mapping[str, float]) -> F:
        return layer_time(self.shape, self.variant, self.rates, c, self.once_s)


@dataclass(frozen=True)
class Case:
    """Rows of one device, kind and column of the table: a time of one or two passes."""

    rows: MeasuredRows
    parts: tuple[Part, ...]
    hardware: Device

    def log_ratio(self, c: Mapping[str, float]) -> F:
        """log(estimate / measured) per row."""
        time = sum(part.time(c) for part in self.parts)
        return np.log(np.asarray(time) / self.rows.seconds)

    @property
    def narrow(self) -> Mask:
        """Rows that run with narrow tiles."""
        columns = self.parts[0].shape.batch
        inside = np.asarray((columns > NARROW[0]) & (columns <= NARROW[1]))
        return inside & (self.hardware.architecture in NARROW_TILES)


def cases(data: Path) -> list[Case]:
    """All rows of the table, by device, format, kind and column."""
    return [
        Case(parts[0], tuple(Part.of(part) for part in parts), parts[0].hardware)
        for _, parts in recurrent_rows(data)
    ]


def _solved(
    used: Sequence[tuple[Case, Mask]], start: Mapping[str, float], sd: Mapping[str, float]
) -> Constants:
    """Constants around a start, from some of the rows."""
    names = list(sd)
    origin, width = np.log([start[n] for n in names]), np.array([sd[n] for n in names])
    high = np.log([UPPER.get(n, np.inf) for n in names])

    def residuals(logs: F) -> F:
        c = {**start, **dict(zip(names, np.exp(np.minimum(logs, high)).tolist(), strict=True))}
        errors = [case.log_ratio(c)[mask] for case, mask in used]
        return np.concatenate([*errors, (logs - origin) / width])

    logs = least_squares(residuals, origin, loss="soft_l1", f_scale=CLIP).x
    return {**start, **dict(zip(names, np.exp(np.minimum(logs, high)).tolist(), strict=True))}


def fitted(every: Sequence[Case], use: Sequence[Mask]) -> Body:
    """Default and architectures, from the rows that ``use`` marks."""
    pairs = [pair for pair in zip(every, use, strict=True) if pair[1].any()]
    wide = [(case, mask & ~case.narrow) for case, mask in pairs]
    default = _solved(wide, {**FIXED, **SHARED}, dict.fromkeys(SHARED, PRIOR_SD))
    tables: dict[str, Constants] = {}
    for name in sorted({case.hardware.architecture for case, _ in pairs}):
        own_sd, start = dict.fromkeys(SHARED, OWN_SD), default
        if name in NARROW_TILES:
            own_sd[NARROW_CYCLES] = NARROW_SD
            start = {**default, NARROW_CYCLES: default["forward.sum_cycles"]}
        own = _solved([p for p in pairs if p[0].hardware.architecture == name], start, own_sd)
        tables[name] = {key: own[key] for key in own_sd}
    return {**fitting.body(default, tables, STAND_INS)}


def errors_of(logs: Mapping[str, F]) -> Constants:
    """Sizes of errors from residuals by device: shared by a device's rows, and of its own rows."""
    middles = {name: float(np.median(logs_of_device)) for name, logs_of_device in logs.items()}
    own = np.concatenate(
        [np.abs(logs_of_device - middles[name]) for name, logs_of_device in logs.items()]
    )
    return {
        "device_log_sd": round(max(float(np.std(list(middles.values()))), 0.05), 3),
        "family_log_sd": 0.1,
        "independent_log_sd": round(float(np.quantile(own, 0.9)) / Z90, 3),
    }


def residuals_by_device(every: Sequence[Case], use: Sequence[Mask], body: Body) -> dict[str, F]:
    """log(estimate / measured) of marked rows under a body."""
    table: dict[str, list[F]] = {}
    for case, mask in zip(every, use, strict=True):
        own = body["architectures"].get(case.hardware.architecture, {})
        logs = case.log_ratio({**body["default"], **own})[mask]
        if len(logs):
            table.setdefault(case.hardware.name, []).append(logs)
    return {name: np.concatenate(arrays) for name, arrays in table.items()}


class RecurrentFitter(Fitter[list[Case]]):
    group = "recurrent_layers"
    data = (DEEPBENCH,)
    split: ClassVar[str] = "sizes (units and sequences), one in four by hash, on all devices"
    notes: ClassVar[str] = (
        "steps are those of the benchmark's published problems; persistent kernels are not in the "
        "table; device held out: python -m benchmarks.recurrent_layers"
    )

    def rows(self, data: Path) -> list[Case]:
        return cases(data)

    def fit(self, rows: list[Case]) -> Body:
        body = fitted(rows, [~case.rows.held_out for case in rows])
        scored = residuals_by_device(rows, [case.rows.held_out for case in rows], body)
        body["default"] |= errors_of(scored)
        return body

    def scores(self, rows: list[Case], body: Body) -> Mapping[str, Any]:
        held = residuals_by_device(rows, [case.rows.held_out for case in rows], body)
        every = np.abs(np.exp(np.concatenate(list(held.values()))) - 1.0)
        return {"rows": len(every), "median_ape": round(100 * float(np.median(every)), 1)}


def main() -> None:
    RecurrentFitter().run()


if __name__ == "__main__":
    main()
