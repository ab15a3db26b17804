"""Constants of tiled products under a configuration: ``catalog/tuning/tile_times.json``.

    python -m lab.fit_tile_times

One set for all architectures. Fitted on times of near-best configurations, of SGLang's rule (from
its published gain), and on configurations that were slower than the best by an unknown amount:
they count only where predicted to be faster. Devices that were not swept have times of a campaign's
default, whose configuration is not known: the best of a few usual tiles is hardly slower, and a
little faster as a rule. Also fitted without each swept device in turn, for the scorecard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from lab import fitting
from lab.scorecard import tuning_held_out
from lab.scorecard.suite import data_folder
from lab.scorecard.tuning_rows import (
    DEFAULTS,
    HEURISTIC,
    SWEEPS,
    Swept,
    default_times,
    sglang_rule,
    swept_problems,
)
from silicast.core.catalog import CATALOG
from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.kernels.configuration import Configuration, read_configuration
from silicast.kernels.experts.routing import busiest_loads
from silicast.kernels.products.blocks import TileColumns, is_legal, tiles_of
from silicast.kernels.products.candidate_tables import grids
from silicast.kernels.products.candidates import SWEEP, grid, legal
from silicast.kernels.products.tile_times import Product, steps_of, tile_times

F = NDArray[np.float64]
RANGES: Mapping[str, tuple[float, float, float]] = {
    "tensor_efficiency": (0.95, 0.6, 1.0), "narrow_on_wide": (0.62, 0.3, 1.0),
    "l2_efficiency": (0.8, 0.4, 1.1), "latency_s": (6e-7, 1e-7, 2e-6),
    "issue_clocks": (80.0, 10.0, 500.0), "start_s": (6e-7, 5e-8, 3e-6),
    "store_bytes_per_clock": (32.0, 4.0, 128.0), "dram_efficiency": (0.9, 0.75, 0.98),
    "flight_s": (7e-7, 2e-7, 2e-6), "launch_s": (2e-6, 5e-7, 6e-6),
    "overlap_loss": (0.1, 0.0001, 0.6), "operand_exposed": (0.4, 0.001, 1.0),
    "wait_exposed": (0.25, 0.001, 1.0), "spill_cost": (2.0, 0.2, 8.0),
    "resident_share": (0.6, 0.2, 3.0), "reread_share": (0.3, 0.01, 1.0), "ramp": (0.5, 0.01, 3.0),
    "kept_share": (0.7, 0.05, 1.5),
}  # fmt: skip
"""Constant -> where it starts, and the range it may take."""
FIXED = {"widened_per_clock": 64.0, "l2_bytes_per_clock": 32.0}
"""Not seen by any row: judged. Weights that a core converts a clock; bytes of L2 a core and clock
where a device file has no bandwidth."""
MISSING = 4000
"""Slower configurations drawn for each device."""
MARGIN = 1.03
PULL = 3e-4
NOT_SWEPT = ("H800", "L20", "RTX 6000 Ada")
"""Devices of the default's campaign that no sweep was made on."""
DRAWN = 90
"""Problems of each."""
BELOW_DEFAULT = 0.12
"""How much a best time below the default's counts, of one above it: defaults lose something."""
LIMITS = 0.5
"""How much a device with defaults counts, of one with sweeps."""


@dataclass(frozen=True)
class Rows:
    """Configured kernels of one device; ``exact`` = the time is known, else it is a lower limit."""

    device: str
    product: Product
    tiles: TileColumns
    seconds: F
    exact: NDArray[np.bool_]


