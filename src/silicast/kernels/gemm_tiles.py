"""The tiles that matrix libraries pick from, per generation of matrix instructions.

A candidate is a thread block's tile of the result and how many such blocks one core holds. Small
tiles along m stand for the transposed ("swap AB") kernels that put few tokens on the instruction's
short axis. The lists are short on purpose: neighbours in them differ by a factor of two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import final

import numpy as np

from silicast.core.numerics import F64
from silicast.workload.op import Op

# (rows of m, columns of n, blocks resident per core)
_MMA_SYNC = (
    (16, 64, 4), (16, 128, 3), (32, 64, 4), (64, 32, 4), (64, 64, 4), (32, 128, 3),
    (64, 128, 2), (128, 64, 2), (128, 128, 2), (64, 256, 1), (128, 256, 1), (256, 128, 1),
)  # fmt: skip
_WGMMA = (
    (16, 64, 4), (16, 128, 3), (32, 64, 4), (64, 32, 4), (64, 64, 3), (32, 128, 3),
    (64, 128, 2), (128, 64, 2), (128, 128, 1), (64, 256, 1), (128, 256, 1), (256, 128, 1),
)  # fmt: skip
_UMMA = (
    (16, 128, 3), (32, 128, 3), (64, 64, 3), (64, 128, 2), (128, 32, 3), (128, 64, 2),
    (128, 128, 1), (128, 192, 1), (192, 128, 1), (128, 256, 1), (256, 128, 1), (256, 256, 1),
)  # fmt: skip
_MFMA = (
    (16, 16, 8), (16, 64, 4), (64, 16, 4), (16, 128, 4), (32, 32, 4), (32, 64, 4), (64, 32, 4),
    (32, 128, 3), (128, 32, 3), (64, 64, 3), (64, 128, 2), (128, 64, 2), (128, 128, 1),
    (128, 256, 1), (256, 128, 1), (256, 256, 1),
)  # fmt: skip
_SIMT = (
    (16, 64, 4), (32, 32, 8), (32, 64, 4), (64, 32, 4), (64, 64, 4), (32, 128, 3),
    (128, 32, 3), (64, 128, 2), (128, 64, 2), (128, 128, 2), (64, 256, 1), (256, 128, 1),
)  # fmt: skip

_NARROW = ((32, 32, 8), (64, 32, 4), (32, 64, 4), (128, 32, 3), (32, 128, 3))
"""FMA kernels whose warps share a tile's k ("sliced1x4"): what cuBLAS runs for single products of
few rows or columns (kernel names of NeuSight's training rows, from 3 rows on)."""

_VECTOR = ((1, 32, 8), (32, 1, 8))
"""Matrix times vector: a block streams its weights once, its threads share k."""

_SKINNY = ((2, 64, 4), (4, 64, 4), (8, 64, 4), (64, 2, 4), (64, 4, 4), (64, 8, 4))
"""Up to eight rows in registers, weights streamed past them (cuBLAS: gemmSN)."""

_FEW = ((4, 16, 8), (8, 16, 8))
"""The same beside tensor cores, for formats whose libraries have such kernels (TensorRT's plugins
for up to 4 rows of 8-bit integers, 8 of weights alone)."""

VECTOR_K_BYTES = 256.0
"""Depth of one step of a streaming kernel: 16 bytes for each of 16 threads along k."""

FETCHED = {
    "mma.sync": (1.0, 1.0),
    "simt": (1.0, 1.0),
    "wgmma": (0.5, 0.25),
    "umma": (0.5, 0.25),
    "mfma": (1.0, 1.0),
}
"""Share of a tile's operands that comes through L2, of tiles below and from 128 x 128 on: blocks in
clusters of two and of four multicast the rest to each other."""

LARGE_TILE = 128.0
"""Rows of the tiles that libraries keep to where they choose by the rows of the product alone."""

NO_LIMIT = float(1 << 25)
"""A bound on rows, columns or batch that no product reaches."""

_FAMILY: dict[str, tuple[str, tuple[tuple[int, int, int], ...]]] = {
    "hopper": ("wgmma", _WGMMA), "blackwell": ("umma", _UMMA), "rubin": ("umma", _UMMA),
    **dict.fromkeys(("cdna", "cdna2", "cdna3", "cdna4", "cdna5"), ("mfma", _MFMA)),
}  # fmt: skip


def fetches_in_bulk(architecture: str) -> bool:
    """Whether its matrix kernels fetch operands by asynchronous bulk copies (wgmma, UMMA).

    >>> fetches_in_bulk("rubin"), fetches_in_bulk("ada"), fetches_in_bulk("cdna3")
    (True, False, False)
    """
    return architecture in _FAMILY and _FAMILY[architecture][0] in ("wgmma", "umma")


@final
@dataclass(frozen=True)
class Tiles:
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


@cache
def tiles_for(
    architecture: str,
    pipe: str,
    smallest_m: float = 0.0,
    smallest_n: float = 0.0,
    *,
    compute: str = "",
    narrow_rows: float = 0.0,
    skinny_rows: float = 0.0,
    small_tile_rows: float = 0.0,
) -> Tiles:
    """The candidates of one architecture on the tensor or the FMA pipe.

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

    >>> tiles_for("hopper", "tensor").labels[-1]
    'wgmma 256x128'
    >>> tiles_for("hopper", "tensor", compute="fp64").labels[-1]
    'mma.sync 256x128'
    """
    if pipe == "fma":
        family, table, k_bytes = "simt", tuple(_SIMT), 32.0
    elif compute == "fp64":
        family, table, k_bytes = "mma.sync", _MMA_SYNC, 64.0
    else:
        family, table = _FAMILY.get(architecture, ("mma.sync", _MMA_SYNC))
        k_bytes = 64.0 if family in ("mma.sync", "mfma") else 128.0
    kept = tuple(row for row in table if row[0] >= smallest_m and row[1] >= smallest_n)
    if pipe == "fma" and narrow_rows > 0.0:
        return _with_narrow(kept, k_bytes, narrow_rows, skinny_rows)
    if pipe == "tensor" and skinny_rows > 0.0:
        return _with_few(family, kept, k_bytes, skinny_rows)
    found = _tiles(family, kept, k_bytes, tuple(f"{family} {m}x{n}" for m, n, _ in kept))
    if small_tile_rows <= 0.0:
        return found
    return replace(found, most_rows=np.where(found.m < LARGE_TILE, small_tile_rows, NO_LIMIT))


def _tiles(
    family: str, rows: tuple[tuple[int, int, int], ...], k_bytes: float, labels: tuple[str, ...]
) -> Tiles:
    columns = np.array(rows, dtype=np.float64)
    small, large = FETCHED[family]
    return Tiles(
        family=family, m=columns[:, 0:1].copy(), n=columns[:, 1:2].copy(), k_bytes=k_bytes,
        resident=columns[:, 2:3].copy(), labels=labels,
        fetched=np.where(columns[:, 0:1] * columns[:, 1:2] >= 16384.0, large, small),
    )  # fmt: skip


def _with_few(
    family: str, kept: tuple[tuple[int, int, int], ...], k_bytes: float, skinny_rows: float
) -> Tiles:
    """Tensor core tiles, then a kernel that streams weights past few rows."""
    few = tuple(row for row in _FEW if row[0] <= skinny_rows)
    labels = (
        *(f"{family} {m}x{n}" for m, n, _ in kept),
        *(f"simt {m}x{n} streaming" for m, n, _ in few),
    )

    def column(regular: float, *streaming: float) -> F64:
        return np.array([*[regular] * len(kept), *streaming])[:, None]

    return replace(
        _tiles(family, (*kept, *few), k_bytes, labels),
        k_bytes=column(k_bytes, *[VECTOR_K_BYTES] * len(few)),
        narrow=column(0.0, *[1.0] * len(few)),
        most_side=column(NO_LIMIT, *[float(row[0]) for row in few]),
        most_batch=column(NO_LIMIT, *[NO_LIMIT] * len(few)),
    )


def _with_narrow(
    kept: tuple[tuple[int, int, int], ...], k_bytes: float, narrow_rows: float, skinny_rows: float
) -> Tiles:
    """FMA tiles, then those for single products, then those that stream weights past few rows."""
    skinny = _SKINNY if skinny_rows > 0.0 else ()
    labels = (
        *(f"simt {m}x{n}" for m, n, _ in kept), *(f"simt {m}x{n} sliced" for m, n, _ in _NARROW),
        *(f"simt {m}x{n} streaming" for m, n, _ in skinny), *("simt gemv" for _ in _VECTOR),
    )  # fmt: skip

    def column(regular: float, sliced: float, few: float, vector: float) -> F64:
        counts = (len(kept), len(_NARROW), len(skinny), len(_VECTOR))
        return np.repeat(np.array([regular, sliced, few, vector]), counts)[:, None]

    return replace(
        _tiles("simt", (*kept, *_NARROW, *skinny, *_VECTOR), k_bytes, labels),
        k_bytes=column(k_bytes, k_bytes, VECTOR_K_BYTES, VECTOR_K_BYTES),
        narrow=column(0.0, 1.0, 1.0, 1.0),
        most_side=column(NO_LIMIT, narrow_rows, skinny_rows, 1.0),
        most_batch=column(NO_LIMIT, 1.0, NO_LIMIT, NO_LIMIT),
    )


def gemm_sizes(op: Op) -> tuple[int, int, int, int]:
    """Rows, columns, depth and batch of a matrix product."""
    sizes = dict(op.dims)
    m, n, k, batch = (sizes.get(name, 1) for name in ("m", "n", "k", "batch"))
    if not all(isinstance(size, int) for size in (m, n, k, batch)):
        raise ValueError("a matrix product has plain sizes")
    return int(m), int(n), int(k), int(batch)  # type: ignore[arg-type]
