"""How far outside measured sizes an op lies: there, intervals widen and the domain says so."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.core.prediction import Domain
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.op import OpBatch

GROUP = "ranges"
MAX_OCTAVES = 12
NEAR_OCTAVES = 2.0
"""Up to so many factors of two outside, a prediction counts as near measured ground."""


@lru_cache(maxsize=64)
def measured_sizes(family: str) -> tuple[tuple[str, float, float], ...]:
    """(dimension, smallest, largest) of a family's measured kernels; () where none is known.

    >>> dict((name, high) for name, _, high in measured_sizes("gemm"))["n"]
    65536.0
    """
    default = load_physics(GROUP).default
    names = sorted(
        key.split(".")[1]
        for key in default
        if key.startswith(f"{family}.") and key.endswith(".low")
    )
    return tuple((n, default[f"{family}.{n}.low"], default[f"{family}.{n}.high"]) for n in names)


def octaves_outside(batch: OpBatch) -> F64:
    """Factors of two between each op and the nearest measured size, of its farthest dimension.

    Whole octaves, shape (n,); 0 inside, and for families whose measured sizes are not listed. Of
    sequences of varied lengths the longest counts.
    """
    result: F64 = batch.filled(0.0)
    for name, low, high in measured_sizes(batch.family):
        if name not in batch.dims:
            continue
        values = xp.float64(_longest(batch, name))
        above, below = values / high, low / xp.maximum(values, 1.0)
        ratio = xp.maximum(above, below)
        if not xp.any_of(ratio > 1.0):
            continue
        octaves = batch.filled(0.0)
        step = 1.0
        for _ in range(MAX_OCTAVES):
            octaves = octaves + (ratio > step)
            step *= 2.0
        result = xp.maximum(result, octaves)
    return result


def _longest(batch: OpBatch, name: str) -> I64:
    """A dimension of each op; of its sequences the largest, 0 where an op has none."""
    sizes = batch.dims[name]
    if name not in batch.ragged or batch.offsets is None:
        return sizes
    filled = np.diff(batch.offsets) > 0
    longest = np.zeros(len(batch), dtype=sizes.dtype)
    if filled.any():
        longest[filled] = np.maximum.reduceat(sizes, batch.offsets[:-1][filled])
    return int(longest[0]) if batch.numbers else longest  # type: ignore[return-value]


def extrapolation_log_sd(octaves: F64) -> F64:
    """What an op's own error grows by outside measured sizes, log sd."""
    return octaves * load_physics(GROUP).default["log_sd_per_octave"]


def domain_of(octaves: float, *, measured: bool, built: bool = True) -> Domain:
    """In, near or out of measured ground.

    Args:
        octaves: of :func:`octaves_outside`.
        measured: kernels of this family and format were measured on this architecture.
        built: the device is there; on one that is a design nothing was measured at all.

    >>> domain_of(0.0, measured=False), domain_of(0.0, measured=False, built=False)
    ('near', 'out')
    """
    if not built or octaves > NEAR_OCTAVES:
        return "out"
    return "in" if measured and octaves == 0.0 else "near"
