"""Fits energy per action of kernels and writes catalog/physics/energy.json.

    python benchmarks/fit_energy.py [--dry] [--transfer]

Board power of kernels that take long enough (validation/suites/_energy_rows.py), divided by
measured time: what remains is energy per action by architecture and an activity by family and
library, shared by all architectures. ``--transfer`` refits without each architecture's rows and
writes validation/held_out/energy.json instead.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from silicast.core.dtypes import recipe_for
from silicast.core.prediction import Z90
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.energy import (
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
from silicast.kernels.implementation import implementation_for
from silicast.kernels.power import energy_growth
from silicast.validation.suite import data_folder
from silicast.validation.suites._energy_rows import LONG_S, TABLES, PowerRows, power_rows

F = NDArray[np.float64]


class Body(TypedDict):
    """Constants of a physics file."""

    default: dict[str, float]
    architectures: dict[str, dict[str, float]]


DATA = data_folder()
SOURCE = Path(__file__).resolve().parents[1] / "src/silicast"
OUT = SOURCE / "catalog/physics/energy.json"
HELD_OUT = SOURCE / "validation/held_out/energy.json"
PER_GROUP = 40
REFERENCE_HZ = {"hopper": 1.83e9, "blackwell": 1.856e9}
DEFAULT_HZ = 1.8e9
ENERGIES = {
    "operation_j": 0.4e-12, "dram_byte_j": 4.5e-11, "l2_byte_j": 1e-11, "special_j": 4e-12,
    "core_cycle_j": 1e-9,
}  # fmt: skip
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
    "relative_energy.int8": 0.5, "relative_energy.mxfp4": 0.3, "relative_energy.tf32": 2.0,
    "relative_energy.fp64": 8.0,
    "relative_energy.fma.fp32": 8.0, "relative_energy.fma.fp16": 4.0,
    "relative_energy.fma.bf16": 4.0, "relative_energy.fma.fp64": 20.0,
    "board_memory_relative": 1.6,
}  # fmt: skip


def per_group(table: str) -> int:
    """Rows of each variant that are read: blocks come in so many that fewer do."""
    return PER_GROUP if table in LONG_S else PER_GROUP // 4


@dataclass(frozen=True)
class Part:
    """Rows of one campaign with the rates of their actions at unit energy."""

    rows: PowerRows
    architecture: str

    def __len__(self) -> int:
        return len(self.rows)


def load(held_out: bool) -> list[Part]:
    """All parts that the split allows."""
    return [
        Part(rows, find_device(rows.device).architecture)
        for table in TABLES
        for rows in power_rows(DATA, table, per_group(table), held_out=held_out)
    ]


def static_w(parts: list[Part]) -> dict[str, float]:
    """Board -> what the least active kernels draw: the second percentile of all short rows."""
    found: dict[str, list[F]] = {}
    for table in ("gemm", "generation_attention", "dsa_generation_module", "scale_matrix"):
        for rows in power_rows(DATA, table, 4000, held_out=False, long=False):
            found.setdefault(rows.device, []).append(rows.watts)
    boards = {part.rows.device for part in parts}
    return {
        f"static_w.{device}": float(np.percentile(np.concatenate(watts), 2.0))
        for device, watts in sorted(found.items()) if device in boards
    }  # fmt: skip


class Problem:
    """Residuals of parts: energies of their architectures, relatives and activities of all."""

    def __init__(self, parts: list[Part], static: Mapping[str, float]) -> None:
        self.parts = parts
        self.static = static
        self.architectures = sorted({part.architecture for part in parts})
        self.named = [activity_names(p.rows.batch.family, p.rows.batch.variant) for p in parts]
        self.activities = sorted({name for names in self.named for name in names})
        caps = np.concatenate([part.rows.watts / part.rows.cap_w for part in parts])
        self.limit_share = float(np.median(caps[caps > 0.95]))
        self.unit = [watts_of_units(part) for part in parts]
        self.energies = len(ENERGIES) * len(self.architectures)

    def constants(self, x: F) -> dict[str, dict[str, float]]:
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

    def power(self, part: Part, unit: F, c: Mapping[str, float]) -> F:
        """Watts of a part's rows."""
        batch = part.rows.batch
        own = [c[name] for name in ENERGIES]
        own[0] *= {**ASSUMED, **c}.get(f"relative_energy.{compute_of(part.rows)}", 1.0)
        dynamic = sum(e * row for e, row in zip(own, unit, strict=True))
        free = (
            self.static[f"static_w.{part.rows.device}"]
            + activity(batch.family, batch.variant, c) * dynamic
        )
        watts: F = np.minimum(free, self.limit_share * part.rows.cap_w)
        return watts

    def residuals(self, x: F) -> F:
        """Log of power over measured, and what holds the constants near their start."""
        table = self.constants(x)
        found = [
            np.log(self.power(part, unit, table[part.architecture]) / part.rows.watts) / NOISE
            for part, unit in zip(self.parts, self.unit, strict=True)
        ]
        pull = np.full(len(x), PULL)
        pull[len(x) - len(self.activities) :] = ACTIVITY_PULL
        return np.concatenate([*found, (x - self.start) * pull])

    @property
    def start(self) -> F:
        """Where the fit begins and what it is pulled to."""
        energies = np.tile(list(ENERGIES.values()), len(self.architectures))
        ones = np.ones(len(self.activities))
        logs: F = np.log(np.concatenate([energies, list(RELATIVES.values()), ones]))
        return logs

    def solve(self) -> dict[str, dict[str, float]]:
        """Constants of every architecture."""
        return self.constants(
            least_squares(self.residuals, self.start, loss="soft_l1", max_nfev=60).x
        )


