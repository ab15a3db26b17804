"""Which tile Triton's fused experts run with: tuned tables as a model of their choices.

vLLM and SGLang ship a table of tiles for a width, a number of experts, a format and a device, with
an entry per number of tokens. A softmax over logarithms of those sizes stands for the tables: it
knows what a tuner usually takes, and how sure that is. Devices are no part of it, so that it holds
for those that nobody tuned for as well. Weights: catalog/physics/tuned_tiles.json, fitted by
lab/fit_tuned_tiles.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any, final

import numpy as np
from msgspec import Struct

from silicast.core.numerics import F64, I64, exp_fixed, folded, log_fixed
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import tuned_sides

PHYSICS = "tuned_tiles"
FORMATS = ("fp8", "fp8_block", "int8_wo", "int8")
"""Formats with a mark of their own; all others count as 16 bits."""
_EACH_BENDS = np.array([[-3.0], [-1.0], [0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
_TOKEN_BENDS = np.array([[5.0], [7.0], [9.0], [11.0]])
"""Where choices change: log2 of tokens an expert, and of tokens."""
_ONE, _OTHER = [0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]
"""Pairs of logarithms that are multiplied."""
_LOG2 = 1.0 / 0.6931471805599453


@final
class TileChances(Struct, frozen=True):
    """Probabilities of tile sizes, each of shape (sizes, rows), in the order of
    :func:`~silicast.kernels.products.candidates.tuned_sides`.
    """

    m: F64
    n: F64
    k: F64

    def expected(self, side: str) -> F64:
        """The mean size of a side, shape (rows,)."""
        sizes = np.array(tuned_sides()[side], dtype=np.float64).reshape(-1, 1)
        return folded(getattr(self, side) * sizes)

    def likeliest(self) -> tuple[Sequence[str], I64]:
        """All tiles, as tokens x columns x depth, and which is the likeliest of each row."""
        index: Any = 0
        for side, sizes in tuned_sides().items():
            index = index * len(sizes) + np.argmax(getattr(self, side), axis=0)
        return _tiles(), index

    def likely(self, row: int) -> str:
        """The likeliest tile of a row."""
        labels, index = self.likeliest()
        return labels[int(index[row])]


@cache
def _tiles() -> Sequence[str]:
    """All of them, the last side first to change."""
    return ["x".join(map(str, sizes)) for sizes in product(*tuned_sides().values())]


def tile_choice(tokens: F64, experts: F64, width: F64, dtype: str) -> TileChances:
    """What a tuned table would choose.

    Args:
        tokens: entering the layer, before top-k; experts: on the rank; width: of one of the
            rank's gate or up matrices. Arrays of shape (rows,), 1 or more.
        dtype: name of the recipe.

    >>> few, many = (np.array([x]) for x in (8.0, 16384.0))
    >>> experts, width = np.array([128.0]), np.array([768.0])
    >>> [tile_choice(x, experts, width, "bf16").likely(0).split("x")[0] for x in (few, many)]
    ['16', '128']
    """
    terms = terms_of(tokens, experts, width, dtype)
    weights, sides = _weights()
    logits = folded(weights * terms[:, None, :])
    below = [logits[rows] - logits[rows].max(axis=0) for rows in sides.values()]
    raised = exp_fixed(np.maximum(np.concatenate(below), -40.0))
    return TileChances(
        **{side: raised[rows] / folded(raised[rows]) for side, rows in sides.items()}
    )


def terms_of(tokens: F64, experts: F64, width: F64, dtype: str) -> F64:
    """What the logits are linear in, shape (terms, rows)."""
    logs = log_fixed(np.stack((tokens, experts, width)).astype(np.float64)) * _LOG2
    log_per_expert = logs[:1] - logs[1:2]
    small = logs * 0.125
    marks = np.array([[1.0 if name == dtype else 0.0] for name in FORMATS])
    terms: F64 = np.concatenate(
        (
            np.ones_like(log_per_expert),
            small,
            small[_ONE] * small[_OTHER],
            np.maximum(log_per_expert - _EACH_BENDS, 0.0) * 0.25,
            np.maximum(logs[:1] - _TOKEN_BENDS, 0.0) * 0.25,
            marks + np.zeros_like(log_per_expert),
            marks * small[:1],
            marks * (log_per_expert * 0.125),
        )
    )
    return terms


def weight_name(side: str, size: int, term: int) -> str:
    """The name of one weight in the constants file."""
    return f"{side}.{size}.{term:02d}"


@lru_cache(maxsize=1)
def _weights() -> tuple[F64, Mapping[str, slice]]:
    """Weights of the sizes of all sides, shape (terms, sizes, 1), and the places of each side's."""
    table = load_physics(PHYSICS).default
    sizes = [(side, size) for side, side_sizes in tuned_sides().items() for size in side_sizes]
    side, size = sizes[0]
    count = sum(name.startswith(f"{side}.{size}.") for name in table)
    rows = [[table[weight_name(*side_size, term)] for side_size in sizes] for term in range(count)]
    ends = np.cumsum([len(side_sizes) for side_sizes in tuned_sides().values()]).tolist()
    sides = {
        side: slice(end - len(side_sizes), end)
        for (side, side_sizes), end in zip(tuned_sides().items(), ends, strict=True)
    }
    return np.array(rows)[:, :, None], sides
