"""What an expert layer looks like to the tiles of its kernels: dimensionless, for corrections."""

from __future__ import annotations

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, folded
from silicast.kernels.experts.moe_model import BusiestRankLayer, ExpertRates, ExpertTimes
from silicast.kernels.experts.tuned_tiles import TileChances
from silicast.kernels.products.candidates import expert_sizes, tuned_sides

PADDED = (16, 64, 128)
"""Tokens of the tiles whose padding is told."""
WIDE = 128
"""Tokens and columns of the largest tile in use: how many of those there are, and how they fill."""


def shape_features(
    layer: BusiestRankLayer, rates: ExpertRates, estimate: ExpertTimes
) -> dict[str, F64]:
    """Of the busiest rank's share of a layer; arrays of shape (rows,).

    Tokens of an expert in use, experts in use and on the rank, its assignments; the width of its
    matrices and what is left over of that; blocks of each product over cores and how full their
    last round is; the share of the first product; weights over the capacity of the L2.
    """
    features = {
        "each": layer.assigned / layer.hit,
        "hit": layer.hit,
        "local_experts": layer.experts,
        "assigned": layer.assigned,
        "inner": layer.inner,
        "inner_over32": layer.inner % 32.0 / 32.0,
        "inner_over128": layer.inner % 128.0 / 128.0,
        "first_share": xp.like(layer.tokens, estimate.products.time[0]) / estimate.time,
        "weights_in_l2": layer.hit * layer.inner * layer.hidden * (rates.b_bytes / rates.l2_bytes),
    }
    tiles = {
        size: xp.like(layer.tokens, layer.tiles[expert_sizes().index(size)])
        for size in (*PADDED, WIDE)
    }
    for tile in PADDED:
        features[f"padding{tile}"] = tiles[tile] * (tile / layer.assigned)
    blocks = [xp.like(layer.tokens, row) for row in estimate.products.columns["blocks"]]
    wide = tiles[WIDE] * xp.ceil(layer.inner / WIDE)
    for name, grid in (("wide", wide), *((str(i), row) for i, row in enumerate(blocks))):
        share = grid / rates.cores
        features[f"blocks_{name}"] = share
        features[f"fill_{name}"] = share / xp.maximum(xp.ceil(share), 1.0)
    return features


def tile_features(layer: BusiestRankLayer, tiles: TileChances) -> dict[str, F64]:
    """What a tuned table would choose: expected sizes, how sure, and the padding of that choice."""
    indices = [expert_sizes().index(size) for size in tuned_sides()["m"]]
    sizes = np.array(tuned_sides()["m"], dtype=np.float64).reshape(-1, 1)
    table = {
        "tuned_m": tiles.expected("m"),
        "tuned_n": tiles.expected("n"),
        "tuned_sure": tiles.m.max(axis=0),
        "tuned_padding": folded(tiles.m * (layer.tiles[indices] * sizes)) / layer.assigned,
    }
    return {name: xp.like(layer.tokens, values) for name, values in table.items()}
