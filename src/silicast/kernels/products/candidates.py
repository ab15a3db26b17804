"""Which tiles a kernel may run with: of products, of AMD's tuning tables, of experts, of tuners.

A candidate of a library is a thread block's tile of the result and how many such blocks one core
holds; one of a tuner is a whole configuration. The lists are data (``catalog/tuning/tiles.toml``,
``grids.toml``); what of them is legal on an architecture, for a library's constants or on a device
is decided here. Models of times and of choices take what they find here.

>>> len(grid("sweep")) == len(grid_tiles("sweep"))
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.dtypes import Recipe
from silicast.core.errors import unknown_name
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.products.candidate_tables import (
    Row,
    TileTable,
    grids,
    matrix_table,
    tile_tables,
)

if TYPE_CHECKING:
    from silicast.kernels.configuration import Configuration
    from silicast.kernels.products.blocks import TileColumns

SWEEP = "sweep"
TENSILE = "tensile"

LARGE_TILE = 128.0
"""Rows of the tiles that libraries keep to where they choose by the rows of the product alone; its
square is the area of large tiles."""

NO_LIMIT = float(1 << 25)
"""A bound on rows, columns or batch that no product reaches."""

BULK = ("wgmma", "umma")
"""Instructions whose kernels fetch operands by asynchronous bulk copies."""


@final
@dataclass(frozen=True)
class CandidateTiles:
    """Candidate tiles as columns of shape (candidates, 1), to meet rows of shape (1, n).

    Attributes:
        family: the matrix instruction they are made for.
        m, n: rows and columns of the tile.
        k_bytes: depth of one main-loop step in bytes of an operand row, one for all or a column.
        resident: blocks that one core holds.
        labels: for people.
        fetched: share of the operands that comes through L2, the rest being multicast within a
            cluster of blocks.
        narrow: which candidates are made for few rows or columns; None where none is.
        most_side, most_batch: the largest product that each takes: its rows or columns, whichever
            are fewer, and products in a batch; None likewise.
        most_rows: the most rows of a product that each takes; None where any.
    """

    family: str
    m: F64
    n: F64
    k_bytes: float | F64
    resident: F64
    labels: tuple[str, ...]
    fetched: F64
    narrow: F64 | None = None
    most_side: F64 | None = None
    most_batch: F64 | None = None
    most_rows: F64 | None = None

    @cached_property
    def near_names(self) -> tuple[str, ...]:
        """Feature of each candidate: the time of the fastest over its own."""
        return tuple(f"near_{label.replace(' ', '_')}" for label in self.labels)


@final
@dataclass(frozen=True)
class ExpertTiles:
    """The tiles that a style of experts chooses from, as columns of shape (candidates, 1, 1).

    Attributes:
        m, n: tokens and columns of the weights in one tile.
        resident: blocks that one core holds.
        which: index of ``m`` in :func:`expert_sizes`.
        labels: for people.
    """

    m: F64
    n: F64
    resident: F64
    which: tuple[int, ...]
    labels: tuple[str, ...]


class _Part(NamedTuple):
    """Tiles for few rows or columns, and the most that each of them takes."""

    table: TileTable
    rows: tuple[Row, ...]
    most_side: tuple[float, ...]


def fetches_in_bulk(architecture: str) -> bool:
    """Whether its matrix kernels fetch operands by asynchronous bulk copies (wgmma, UMMA).

    >>> fetches_in_bulk("rubin"), fetches_in_bulk("ada"), fetches_in_bulk("cdna3")
    (True, False, False)
    """
    return matrix_table(architecture).instruction in BULK


@cache
def product_tiles(
    architecture: str,
    pipe: str,
    smallest_m: float = 0.0,
    smallest_n: float = 0.0,
    *,
    compute: str = "",
    narrow_rows: float = 0.0,
    skinny_rows: float = 0.0,
    small_tile_rows: float = 0.0,
) -> CandidateTiles:
    """The candidates of matrix products of one architecture on the tensor or the FMA pipe.

    Args:
        architecture: of the device.
        pipe: "tensor" or "fma".
        smallest_m, smallest_n: fewest rows and columns of a tile; libraries without transposed or
            narrow kernels have none below.
        compute: the compute format. Tensor cores multiply fp64 with mma.sync on every generation.
        narrow_rows: up to so many rows or columns FMA kernels for few of them exist besides,
            whatever the smallest tile; 0 = none.
        skinny_rows: up to so many, kernels that stream past them are used too.
        small_tile_rows: products of more rows run in tiles of at least 128; 0 = in any.

    >>> product_tiles("hopper", "tensor").labels[-1]
    'wgmma 256x128'
    >>> product_tiles("hopper", "tensor", compute="fp64").labels[-1]
    'mma.sync 256x128'
    """
    on_fma = pipe == "fma"
    table = tile_tables().fma.regular if on_fma else matrix_table(architecture, compute)
    regular_rows = tuple(
        row for row in table.tiles if row[0] >= smallest_m and row[1] >= smallest_n
    )
    if on_fma and narrow_rows > 0.0:
        return _with_parts(table, regular_rows, tuple(_narrow_parts(narrow_rows, skinny_rows)))
    if pipe == "tensor" and skinny_rows > 0.0:
        few = tile_tables().fma.few
        rows = tuple(row for row in few.tiles if row[0] <= skinny_rows)
        part = _Part(few, rows, tuple(float(row[0]) for row in rows))
        return _with_parts(table, regular_rows, (part,))
    candidate_tiles = _columns(table, regular_rows, table.labels(regular_rows))
    if small_tile_rows <= 0.0:
        return candidate_tiles
    return replace(
        candidate_tiles,
        most_rows=np.where(candidate_tiles.m < LARGE_TILE, small_tile_rows, NO_LIMIT),
    )


def _narrow_parts(narrow_rows: float, skinny_rows: float) -> Iterator[_Part]:
    """FMA kernels for single products, then those that stream weights past few rows."""
    fma = tile_tables().fma
    yield _Part(fma.sliced, fma.sliced.tiles, (narrow_rows,) * len(fma.sliced.tiles))
    if skinny_rows > 0.0:
        yield _Part(fma.skinny, fma.skinny.tiles, (skinny_rows,) * len(fma.skinny.tiles))
    yield _Part(fma.vector, fma.vector.tiles, (1.0,) * len(fma.vector.tiles))


def _columns(table: TileTable, rows: tuple[Row, ...], labels: tuple[str, ...]) -> CandidateTiles:
    columns = np.array(rows, dtype=np.float64)
    small, large = table.fetched
    area = columns[:, 0:1] * columns[:, 1:2]
    return CandidateTiles(
        family=table.instruction,
        m=columns[:, 0:1].copy(),
        n=columns[:, 1:2].copy(),
        k_bytes=table.step_bytes,
        resident=columns[:, 2:3].copy(),
        labels=labels,
        fetched=np.where(area >= LARGE_TILE * LARGE_TILE, large, small),
    )


def _with_parts(
    table: TileTable, regular_rows: tuple[Row, ...], parts: tuple[_Part, ...]
) -> CandidateTiles:
    """Tiles for any product, then those for few rows or columns."""
    rows = regular_rows + tuple(row for part in parts for row in part.rows)
    labels = table.labels(regular_rows) + tuple(
        x for part in parts for x in part.table.labels(part.rows)
    )

    def column(regular: float, others: Iterator[tuple[float, ...]]) -> F64:
        return np.array(
            [
                *[regular] * len(regular_rows),
                *(x for values_of_part in others for x in values_of_part),
            ]
        )[:, None]

    def alike(regular: float, values: Iterator[float]) -> F64:
        return column(
            regular, ((x,) * len(part.rows) for x, part in zip(values, parts, strict=True))
        )

    return replace(
        _columns(table, rows, labels),
        k_bytes=alike(table.step_bytes, (part.table.step_bytes for part in parts)),
        narrow=alike(0.0, (1.0 for _ in parts)),
        most_side=column(NO_LIMIT, (part.most_side for part in parts)),
        most_batch=alike(NO_LIMIT, (part.table.most_batch or NO_LIMIT for part in parts)),
    )


@cache
def amd_sides() -> tuple[tuple[int, int], ...]:
    """Rows and columns of the tiles that AMD's tuning tables hold."""
    return tuple((m, n) for m, n, _ in tile_tables().tables[TENSILE].tiles)