def rows_of(problems: Sequence[Swept]) -> Rows:
    """Rows of the problems of one device."""
    device = problems[0].device
    positions = legal(SWEEP, find_device(device), recipe_for("bf16"))
    random = np.random.default_rng(0)
    chosen = []
    for problem in problems:
        near = grid(SWEEP)[int(problem.near[len(problem.near) // 2])]
        chosen.append((problem, near, problem.best_s, True))
        if problem.heuristic_s is not None:
            chosen.append((problem, sglang_rule(*problem.sizes[:2]), problem.heuristic_s, True))
    for _ in range(MISSING):
        problem = problems[int(random.integers(len(problems)))]
        index = int(positions[random.integers(len(positions))])
        if index not in problem.near:
            chosen.append((problem, grid(SWEEP)[index], problem.best_s * MARGIN, False))
    sizes = np.array([problem.sizes for problem, *_ in chosen]).T
    tokens, experts, topk = sizes[:3]
    loads = busiest_loads("balanced", tokens, experts, topk, np.ones_like(tokens))
    product = Product(loads, 2.0 * sizes[4], sizes[3].astype(np.float64))
    return Rows(
        device,
        product,
        tiles_of([c for _, c, *_ in chosen]),
        np.array([seconds for *_, seconds, _ in chosen]),
        np.array([exact for *_, exact in chosen]),
    )


def errors(rows: Rows, c: Mapping[str, float]) -> F:
    """Logs of predicted over measured; of lower limits, only what is below them."""
    step = steps_of(rows.tiles, find_device(rows.device), recipe_for("bf16"), c)
    log = np.log(tile_times(rows.product, step, c).time_s / rows.seconds)
    return np.where(rows.exact, log, np.minimum(log, 0.0))


@dataclass(frozen=True)
class Defaults:
    """Problems of one device with the time of a default; usual tiles of each problem in a row.

    ``tiles``: of all problems, one problem after the other; ``seconds``: of shape (problems,).
    """

    device: str
    product: Product
    tiles: TileColumns
    seconds: F


def usual_tiles(device: str) -> list[Configuration]:
    """One configuration of each tile of the sweeps' grid."""
    configurations = [
        read_configuration(
            {"tile_m": m, "tile_n": n, "tile_k": k, "warps": 8 if m * n >= 128 * 128 else 4}
        )
        for m, n, k, _ in grids()[SWEEP].tiles
    ]
    legal_ones = is_legal(tiles_of(configurations), find_device(device), recipe_for("bf16"))
    return [
        configuration
        for configuration, fits in zip(configurations, legal_ones.tolist(), strict=True)
        if fits
    ]


def defaults_of(device: str) -> Defaults:
    """Some of a device's defaults."""
    default_rows = default_times(data_folder(), device)
    usual, random = usual_tiles(device), np.random.default_rng(0)
    drawn = [
        default_rows[position]
        for position in random.choice(len(default_rows), DRAWN, replace=False).tolist()
    ]
    sizes = np.array([sizes for sizes, _ in drawn for _ in usual]).T
    tokens, experts, topk = sizes[:3]
    loads = busiest_loads("balanced", tokens, experts, topk, np.ones_like(tokens))
    product = Product(loads, 2.0 * sizes[4], sizes[3].astype(np.float64))
    seconds = np.array([time for _, time in drawn])
    return Defaults(
        device,
        product,
        tiles_of([configuration for _ in drawn for configuration in usual]),
        seconds,
    )


def beyond_defaults(rows: Defaults, c: Mapping[str, float]) -> F:
    """Logs of the best usual tile's time over the default's."""
    step = steps_of(rows.tiles, find_device(rows.device), recipe_for("bf16"), c)
    times = tile_times(rows.product, step, c).time_s.reshape(len(rows.seconds), -1)
    beyond_defaults: F = np.log(times.min(axis=1) / rows.seconds)
    return beyond_defaults


def huber(error: F) -> F:
    """Squares of small errors, sizes of others."""
    size = np.abs(error)
    huber: F = np.where(size < 0.1, size * size * 0.5, 0.1 * (size - 0.05))
    return huber


def fit(parts: Sequence[Rows], limits: Sequence[Defaults]) -> dict[str, float]:
    """Constants from the sweeps of some devices and the defaults of others."""
    names = list(RANGES)
    start, low, high = (np.log([RANGES[name][i] for name in names]) for i in range(3))

    def constants(x: F) -> dict[str, float]:
        return {**dict(zip(names, np.exp(x).tolist(), strict=True)), **FIXED}

    def loss(x: F) -> float:
        c, total = constants(x), PULL * float(((x - start) ** 2).mean())
        for rows in parts:
            losses = huber(errors(rows, c))
            swept = losses[rows.exact].mean() + 0.5 * losses[~rows.exact].mean()
            total += float(swept) / len(parts)
        for defaults in limits:
            error = beyond_defaults(defaults, c)
            losses = huber(error) * np.where(error > 0.0, 1.0, BELOW_DEFAULT)
            total += LIMITS * float(losses.mean()) / len(limits)
        return total

    best = start
    for _ in range(2):
        options = {"maxiter": 5, "xtol": 1e-2, "ftol": 1e-4}
        bounds = list(zip(low, high, strict=True))
        best = minimize(loss, best, method="Powell", bounds=bounds, options=options).x
    return fitting.rounded(constants(best))


def main() -> None:
    problems = swept_problems(data_folder())
    devices = sorted({problem.device for problem in problems})
    parts = {name: rows_of([x for x in problems if x.device == name]) for name in devices}
    limits = [defaults_of(name) for name in NOT_SWEPT]
    constants = fit(list(parts.values()), limits)
    scores = {}
    for name in devices:
        without = fit([rows for device, rows in parts.items() if device != name], limits)
        tuning_held_out.write_constants(name, without)
        for label, table in (("fitted", constants), ("held_out", without)):
            log = errors(parts[name], table)[parts[name].exact]
            scores[f"{name}.{label}"] = round(100.0 * float(np.abs(np.expm1(log)).mean()), 2)
    print(scores, constants)
    card = fitting.card(
        "python -m lab.fit_tile_times",
        [SWEEPS, HEURISTIC, DEFAULTS],
        "one set for all devices; held_out = mean APE of known times with a device left out; "
        "defaults of H800, L20 and RTX 6000 Ada count as limits",
        scores,
        "gate and up of experts in 16 bits on A100, A40, H20; other formats and plain "
        "products take the same constants",
    )
    path = CATALOG / "tuning" / "tile_times.json"
    fitting.write(path, {"format": 1, "card": card, "constants": constants})


if __name__ == "__main__":
    main()
