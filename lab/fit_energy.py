"""Fits energy per action of kernels and writes catalog/physics/energy.json.

    python -m lab.fit_energy

Board power of kernels that take long enough (suite "energy"), divided by
measured time: what remains is energy per action by architecture and an activity by family and
library, shared by all architectures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows
from lab.scorecard.suites.energy import LONG_S, TABLES, power_rows
from silicast.core.dtypes import recipe_for
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.physics.energy import (
    NOMINAL,
    Actions,
    actions,
    activity,
    activity_names,
    board_w,
    dram_byte_j,
    energies_from,
    free_power,
)
from silicast.kernels.physics.power import energy_growth

Parts = Sequence[MeasuredRows]


PER_GROUP = 40
REFERENCE_HZ = {"hopper": 1.83e9, "blackwell": 1.856e9}
DEFAULT_HZ = 1.8e9
ENERGIES = {
    "operation_j": 0.4e-12,
    "dram_byte_j": 4.5e-11,
    "l2_byte_j": 1e-11,
    "special_j": 4e-12,
    "core_cycle_j": 1e-9,
}
"""Guesses from published energies of actions (docs/explanation/power-and-energy.md)."""
RELATIVES = {"relative_energy.fp8": 0.55, "relative_energy.nvfp4": 0.3}
"""Guesses of the fitted formats' energy an operation relative to 16 bits."""
CLOCKED = ("operation_j", "l2_byte_j", "special_j", "core_cycle_j")
PULL = 2.0 / 0.4
"""0.4 of a logarithm away from a guess weighs as much as two residuals."""
ACTIVITY_PULL = 2.0 / 0.2
"""The same for each of the three factors of an activity."""
NOISE = 0.08
NEW_SIZES = 1.2
"""Judged: how much further off kernels of sizes that were not fitted are."""
ASSUMED = {
    "relative_energy.int8": 0.5,
    "relative_energy.mxfp4": 0.3,
    "relative_energy.tf32": 2.0,
    "relative_energy.fp64": 8.0,
    "relative_energy.fma.fp32": 8.0,
    "relative_energy.fma.fp16": 4.0,
    "relative_energy.fma.bf16": 4.0,
    "relative_energy.fma.fp64": 20.0,
    "board_memory_relative": 1.6,
}


def load(data: Path, *, held_out: bool) -> list[MeasuredRows]:
    """All rows that the split allows; of blocks, which come in many variants, fewer of each."""
    return [
        rows
        for table in TABLES
        for rows in power_rows(
            data, table, PER_GROUP if table in LONG_S else PER_GROUP // 4, held_out=held_out
        )
    ]


def architecture_of(rows: MeasuredRows) -> str:
    return rows.hardware.architecture


def log_ratio(watts: F, rows: MeasuredRows) -> F:
    """Log of predicted over measured power."""
    return np.log(watts / rows.values["watts"])


def static_w(data: Path) -> Constants:
    """Board -> what the least active kernels draw: the second percentile of all short rows."""
    entries: dict[str, list[F]] = {}
    for table in ("gemm", "generation_attention", "dsa_generation_module", "scale_matrix"):
        for rows in power_rows(data, table, 4000, held_out=False, long=False):
            entries.setdefault(rows.device, []).append(rows.values["watts"])
    return {
        f"static_w.{device}": float(np.percentile(np.concatenate(watts), 2.0))
        for device, watts in sorted(entries.items())
    }


