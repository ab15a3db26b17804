"""Tables of candidates as the catalog holds them: tiles of libraries, grids of tuners.

``catalog/tuning/tiles.toml`` and ``grids.toml`` say what each field means;
:mod:`silicast.kernels.products.candidates` says which of them an op may run with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import final

from silicast.core.compiled import content_of
from silicast.core.decode import Strict

FOLDER = "tuning"

Row = tuple[int, int, int]
"""Rows and columns of a tile, and the blocks of it that one core holds."""


@final
class TileTable(Strict, frozen=True):
    """Tiles of kernels that are written alike.

    Attributes:
        source: where the list is from.
        tiles: rows, columns, resident blocks.
        instruction: what multiplies.
        architectures: whose matrix kernels they are; () = those of every other architecture.
        formats: compute formats that are multiplied so on every architecture.
        step_bytes: depth of one main-loop step, in bytes of an operand row.
        fetched: share of the operands that comes through L2, of small and of large tiles.
        label: with the sides as "{m}" and "{n}"; "" = the instruction and the sides.
        most_batch: the largest batch that the kernels take; 0 = any.
    """

    source: str
    tiles: tuple[Row, ...]
    instruction: str = ""
    architectures: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    step_bytes: float = 0.0
    fetched: tuple[float, float] = (1.0, 1.0)
    label: str = ""
    most_batch: float = 0.0

    def labels(self, rows: tuple[Row, ...]) -> tuple[str, ...]:
        """For people, of some of the tiles."""
        text = self.label or f"{self.instruction} {{m}}x{{n}}".lstrip()
        return tuple(text.format(m=m, n=n) for m, n, _ in rows)


@final
class FmaTables(Strict, frozen=True):
    """Kernels without matrix units: those for any product, and those for few rows or columns.

    Attributes:
        regular: for any product.
        sliced: for single products.
        skinny: that stream weights past a few rows.
        vector: for one row or column.
        few: that stream weights past a few rows where others run on tensor cores.
    """

    regular: TileTable
    sliced: TileTable
    skinny: TileTable
    vector: TileTable
    few: TileTable


@final
class TunedSides(Strict, frozen=True):
    """Sizes that tuned files choose from: tokens, columns of the weights, depth of a step."""

    source: str
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]


@final
class TileTables(Strict, frozen=True):
    """``catalog/tuning/tiles.toml``.

    Attributes:
        matrix: kernels of products on matrix units, by instruction.
        fma: those without matrix units.
        tables: tiles that a library's own tuning tables hold.
        experts: of grouped products of experts.
        tuned_sides: what tuned files of experts choose from.
    """

    matrix: dict[str, TileTable]
    fma: FmaTables
    tables: dict[str, TileTable]
    experts: TileTable
    tuned_sides: TunedSides


@final
class CandidateGrid(Strict, frozen=True):
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
def tile_tables() -> TileTables:
    """The tiles of all libraries."""
    return content_of(FOLDER, "tiles", TileTables)


@cache
def grids() -> Mapping[str, CandidateGrid]:
    """All grids by name."""
    return content_of(FOLDER, "grids", dict[str, CandidateGrid])


def matrix_table(architecture: str, compute: str = "") -> TileTable:
    """Kernels of matrix units that multiply a format on an architecture.

    >>> matrix_table("hopper").instruction, matrix_table("hopper", "fp64").instruction
    ('wgmma', 'mma.sync')
    """
    tables = tile_tables().matrix.values()
    for table in tables:
        if compute in table.formats:
            return table
    matching = (table for table in tables if architecture in table.architectures)
    return next(matching, None) or next(table for table in tables if not table.architectures)
