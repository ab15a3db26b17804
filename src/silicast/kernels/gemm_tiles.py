"""The tiles that matrix libraries pick from, per generation of matrix instructions.

A candidate is a thread block's tile of the result and how many such blocks one core holds. Small
tiles along m stand for the transposed ("swap AB") kernels that put few tokens on the instruction's
short axis. The lists are short on purpose: neighbours in them differ by a factor of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from silicast.core.numerics import F64

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
_SIMT = (
    (16, 64, 4), (32, 32, 8), (32, 64, 4), (64, 32, 4), (64, 64, 4), (32, 128, 3),
    (128, 32, 3), (64, 128, 2), (128, 64, 2), (128, 128, 2), (64, 256, 1), (256, 128, 1),
)  # fmt: skip

FETCHED = {"mma.sync": 1.0, "simt": 1.0, "wgmma": 0.5, "umma": 0.33}
"""Pairs of blocks share one operand under wgmma clusters; two-SM UMMA pairs share both halves."""

_FAMILY = {
    "hopper": ("wgmma", _WGMMA),
    "blackwell": ("umma", _UMMA),
}


@final
@dataclass(frozen=True)
class Tiles:
    """Candidate tiles as columns of shape (candidates, 1), to meet rows of shape (1, n).

    Attributes:
        family: the matrix instruction they are made for.
        m, n: rows and columns of the tile.
        k_bytes: depth of one main-loop step in bytes of an operand row.
        resident: blocks that one core holds.
        labels: for people.
        fetched: share of the operands that comes through L2, the rest being multicast within a
            cluster of blocks.
    """

    family: str
    m: F64
    n: F64
    k_bytes: float
    resident: F64
    labels: tuple[str, ...]
    fetched: F64


@cache
def tiles_for(
    architecture: str, pipe: str, smallest_m: float = 0.0, smallest_n: float = 0.0
) -> Tiles:
    """The candidates of one architecture on the tensor or the FMA pipe.

    Args:
        architecture: of the device.
        pipe: "tensor" or "fma".
        smallest_m, smallest_n: fewest rows and columns of a tile; libraries without transposed or
            narrow kernels have none below.

    >>> tiles_for("hopper", "tensor").labels[-1]
    'wgmma 256x128'
    """
    if pipe == "fma":
        family, table, k_bytes = "simt", _SIMT, 32.0
    else:
        family, table = _FAMILY.get(architecture, ("mma.sync", _MMA_SYNC))
        k_bytes = 64.0 if family == "mma.sync" else 128.0
    kept = [row for row in table if row[0] >= smallest_m and row[1] >= smallest_n]
    columns = np.array(kept, dtype=np.float64)
    return Tiles(
        family=family,
        m=columns[:, 0:1].copy(),
        n=columns[:, 1:2].copy(),
        k_bytes=k_bytes,
        resident=columns[:, 2:3].copy(),
        labels=tuple(f"{family} {m}x{n}" for m, n, _ in kept),
        fetched=np.where(columns[:, 0:1] * columns[:, 1:2] >= 16384.0, FETCHED[family], 1.0),
    )