class Problem:
    """Residuals of parts: energies of their architectures, relatives and activities of all."""

    def __init__(self, parts: Parts, static: Mapping[str, float]) -> None:
        self.parts = parts
        self.static = static
        self.architectures = sorted({architecture_of(part) for part in parts})
        named = [activity_names(part.batch.family, part.batch.variant) for part in parts]
        self.activities = sorted({name for names in named for name in names})
        caps = np.concatenate([part.values["watts"] / part.values["cap_w"] for part in parts])
        self.limit_share = float(np.median(caps[caps > 0.95]))
        self.unit = [watts_of_units(part) for part in parts]
        self.energies = len(ENERGIES) * len(self.architectures)

    def constants(self, x: F) -> Tables:
        """Architecture -> its constants, those of all included."""
        values = np.exp(x).tolist()
        shared = dict(zip((*RELATIVES, *self.activities), values[self.energies :], strict=True))
        count = len(ENERGIES)
        return {
            name: {
                **dict(zip(ENERGIES, values[i * count : (i + 1) * count], strict=True)),
                **shared,
            }
            for i, name in enumerate(self.architectures)
        }

    def power(self, part: MeasuredRows, unit: F, c: Mapping[str, float]) -> F:
        """Watts of a part's rows."""
        variant = part.batch.variant
        joules = [c[name] for name in ENERGIES]
        compute = recipe_for(variant.dtype).compute
        joules[0] *= {**ASSUMED, **c}.get(f"relative_energy.{compute}", 1.0)
        dynamic = sum(e * row for e, row in zip(joules, unit, strict=True))
        active = activity(part.batch.family, variant, c) * dynamic
        free = self.static[f"static_w.{part.device}"] + active
        watts: F = np.minimum(free, self.limit_share * part.values["cap_w"])
        return watts

    def residuals(self, x: F) -> F:
        """Log of power over measured, and what holds the constants near their start."""
        table = self.constants(x)
        residuals = [
            log_ratio(self.power(part, unit, table[architecture_of(part)]), part) / NOISE
            for part, unit in zip(self.parts, self.unit, strict=True)
        ]
        pull = np.full(len(x), PULL)
        pull[len(x) - len(self.activities) :] = ACTIVITY_PULL
        return np.concatenate([*residuals, (x - self.start) * pull])

    @property
    def start(self) -> F:
        """Where the fit begins and what it is pulled to."""
        energies = np.tile(list(ENERGIES.values()), len(self.architectures))
        ones = np.ones(len(self.activities))
        logs: F = np.log(np.concatenate([energies, list(RELATIVES.values()), ones]))
        return logs

    def solve(self) -> Tables:
        """Constants of every architecture."""
        return self.constants(
            least_squares(self.residuals, self.start, loss="soft_l1", max_nfev=60).x
        )


def watts_of_units(rows: MeasuredRows) -> F:
    """Watts of each action at an energy of one joule, shape (actions, rows)."""
    device, work = rows.hardware, work_of(rows)
    columns = []
    for name in ENERGIES:
        unit = {
            **dict.fromkeys(ENERGIES, 0.0),
            "limit_share": 1.0,
            "log_sd": 0.0,
            "static_share": 0.0,
            "board_memory_relative": 1.0,
            "reference_hz": REFERENCE_HZ[device.architecture],
            name: 1.0,
        }
        energies = energies_from(device, rows.batch.family, rows.batch.variant, unit, measured=True)
        columns.append(free_power(energies, work, rows.seconds, device))
    return np.stack(columns)


def work_of(rows: MeasuredRows) -> Actions:
    """Actions of the rows' kernels."""
    analysis = rows.model.times(rows.batch, rows.hardware).analysis
    return actions(analysis, rows.batch.variant, rows.hardware)


