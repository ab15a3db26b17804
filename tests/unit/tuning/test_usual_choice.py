"""What tuners usually choose takes: between the best configuration and the slowest tile, and as
the chances of tiles weigh them.
"""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.dtypes import recipe_for
from silicast.hardware.catalog import find_device
from silicast.kernels.products.tile_times import Product
from silicast.learning.configuration_ranking import Ranked, ranked
from silicast.tuning.tuner_choice import Tuning
from silicast.tuning.usual_choice import chances_of, tuned_problem, usual_s
from silicast.workload.graphs.op import Op, Variant

SIZES = [(16, 4096, 4096), (512, 8192, 2048), (4096, 4096, 14336)]


def product(device: str, m: int, n: int, k: int) -> tuple[Ranked, Tuning]:
    ranking = ranked(Product.plain(m, n, k), find_device(device), recipe_for("bf16"))
    return ranking, Tuning("gemm", m, columns=n, depth=k)


@pytest.mark.parametrize("device", ["H20", "A40", "H100", "B200"])
@pytest.mark.parametrize("sizes", SIZES)
def test_it_lies_between_the_best_and_the_slowest(device: str, sizes: tuple[int, int, int]) -> None:
    ranking, tuned = product(device, *sizes)
    seconds = usual_s(ranking, tuned)
    assert ranking.estimate_s <= seconds <= ranking.time_s.max()


def test_it_is_the_mean_over_tiles_one_by_one() -> None:
    ranking, tuned = product("H20", 512, 8192, 2048)
    chances, tiles = chances_of(ranking, tuned), ranking.steps.tiles
    quickest: dict[tuple[float, ...], tuple[float, float]] = {}
    for index, seconds in enumerate(ranking.time_s.tolist()):
        tile = float(tiles.m[index]), float(tiles.n[index]), float(tiles.k[index])
        known = quickest.get(tile, (np.inf, 0.0))
        quickest[tile] = min(known[0], seconds), float(chances[index])
    total = sum(chance for _, chance in quickest.values())
    mean = sum(seconds * chance for seconds, chance in quickest.values()) / total
    assert usual_s(ranking, tuned) == pytest.approx(max(mean, ranking.estimate_s))


def test_a_tuner_is_asked_about_a_ranks_share_of_a_layer() -> None:
    sizes = {"tokens": 64, "experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768}
    layer = Op.make("moe", Variant(dtype="bf16"), **sizes, ep=4, tp=2)
    assert tuned_problem(layer) == Tuning("moe", 64, experts=32, columns=384)
    assert tuned_problem(Op.make("gemm", m=8, n=32, k=64)) == Tuning("gemm", 8, 1, 32, 64)
