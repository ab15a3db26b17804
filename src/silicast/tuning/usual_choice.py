"""What kernels usually take: tiles as tuners chose them, each with the time that the ranking of
configurations gives it. So the usual time and that of the best configuration are of one model.

>>> from silicast.core.dtypes import recipe_for
>>> from silicast.hardware.catalog import find_device
>>> from silicast.kernels.products.tile_times import Product
>>> from silicast.learning.configuration_ranking import ranked
>>> one = ranked(Product.plain(64, 4096, 4096), find_device("H20"), recipe_for("bf16"))
>>> usual_s(one, Tuning("gemm", 64, columns=4096, depth=4096)) >= one.estimate_s
True
"""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import F64
from silicast.learning.configuration_ranking import Ranked
from silicast.tuning.tuner_choice import Tuning, tuner_chances
from silicast.workload.graphs.op import Op


def tuned_problem(op: Op) -> Tuning:
    """What a tuner would tune for a product, or for one of the products of a layer of experts."""
    size = {name: value for name, value in op.dims if isinstance(value, int)}
    if op.family == "gemm":
        return Tuning("gemm", size["m"], columns=size["n"], depth=size["k"])
    experts = max(size["experts"] // size.get("ep", 1), 1)
    return Tuning("moe", size["tokens"], experts, -(-size["intermediate"] // size.get("tp", 1)))


def chances_of(ranking: Ranked, tuned: Tuning, engine: str = "") -> F64:
    """How likely a tuner chooses the tile of each configuration, shape (configurations,).

    Args:
        engine: whose tuner; "" = of any.
    """
    steps = ranking.steps
    likely = tuner_chances([tuned], steps.device, steps.recipe.name, engine)
    return likely.of_tiles({"m": steps.tiles.m, "n": steps.tiles.n, "k": steps.tiles.k})


def usual_s(ranking: Ranked, tuned: Tuning) -> float:
    """Seconds: the mean over tiles by their chances, of each tile its quickest configuration; never
    below the best configuration.
    """
    tiles = np.stack((ranking.steps.tiles.m, ranking.steps.tiles.n, ranking.steps.tiles.k))
    _, tile = np.unique(tiles, axis=1, return_inverse=True)
    tile = tile.ravel()
    quickest = np.full(int(tile.max()) + 1, np.inf)
    np.minimum.at(quickest, tile, ranking.time_s)
    chance = np.zeros_like(quickest)
    np.maximum.at(chance, tile, chances_of(ranking, tuned))
    mean = float((chance * quickest).sum() / chance.sum())
    return max(mean, ranking.estimate_s)