def body(parts: Parts, static_w: Mapping[str, float]) -> Body:
    """What a physics file holds, fitted on these parts."""
    devices = {f"static_w.{part.device}" for part in parts}
    static = {name: watts for name, watts in static_w.items() if name in devices}
    problem = Problem(parts, static)
    fitted = problem.solve()
    shared = {k: v for k, v in next(iter(fitted.values())).items() if k not in ENERGIES}
    boards = {find_device(name.removeprefix("static_w.")): watts for name, watts in static.items()}
    tables: Tables = {}
    at_default: dict[str, list[float]] = {name: [] for name in ENERGIES}
    for architecture, c in fitted.items():
        hz = REFERENCE_HZ[architecture]
        tables[architecture] = {name: c[name] for name in ENERGIES} | {"reference_hz": hz}
        growth = energy_growth(DEFAULT_HZ / hz)
        for name, values in at_default.items():
            values.append(c[name] * (growth if name in CLOCKED else 1.0))
    for board, watts in boards.items():
        tables[board.architecture][f"static_w.{board.name}"] = watts
    default = {
        **ASSUMED,
        **shared,
        **{name: fitting.geometric_mean(values) for name, values in at_default.items()},
        "reference_hz": DEFAULT_HZ,
        "limit_share": problem.limit_share,
        "static_share": fitting.geometric_mean([w / cap_w(board) for board, w in boards.items()]),
    }
    default["products_share"] = fitting.geometric_mean(
        [products_share(board, {**default, **tables[board.architecture]}) for board in boards]
    )
    body: Body = {"default": default, "architectures": tables}
    default |= {"log_sd": 0.1, "unmeasured_log_sd": 0.3}
    logs = errors(parts, body, measured=True)
    default["log_sd"] = NEW_SIZES * spread(parts, logs)
    for family in sorted({part.batch.family for part in parts}):
        indices = [i for i, part in enumerate(parts) if part.batch.family == family]
        wide = spread([parts[i] for i in indices], [logs[i] for i in indices])
        default[f"log_sd.{family}"] = max(NEW_SIZES * wide, 0.5 * default["log_sd"])
    default["run_log_sd"] = NEW_SIZES * common_spread(parts, logs)
    return body


def cap_w(device: Device) -> float:
    """The power limit of a measured board."""
    assert device.power_cap_w is not None
    return device.power_cap_w


def products_share(device: Device, c: Mapping[str, float]) -> float:
    """What large products would take of the board's limit."""
    board = board_w(device, c)
    memory = NOMINAL["dram"] * device.dram.bandwidth_bytes_per_s * dram_byte_j(device, c)
    return (board.static_w + board.core_w + board.products_w + memory) / board.cap_w


def errors(parts: Parts, result: Body, *, measured: bool) -> list[F]:
    """Log of predicted over measured power, given the measured time, of all rows."""
    logs = []
    for part in parts:
        device, batch = part.hardware, part.batch
        own_constants = result["architectures"].get(device.architecture, {}) if measured else {}
        c = {**result["default"], **own_constants}
        e = energies_from(device, batch.family, batch.variant, c, measured=measured)
        free = free_power(e, work_of(part), part.seconds, device)
        logs.append(log_ratio(np.minimum(free, e.limit_w), part))
    return logs


def spread(parts: Parts, logs: list[F]) -> float:
    """Log sd whose 90 % interval holds nine in ten rows that are not at their limit."""
    below = [part.values["watts"] < 0.95 * part.values["cap_w"] for part in parts]
    rows = np.concatenate([x[free] for x, free in zip(logs, below, strict=True)])
    return float(np.quantile(np.abs(rows), 0.9)) / Z90 if len(rows) else 0.0


def common_spread(parts: Parts, logs: list[F]) -> float:
    """Log sd of what all kernels of a board, library and family err by together, which stays where
    a run adds many of them up: root mean square of the groups' means, rows at the limit left out.
    """
    groups: dict[tuple[str, str, str], list[F]] = {}
    for part, log_errors in zip(parts, logs, strict=True):
        below = part.values["watts"] < 0.95 * part.values["cap_w"]
        name = part.device, part.batch.variant.library, part.batch.family
        groups.setdefault(name, []).append(log_errors[below])
    rows = [np.concatenate(several) for several in groups.values()]
    means = np.array([errors.mean() for errors in rows if len(errors)])
    if not len(means):
        raise ValueError("no row below the limit: errors of runs cannot be told")
    return float(np.sqrt(np.mean(means * means)))


