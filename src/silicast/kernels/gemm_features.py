"""What learned corrections of matrix products read: ratios of the analytic model's terms."""

from __future__ import annotations

from collections.abc import Mapping

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.kernels.gemm_model import GemmRates
from silicast.kernels.gemm_tiles import Tiles
from silicast.kernels.implementation import Demand


def features(
    rates: GemmRates, tiles: Tiles, best: Mapping[str, F64], demand: Demand, matrix_work: F64,
    sizes: tuple[F64, F64, F64], ops: F64, moved: F64, launch_s: float,
) -> dict[str, F64]:  # fmt: skip
    """Features of every row, from the columns of its best candidate and its useful work.

    Ratios, not logarithms: they are the same bits in every batch; learners take logs.
    """
    time = best["time"]
    ridge = rates.core_rate * rates.cores / rates.dram
    found = {f"{name}_share": best[name] / time for name in ("tensor", "l2", "dram", "chain")}
    found["launch_share"] = launch_s / time
    found["padding"] = matrix_work / ops
    found["waves"] = demand.waves
    found["fill"] = demand.waves / xp.ceil(demand.waves)
    found["working_set_over_l2"] = moved / rates.l2_bytes
    found["rereads"] = best["dram_bytes"] / moved
    found["intensity_over_ridge"] = ops / (moved * ridge)
    for name, size in zip("mnk", sizes, strict=True):
        eighths = size * 0.125
        found[f"{name}_odd"] = eighths - xp.floor(eighths)
    found["steps"] = best["block_steps"]
    if "quantise" in best:
        found["quantise_share"] = best["quantise"] / time
    found.update(zip(tiles.near_names, best["near"], strict=True))
    return found
