"""Fits the constants of dispatch and combine and writes catalog/physics/moe_exchange.json.

    python -m lab.fit_moe_exchange

Per architecture, phase, path and library: a base, efficiency of the link and rate of one SM.
Robust (soft L1) on log ratios; deterministic. Held-out layers are only scored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from lab import fitting
from lab.fitter import Body, Fitter
from lab.fitting import Constants, F, Tables
from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suites.moe_exchange import TABLES, exchange_rows
from silicast.kernels.experts.moe_exchange import GRACE, PATHS, analyse_exchange, path_of

START = {"base_s": 2e-5, "efficiency": 0.6, "sm_bytes_per_clock": 12.5, "expert_bytes_per_s": 3e9,
         "own_copies": 0.5, "header_bytes": 300.0, "element_s": 5e-10,
         "expert_s": 1e-8}  # fmt: skip
OF_LIBRARY = ("base_s", "element_s", "sm_bytes_per_clock", "expert_bytes_per_s", "own_copies")
"""What libraries that run one kernel differ in: host and launches, and the SMs or warps that each
gives it.
"""
NETWORK = {"network_bytes_per_s": 4.0e10, "network_base_s": 1.5e-5, "forward_copies": 0.5}
"""Of groups that span nodes; a start for those that were never measured so."""
GRACE_BASE = {"grace_base_s": 5e-6}
"""Of devices whose host is Grace."""
SHARED = {
    "launch_s": 2e-6,
    "device_log_sd": 0.08,
    "family_log_sd": 0.08,
    "unmeasured_device_log_sd": 0.25,
    "independent_log_sd": 0.25,
}
UNSEEN = 1.15
"""Layers that were not fitted err so much more than those that were."""

ARCHITECTURES = ("blackwell", "hopper")


def log_ratio(part: MeasuredRows, table: Mapping[str, float]) -> F:
    result = analyse_exchange(part.batch, part.hardware, part.batch.family, table)
    return np.log(result.time_s / part.seconds)


def base_table() -> Constants:
    return SHARED | {
        f"{phase}.{path}.{name}": value
        for phase in ("dispatch", "combine")
        for path in PATHS
        for name, value in (START | NETWORK | GRACE_BASE).items()
    }


def fit(parts: Sequence[MeasuredRows]) -> Constants:
    """Constants of one phase and path of one architecture."""
    phase, path = parts[0].batch.family, path_of(parts[0].batch.variant.kernel)
    libraries = sorted({part.batch.variant.library for part in parts})
    names = [f"{phase}.{path}.{name}" for name in START if name not in OF_LIBRARY]
    names += [f"{phase}.{path}.{name}:{library}" for library in libraries for name in OF_LIBRARY]
    crosses = any((part.batch.dims["nodes"] > 1).any() for part in parts)
    names += [f"{phase}.{path}.{name}" for name in NETWORK] if crosses else []
    grace = [part for part in parts if part.hardware.default_host == GRACE]
    on_grace = sorted({part.batch.variant.library for part in grace})
    names += [f"{phase}.{path}.{name}:{library}" for library in on_grace for name in GRACE_BASE]
    start = START | NETWORK | GRACE_BASE
    first = np.log([start[name.split(".")[-1].split(":")[0]] for name in names])

    def table(logs: F) -> Constants:
        return base_table() | dict(zip(names, np.exp(logs).tolist(), strict=True))

    def residuals(logs: F) -> F:
        errors = [log_ratio(part, table(logs)) / np.sqrt(len(part)) for part in parts]
        return np.concatenate([*errors, 0.05 * (logs - first)])

    solution = least_squares(residuals, first, loss="soft_l1", f_scale=0.03, diff_step=1e-3)
    constants = {name: table(solution.x)[name] for name in names}
    for name in (*OF_LIBRARY, *GRACE_BASE):  # of a library that was not measured
        if values := [value for key, value in constants.items() if f".{name}:" in key]:
            constants[f"{phase}.{path}.{name}"] = fitting.geometric_mean(values)
    return constants


class MoeExchange(Fitter[list[MeasuredRows]]):
    """Dispatch and combine."""

    group = "moe_exchange"
    data = TABLES
    split = (
        "one in four (hidden, topk, experts) is never fitted, between nodes and over NVLink alone "
        "one in two pairs of tokens and nodes; scores are on those"
    )
    notes = "between nodes: one adapter of 400 Gb/s a device (H100 and H200)"

    def rows(self, data: Path) -> list[MeasuredRows]:
        return exchange_rows(data)

    def fit(self, rows: list[MeasuredRows]) -> Body:
        return body({architecture: fit_one(rows, architecture) for architecture in ARCHITECTURES})

    def scores(self, rows: list[MeasuredRows], body: Body) -> dict[str, Any]:
        return score(rows, body["architectures"])

    def without(self, rows: list[MeasuredRows], architecture: str, body: Body) -> Body:
        return body_without(body, architecture)


def fit_one(parts: Sequence[MeasuredRows], architecture: str) -> Constants:
    """Constants of one architecture, from its own rows alone."""
    mine = held_out((p for p in parts if p.hardware.architecture == architecture), False)
    table: Constants = {}
    for phase in ("dispatch", "combine"):
        for path in PATHS:
            chosen = [
                p
                for p in mine
                if p.batch.family == phase and path_of(p.batch.variant.kernel) == path
            ]
            table |= fit(chosen) if chosen else {}
    errors = np.concatenate([log_ratio(p, base_table() | table) for p in mine])
    shared = (SHARED["device_log_sd"], SHARED["family_log_sd"])
    table["independent_log_sd"] = fitting.own_log_sd(errors, shared, wider=UNSEEN)
    return table


def body_without(result: Body, architecture: str) -> Body:
    """What an architecture would get without its rows."""
    return body({a: table for a, table in result["architectures"].items() if a != architecture})


def body(tables: Tables) -> dict[str, Any]:
    """Default (what an architecture without rows gets) and architectures as the file has them.

    The default is the mean of those measured. What a token costs a library beside its copies is
    drawn half way to the mean of all that run the kernel: on one architecture alone it is as much
    of that as of the library. A path that was not measured is as the low-latency one.
    """
    default = base_table() | fitting.means(tables.values())
    for phase, path in itertools.product(("dispatch", "combine"), PATHS):
        prefix = f"{phase}.{path}."
        if not any(key.startswith(prefix) for table in tables.values() for key in table):
            default |= _as_low_latency(default, phase, path)
        own = f"{prefix}own_copies"
        for key in [key for key in default if key.startswith(f"{own}:")]:
            default[key] = math.sqrt(default[key] * default[own])
    return fitting.body(default, tables)


def _as_low_latency(default: Constants, phase: str, path: str) -> Constants:
    """Kernels that write to their peers' memory, as the low-latency ones of the library do whose
    benchmark holds least of the host.
    """
    prefix = f"{phase}.low_latency."
    bases = {key: value for key, value in default.items() if key.startswith(prefix + "base_s:")}
    best = min(bases, key=bases.__getitem__).partition(":")[2]
    own = {name: default.get(f"{prefix}{name}:{best}", default[prefix + name]) for name in START}
    return {f"{phase}.{path}.{name}": value for name, value in own.items()}


def score(parts: Sequence[MeasuredRows], tables: Tables) -> dict[str, Any]:
    """Figures of held-out rows by device, phase, library and kernel."""
    table: dict[str, Any] = {}
    groups: dict[str, list[F]] = {}
    for part in held_out(parts):
        variant = part.batch.variant
        logs = log_ratio(part, base_table() | tables[part.hardware.architecture])
        key = f"{part.device} {part.batch.family} {variant.library} {variant.kernel}"
        groups.setdefault(key, []).append(logs)
    for key, figures in sorted(groups.items()):
        table[key] = fitting.percent(np.concatenate(figures), "rows", "mape", "bias")
        print(f"{key:56s}", table[key])
    return {"held-out layers": table}


if __name__ == "__main__":
    MoeExchange().run()