def compute_of(rows: PowerRows) -> str:
    """The format that the rows' products are computed in."""
    return recipe_for(rows.batch.variant.dtype).compute


def watts_of_units(part: Part) -> F:
    """Watts of each action at an energy of one joule, shape (actions, rows)."""
    rows, device = part.rows, find_device(part.rows.device)
    work = work_of(rows)
    columns = []
    for name in ENERGIES:
        unit = {
            **dict.fromkeys(ENERGIES, 0.0), "limit_share": 1.0, "log_sd": 0.0, "static_share": 0.0,
            "board_memory_relative": 1.0, "reference_hz": REFERENCE_HZ[part.architecture],
            name: 1.0,
        }  # fmt: skip
        found = energies_from(device, rows.batch.family, rows.batch.variant, unit, measured=True)
        columns.append(free_power(found, work, rows.seconds, device))
    return np.stack(columns)


def work_of(rows: PowerRows) -> Actions:
    """Actions of the rows' kernels."""
    device = find_device(rows.device)
    model = implementation_for(rows.batch.family, "simt")
    assert model is not None
    analysis = model.times(rows.batch, device).analysis
    return actions(analysis, rows.batch.variant, device)


def body(parts: list[Part]) -> Body:
    """What a physics file holds, fitted on these parts."""
    static = static_w(parts)
    problem = Problem(parts, static)
    fitted = problem.solve()
    shared = {k: v for k, v in next(iter(fitted.values())).items() if k not in ENERGIES}
    boards = {find_device(name.removeprefix("static_w.")): watts for name, watts in static.items()}
    tables: dict[str, dict[str, float]] = {}
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
        **ASSUMED, **shared,
        **{name: geometric_mean(values) for name, values in at_default.items()},
        "reference_hz": DEFAULT_HZ, "limit_share": problem.limit_share,
        "static_share": geometric_mean([w / cap_w(board) for board, w in boards.items()]),
    }  # fmt: skip
    default["products_share"] = geometric_mean(
        [products_share(board, {**default, **tables[board.architecture]}) for board in boards]
    )
    found: Body = {"default": default, "architectures": tables}
    default |= {"log_sd": 0.1, "unmeasured_log_sd": 0.3}
    logs = errors(parts, found, measured=True)
    default["log_sd"] = NEW_SIZES * spread(parts, logs)
    for family in sorted({part.rows.batch.family for part in parts}):
        own = [i for i, part in enumerate(parts) if part.rows.batch.family == family]
        wide = spread([parts[i] for i in own], [logs[i] for i in own])
        default[f"log_sd.{family}"] = max(NEW_SIZES * wide, 0.5 * default["log_sd"])
    return found


def cap_w(device: Device) -> float:
    """The power limit of a measured board."""
    assert device.power_cap_w is not None
    return device.power_cap_w


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def products_share(device: Device, c: Mapping[str, float]) -> float:
    """What large products would take of the board's limit."""
    own = board_w(device, c)
    memory = NOMINAL["dram"] * device.dram.bandwidth_bytes_per_s * dram_byte_j(device, c)
    return (own.static_w + own.core_w + own.products_w + memory) / own.cap_w


