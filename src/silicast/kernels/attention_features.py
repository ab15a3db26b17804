"""Dimensionless numbers of an attention op's shape, for learned corrections."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.kernels.attention_work import Sequences
from silicast.workload.op import OpBatch

ROWS = 128
"""Rows of the usual query tile."""


def shape_features(
    batch: OpBatch, work: Sequences, heads: I64, groups: I64, cores: int
) -> Mapping[str, F64]:
    """Features by name, shape (ops,).

    group: query heads of a key-value head. pairs: sequences times key-value heads, each the least
    work that shares keys; pair_fill: of their last round over the cores, the share that is filled.
    window_share: of the longest cache, what a window lets a query see; 1 without one.
    """
    sequences = work.sequences
    pairs = sequences * groups
    rounds = pairs / cores
    found = {"group": heads / groups, "pairs": pairs, "pair_fill": rounds - xp.floor(rounds)}
    window = batch.dims.get("window")
    if window is None or not xp.any_of(window):
        return {**found, "window_share": xp.full_like(pairs, 1.0)}
    longest = work.largest(xp.float64(work.kv))
    share = xp.where(window > 0, xp.minimum(window / xp.maximum(longest, 1.0), 1.0), 1.0)
    return {**found, "window_share": share}


def row_rest(work: Sequences, heads: I64, groups: I64) -> F64:
    """What the rows of a sequence and group leave over of whole tiles, a mean, shape (ops,)."""
    group = work.spread(heads // xp.maximum(groups, 1))
    rest = xp.float64(work.q * group % ROWS)
    if work.offsets is None:
        return rest / ROWS
    return work.total(rest) / (work.sequences * float(ROWS))