@lru_cache(maxsize=4)
def amd_tiles(k_bytes: float) -> CandidateTiles:
    """The candidates of AMD's libraries, with a main-loop step of ``k_bytes``.

    >>> amd_tiles(64.0).labels[-1]
    'tensile 256x256'
    """
    table = tile_tables().tables[TENSILE]
    return replace(_columns(table, table.tiles, table.labels(table.tiles)), k_bytes=k_bytes)


@cache
def expert_sizes() -> tuple[int, ...]:
    """Tokens that tiles of experts have, ascending."""
    return tuple(sorted({row[0] for row in tile_tables().experts.tiles}))


@lru_cache(maxsize=64)
def expert_tiles(smallest: float, largest: float) -> ExpertTiles:
    """The tiles of grouped products of experts with ``smallest`` to ``largest`` tokens.

    >>> expert_tiles(64.0, 64.0).labels
    ('64x64', '64x128')
    """
    table = tile_tables().experts
    rows = tuple(row for row in table.tiles if smallest <= row[0] <= largest)
    m, n, resident = (np.array([[[float(row[i])]] for row in rows]) for i in range(3))
    which = tuple(expert_sizes().index(row[0]) for row in rows)
    return ExpertTiles(m, n, resident, which, table.labels(rows))


@cache
def tuned_sides() -> Mapping[str, tuple[int, ...]]:
    """Sizes that tuned files of experts choose from: tokens, columns of the weights, depth."""
    tuned_sides = tile_tables().tuned_sides
    return {"m": tuned_sides.m, "n": tuned_sides.n, "k": tuned_sides.k}


@cache
def grid(name: str) -> tuple[Configuration, ...]:
    """The configurations of a grid, whatever a device allows.

    Raises:
        SilicastError: an unknown grid.
    """
    from silicast.kernels.configuration import read_configuration  # products start without it

    if name not in grids():
        raise unknown_name(f"unknown grid {name!r}", "grid", f"one of {', '.join(grids())}")
    grid = grids()[name]
    return tuple(
        read_configuration(
            {
                "tile_m": m,
                "tile_n": n,
                "tile_k": k,
                "group_m": group,
                "warps": warps,
                "stages": stages,
            }
        )
        for m, n, k, groups in grid.tiles
        for group in groups
        for warps in grid.warps
        for stages in grid.stages
    )


@cache
def grid_tiles(name: str) -> TileColumns:
    """The same as columns."""
    from silicast.kernels.products.blocks import tiles_of

    return tiles_of(grid(name))


@lru_cache(maxsize=64)
def legal(name: str, device: Device, recipe: Recipe) -> NDArray[np.int64]:
    """Which configurations of a grid a device can run: their places.

    Raises:
        SilicastError: thread blocks of the device's architecture are not modelled.
    """
    from silicast.kernels.products.blocks import is_legal

    return np.flatnonzero(is_legal(grid_tiles(name), device, recipe))
