"""Tiles that AMD's tuning tables hold."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import amd_sides, amd_tiles
from silicast.kernels.products.gemm import Gemm
from silicast.kernels.products.gemm_choice import (
    FORMATS,
    PHYSICS,
    SLOPES,
    TERMS,
    is_tuned,
    terms_of,
    tile_probabilities,
)
from silicast.workload.graphs.op import Op, Variant

CORES = 304.0
RNG = np.random.default_rng(5)
ROWS = 40


def problems(rows: int = ROWS) -> tuple[F64, F64, F64, F64]:
    m, n, k = (np.floor(2.0 ** RNG.uniform(0.0, 15.0, rows)) for _ in range(3))
    return m, n, k, np.floor(2.0 ** RNG.uniform(0.0, 6.0, rows))


def nearness(rows: int = ROWS) -> F64:
    uniform = RNG.uniform(0.05, 1.0, (len(amd_sides()), rows))
    near: F64 = uniform / uniform.max(axis=0)
    return near


@pytest.mark.parametrize("compute", FORMATS)
@pytest.mark.parametrize("architecture", ["cdna", "cdna3", "cdna4", "nobody's"])
def test_chances_add_up_to_one(architecture: str, compute: str) -> None:
    chances = tile_probabilities(problems(), CORES, nearness(), architecture, compute)
    assert chances.shape == (len(amd_sides()), ROWS)
    assert (chances >= 0.0).all()
    np.testing.assert_allclose(chances.sum(axis=0), 1.0, rtol=1e-12)


def test_a_row_has_the_same_bits_alone() -> None:
    sizes, near = problems(), nearness()
    together = tile_probabilities(sizes, CORES, near, "cdna2", "fp16")
    for row in range(ROWS):
        one = tuple(size[row : row + 1] for size in sizes)
        alone = tile_probabilities(one, CORES, near[:, row : row + 1], "cdna2", "fp16")  # type: ignore[arg-type]
        assert alone[:, 0].tobytes() == together[:, row].tobytes()


def test_terms_are_finite_in_the_corners() -> None:
    for size in (1.0, float(1 << 24)):
        side = np.array([size])
        terms = terms_of(
            side, side, side, side, np.array([CORES]), np.full((len(amd_sides()), 1), 1e-9)
        )
        assert terms.shape == (len(TERMS), len(amd_sides()), 1)
        assert np.isfinite(terms).all()


def test_large_products_take_large_tiles() -> None:
    sides = np.array(amd_sides(), dtype=np.float64)
    areas = []
    for size in (32, 8192):
        op = Op.make("gemm", Variant(dtype="bf16"), m=size, n=size, k=4096)
        likely = next(iter(Gemm().configurations(op, find_device("MI300X"))))
        rows, columns = likely.removeprefix("tensile ").split("x")
        areas.append(int(rows) * int(columns))
    assert areas[0] < np.median(sides.prod(axis=1)) < areas[1]


def test_only_tuned_architectures_and_formats_are_named() -> None:
    op = Op.make("gemm", Variant(dtype="bf16"), m=512, n=4096, k=4096)
    named = Gemm().configurations(op, find_device("MI355X"))
    assert list(named.values()) == sorted(named.values(), reverse=True)
    assert 0.0 < sum(named.values()) <= 1.0
    assert set(named) <= set(amd_tiles(64.0).labels)
    assert Gemm().configurations(op, find_device("H100")) == {}
    fp8 = Op.make("gemm", Variant(dtype="fp8"), m=512, n=4096, k=4096)
    assert Gemm().configurations(fp8, find_device("MI300X")) == {}


def test_every_weight_is_there_and_the_file_is_small() -> None:
    physics = load_physics(PHYSICS)
    shared = len(TERMS) + len(FORMATS) * len(amd_sides()) * len(SLOPES)
    assert len(physics.default) == shared
    for table in physics.architectures.values():
        assert len(table) % (len(amd_sides()) * len(SLOPES)) == 0
        assert set(table) <= set(physics.default)
    assert (CATALOG / "physics" / f"{PHYSICS}.json").stat().st_size < 400_000


def test_the_learned_choice_beats_the_fastest_and_the_commonest() -> None:
    scores = load_physics(PHYSICS).card.scores
    for architecture in ("cdna", "cdna2", "cdna3", "rdna3"):
        score = scores[architecture]
        others = max(score[name]["top1"] for name in ("fastest", "commonest"))
        assert score["learned"]["top1"] > others
        assert is_tuned(architecture, "fp16")
