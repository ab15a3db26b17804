"""Sweeps of fused experts and tables of tuned configurations, as problems with their answers.

The sweeps (PipeWeave) kept only what came near the best of a problem: a legal configuration of the
grid that is missing from a near-best list was slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lab.scorecard.tables import read_arrow
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.configuration import Configuration, read_configuration
from silicast.kernels.experts.routing import busiest_loads
from silicast.kernels.products.candidates import SWEEP, grid
from silicast.kernels.products.tile_times import Product

SWEEPS = "pipeweave/kernel_moe_autotune.parquet"
DEFAULTS = "pipeweave/kernel_moe_w13.parquet"
HEURISTIC = "pipeweave/kernel_moe_gain_vs_sglang_heuristic.parquet"
WITHIN = "within_1pct_of_best"
SIZES = ("M", "E", "topk", "H", "N")
VALUES = {
    "BLOCK_SIZE_M": "tile_m",
    "BLOCK_SIZE_N": "tile_n",
    "BLOCK_SIZE_K": "tile_k",
    "GROUP_SIZE_M": "group_m",
    "num_warps": "warps",
    "num_stages": "stages",
}
"""Columns of the tables -> values of a configuration."""
FOLDS = 8
"""Layers are held out in so many groups; all token counts of a layer are in one."""

Key = tuple[str, int, int, int, int, int]
"""Device, tokens, experts, topk, hidden, intermediate."""


@final
@dataclass(frozen=True)
class Swept:
    """One problem of a sweep: gate and up of a layer of experts in 16 bits.

    Attributes:
        device: its name; sizes: tokens, experts, topk, hidden, intermediate.
        near: places in the grid of configurations within 1 % of the best.
        best_s: seconds of the best.
        default_s: of what the campaign's default ran with; None = not measured.
        heuristic_s: of SGLang's rule, from its published gain; None likewise.
        fold: which group of layers it is held out with.
    """

    device: str
    sizes: tuple[int, int, int, int, int]
    near: NDArray[np.int64]
    best_s: float
    default_s: float | None
    heuristic_s: float | None
    fold: int

    @property
    def hardware(self) -> Device:
        """The device of the catalog."""
        return find_device(self.device)

    @property
    def layer(self) -> tuple[int, ...]:
        """All sizes but the tokens."""
        return self.sizes[1:]

    @property
    def product(self) -> Product:
        """What the kernel computes."""
        return gate_up(*self.sizes)


def gate_up(tokens: int, experts: int, topk: int, hidden: int, inner: int) -> Product:
    """Gate and up of a layer of experts, tokens spread evenly.

    >>> float(gate_up(16, 8, 2, 1024, 512).columns)
    1024.0
    """
    counts = (np.array([size]) for size in (tokens, experts, topk, 1))
    return Product(busiest_loads("balanced", *counts), 2.0 * inner, float(hidden))


def sglang_rule(tokens: int, experts: int) -> Configuration:
    """What SGLang takes in 16 bits where it has no tuned file (its ``get_default_config``)."""
    if tokens <= experts:
        return read_configuration({"tile_m": 16, "tile_n": 32, "tile_k": 64, "group_m": 1})
    return read_configuration({"tile_m": 64, "tile_n": 64, "tile_k": 32, "group_m": 8})


def swept_problems(data: Path) -> list[Swept]:
    """All problems of the sweeps, sorted by device and sizes."""
    near: dict[Key, set[int]] = {}
    best: dict[Key, float] = {}
    positions = {configuration: index for index, configuration in enumerate(grid(SWEEP))}
    for row in _rows(data / SWEEPS, ("gpu", "subset", *SIZES, *VALUES, "latency_us")):
        key = _key(row)
        best[key] = min(best.get(key, np.inf), row["latency_us"] * 1e-6)
        if row["subset"] == WITHIN:
            near.setdefault(key, set()).add(positions[configuration_of(row)])
    defaults = {_key(row): row["latency_us"] * 1e-6 for row in _rows(data / DEFAULTS, _TIMED)}
    gains = {_key(row): row[_GAIN] for row in _rows(data / HEURISTIC, ("gpu", *SIZES, _GAIN))}
    folds = _folds(key[2:] for key in near)
    return [
        Swept(
            device=key[0],
            sizes=key[1:],
            near=np.array(sorted(near[key])),
            best_s=best[key],
            default_s=defaults.get(key),
            heuristic_s=best[key] / (1.0 - gains[key] / 100.0) if key in gains else None,
            fold=folds[key[2:]],
        )
        for key in sorted(near)
    ]


def default_times(data: Path, device: str) -> list[tuple[tuple[int, ...], float]]:
    """Sizes and seconds of the default of every problem of its campaign on a device."""
    rows = _rows(data / DEFAULTS, _TIMED)
    return sorted((_key(row)[1:], row["latency_us"] * 1e-6) for row in rows if row["gpu"] == device)


_TIMED = ("gpu", *SIZES, "latency_us")
_GAIN = "best_vs_sglang_heuristic_pct"


def _folds(layers: Iterable[tuple[int, ...]]) -> Mapping[tuple[int, ...], int]:
    return {layer: index % FOLDS for index, layer in enumerate(sorted(set(layers)))}


def _key(row: Mapping[str, Any]) -> Key:
    tokens, experts, topk, hidden, inner = (int(row[name]) for name in SIZES)
    return row["gpu"], tokens, experts, topk, hidden, inner


def configuration_of(row: Mapping[str, Any]) -> Configuration:
    """The configuration that a row of a table names."""
    return _configuration(tuple(int(row[name]) for name in VALUES))


@cache
def _configuration(values: tuple[int, ...]) -> Configuration:
    return read_configuration(dict(zip(VALUES.values(), values, strict=True)))


def _rows(path: Path, columns: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    table = read_arrow(path, list(columns))
    lists = {name: table[name].to_pylist() for name in table.column_names}
    for values in zip(*lists.values(), strict=True):
        yield dict(zip(lists, values, strict=True))