def show(parts: Parts, logs: list[F], title: str) -> Constants:
    """Prints errors by board, table and library; the figures of all."""
    groups: dict[str, list[F]] = {}
    for part, log_errors in zip(parts, logs, strict=True):
        name = f"{part.device} {part.words['table']} {part.batch.variant.library}"
        groups.setdefault(name, []).append(log_errors)
    for name, several in [(title, logs), *sorted(groups.items())]:
        ape = 100.0 * np.abs(np.expm1(np.concatenate(several)))
        bias = 100.0 * np.median(np.concatenate(several))
        print(
            f"{name:55} n {len(ape)} mean {np.mean(ape):.1f} median {np.median(ape):.1f} "
            f"bias {bias:.1f}"
        )
    whole = np.concatenate(logs)
    ape = 100.0 * np.abs(np.expm1(whole))
    return {
        "rows": float(len(whole)),
        "mean": float(np.mean(ape)),
        "median": float(np.median(ape)),
        "bias_log_pct": 100.0 * float(np.median(whole)),
    }


@dataclass(frozen=True)
class Rows:
    """Those that may be fitted, those held out, and what each board draws without work."""

    fitted: list[MeasuredRows]
    held_out: list[MeasuredRows]
    static_w: Constants

    def of(self, architecture: str) -> list[MeasuredRows]:
        """Held-out rows of an architecture."""
        return [part for part in self.held_out if architecture_of(part) == architecture]


class Energy(Fitter[Rows]):
    """Energy per action, and activities."""

    group = "energy"
    data = tuple(f"aiconfigurator/{table}.parquet: power_w" for table in TABLES)
    split = "that of the families' times; only calls that take long enough for the meter"
    notes = (
        "H200, B200 and GB200 are the boards with power; relative energies of formats other than "
        "fp8 and nvfp4 and of memory off the package are assumed; default is the geometric mean of "
        "hopper and blackwell; unmeasured_log_sd is of an architecture left out; run_log_sd and "
        "unmeasured_run_log_sd are of the means of a board's, library's and family's kernels"
    )

    def __init__(self) -> None:
        self.others: dict[str, Body] = {}

    def rows(self, data: Path) -> Rows:
        return Rows(load(data, held_out=False), load(data, held_out=True), static_w(data))

    def fit(self, rows: Rows) -> Body:
        result = body(rows.fitted, rows.static_w)
        unmeasured, together = [], []
        for name in sorted(result["architectures"]):
            others = [part for part in rows.fitted if architecture_of(part) != name]
            without_architecture = body(others, rows.static_w)
            every, fitted = rows.of(name), [p for p in rows.fitted if architecture_of(p) == name]
            logs = errors(every, without_architecture, measured=False)
            unmeasured.append(spread(every, logs))
            logs = errors(fitted, without_architecture, measured=False)
            together.append(common_spread(fitted, logs))
            self.others[name] = without_architecture
        for body_ in (result, *self.others.values()):
            body_["default"]["unmeasured_log_sd"] = max(unmeasured)
            body_["default"]["unmeasured_run_log_sd"] = max(together)
        return {**rounded(result), "fallback": {}}

    def scores(self, rows: Rows, body: Body) -> dict[str, Any]:
        held = rows.held_out
        table = {"held-out rows": show(held, errors(held, body, measured=True), "held out")}
        for name, body_without in self.others.items():
            mine = rows.of(name)
            logs = errors(mine, body_without, measured=False)
            table[f"without {name}"] = show(mine, logs, f"without {name}")
        return {"power given the measured time, APE %": table}

    def without(self, rows: Rows, architecture: str, body: Body) -> Body:
        return {**rounded(self.others[architecture]), "fallback": {}}


def rounded(tree: Any) -> Any:
    """Four digits of every number."""
    if isinstance(tree, float):
        return float(f"{tree:.4g}")
    return {k: rounded(v) for k, v in sorted(tree.items())} if isinstance(tree, dict) else tree


if __name__ == "__main__":
    Energy().run()