def errors(parts: list[Part], found: Body, *, measured: bool) -> list[F]:
    """Log of predicted over measured power, given the measured time, of all rows."""
    logs = []
    for part in parts:
        device, batch = find_device(part.rows.device), part.rows.batch
        own = found["architectures"].get(part.architecture, {}) if measured else {}
        c = {**found["default"], **own}
        e = energies_from(device, batch.family, batch.variant, c, measured=measured)
        free = free_power(e, work_of(part.rows), part.rows.seconds, device)
        logs.append(np.log(np.minimum(free, e.limit_w) / part.rows.watts))
    return logs


def spread(parts: list[Part], logs: list[F]) -> float:
    """Log sd whose 90 % interval holds nine in ten rows that are not at their limit."""
    whole = [x[p.rows.watts < 0.95 * p.rows.cap_w] for p, x in zip(parts, logs, strict=True)]
    rows = np.concatenate(whole)
    return float(np.quantile(np.abs(rows), 0.9)) / Z90 if len(rows) else 0.0


def show(parts: list[Part], logs: list[F], title: str) -> dict[str, float]:
    """Prints errors by board, table and library; the figures of all."""
    groups: dict[str, list[F]] = {}
    for part, each in zip(parts, logs, strict=True):
        name = f"{part.rows.device} {part.rows.table} {part.rows.batch.variant.library}"
        groups.setdefault(name, []).append(each)
    for name, several in [(title, logs), *sorted(groups.items())]:
        ape = 100.0 * np.abs(np.expm1(np.concatenate(several)))
        bias = 100.0 * np.median(np.concatenate(several))
        print(f"{name:55} n {len(ape)} mean {np.mean(ape):.1f} median {np.median(ape):.1f} "
              f"bias {bias:.1f}")  # fmt: skip
    whole = np.concatenate(logs)
    ape = 100.0 * np.abs(np.expm1(whole))
    return {
        "rows": float(len(whole)), "mean": float(np.mean(ape)), "median": float(np.median(ape)),
        "bias_log_pct": 100.0 * float(np.median(whole)),
    }  # fmt: skip


def main() -> None:
    """Fits all boards, prints errors of rows that were not fitted, writes the file."""
    parts, held = load(held_out=False), load(held_out=True)
    found = body(parts)
    scores = {"held-out rows": show(held, errors(held, found, measured=True), "held out")}
    unmeasured: list[float] = []
    transfer: dict[str, Body] = {}
    for architecture in sorted(found["architectures"]):
        other = body([part for part in parts if part.architecture != architecture])
        transfer[architecture] = other
        mine = [part for part in held if part.architecture == architecture]
        logs = errors(mine, other, measured=False)
        scores[f"without {architecture}"] = show(mine, logs, f"without {architecture}")
        unmeasured.append(spread(mine, logs))
    found["default"]["unmeasured_log_sd"] = max(unmeasured)
    for other in transfer.values():
        other["default"]["unmeasured_log_sd"] = max(unmeasured)
    if "--transfer" in sys.argv:
        HELD_OUT.parent.mkdir(exist_ok=True)
        bodies = {name: {**each, "fallback": {}} for name, each in transfer.items()}
        HELD_OUT.write_text(json.dumps(rounded(bodies), indent=1) + "\n")
    elif "--dry" not in sys.argv:
        OUT.write_text(
            json.dumps({"format": 1, "card": card(scores), **rounded(found)}, indent=1) + "\n"
        )


def rounded(tree: Any) -> Any:
    """Four digits of every number."""
    if isinstance(tree, float):
        return float(f"{tree:.4g}")
    return {k: rounded(v) for k, v in sorted(tree.items())} if isinstance(tree, dict) else tree


def card(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Where the constants come from."""
    return {
        "data": [f"aiconfigurator/{table}.parquet: power_w" for table in TABLES],
        "split": "that of the families' times; only calls that take long enough for the meter",
        "command": "python benchmarks/fit_energy.py",
        "date": "2026-11-21",
        "scores": {"power given the measured time, APE %": scores},
        "notes": "H200, B200 and GB200 are the boards with power; relative energies of formats "
        "other than fp8 and nvfp4 and of memory off the package are assumed; default is the "
        "geometric mean of hopper and blackwell; unmeasured_log_sd is of an architecture left out",
    }


if __name__ == "__main__":
    main()
