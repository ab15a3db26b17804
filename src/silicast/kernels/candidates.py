"""Configurations that tuners of Triton kernels try: ``catalog/tuning/grids.toml``.

>>> len(grid("sweep")) == len(grid_tiles("sweep"))
True
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import final

import numpy as np
from msgspec import Struct, convert
from numpy.typing import NDArray

from silicast.core.catalog import CATALOG
from silicast.core.compiled import read_toml
from silicast.core.dtypes import Recipe
from silicast.core.errors import unknown_name
from silicast.hardware.device import Device
from silicast.kernels.blocks import Tiles, is_legal, tiles_of
from silicast.kernels.configuration import Configuration, read_configuration

SWEEP = "sweep"
TUNER = "tuner"


@final
class Grid(Struct, frozen=True, forbid_unknown_fields=True):
    """One grid.

    Attributes:
        source: who tries it.
        warps, stages: tried with each tile.
        tiles: rows, columns, depth and group sizes.
    """

    source: str
    warps: list[int]
    stages: list[int]
    tiles: list[tuple[int, int, int, list[int]]]


@cache
def grids() -> Mapping[str, Grid]:
    """All grids by name."""
    return convert(read_toml(CATALOG / "tuning" / "grids.toml"), dict[str, Grid])


@cache
def grid(name: str) -> tuple[Configuration, ...]:
    """The configurations of a grid, whatever a device allows.

    Raises:
        SilicastError: an unknown grid.
    """
    if name not in grids():
        raise unknown_name(f"unknown grid {name!r}", "grid", f"one of {', '.join(grids())}")
    own = grids()[name]
    return tuple(
        read_configuration(
            {
                "tile_m": m, "tile_n": n, "tile_k": k, "group_m": group, "warps": warps,
                "stages": stages,
            }
        )
        for m, n, k, groups in own.tiles
        for group in groups
        for warps in own.warps
        for stages in own.stages
    )  # fmt: skip


@cache
def grid_tiles(name: str) -> Tiles:
    """The same as columns."""
    return tiles_of(grid(name))


@lru_cache(maxsize=64)
def legal(name: str, device: Device, recipe: Recipe) -> NDArray[np.int64]:
    """Which configurations of a grid a device can run: their places.

    Raises:
        SilicastError: thread blocks of the device's architecture are not modelled.
    """
    return np.flatnonzero(is_legal(grid_tiles(name), device, recipe))
