"""Tiles that tuned tables of Triton's experts hold."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.catalog import CATALOG
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.experts.moe import Moe
from silicast.kernels.experts.tuned_tiles import PHYSICS, TileChances, terms_of, tile_choice
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.candidates import tuned_sides
from silicast.workload.graphs.op import Op, OpBatch, Variant

TOKENS = np.array([1.0, 16.0, 64.0, 512.0, 4096.0, 65536.0])


def choice(tokens: F64 = TOKENS, dtype: str = "bf16") -> TileChances:
    return tile_choice(tokens, np.full_like(tokens, 128.0), np.full_like(tokens, 768.0), dtype)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_block", "int8_wo", "int8", "nvfp4"])
def test_probabilities_sum_to_one(dtype: str) -> None:
    result = choice(dtype=dtype)
    for side, sizes in tuned_sides().items():
        chances = getattr(result, side)
        assert chances.shape == (len(sizes), len(TOKENS))
        assert (chances >= 0.0).all()
        np.testing.assert_allclose(chances.sum(axis=0), 1.0, rtol=1e-12)


def test_more_tokens_take_larger_tiles() -> None:
    expected = choice().expected("m")
    assert expected[0] < 20.0
    assert expected[-1] > 100.0
    assert (np.diff(expected) > -0.5).all()


def test_a_row_has_the_same_bits_alone() -> None:
    together = choice()
    for row in range(len(TOKENS)):
        alone = choice(TOKENS[row : row + 1])
        for side in tuned_sides():
            assert (getattr(alone, side)[:, 0] == getattr(together, side)[:, row]).all()


def test_every_term_has_weights() -> None:
    terms = terms_of(TOKENS, TOKENS, TOKENS, "fp8")
    assert len(load_physics(PHYSICS).default) == len(terms) * sum(map(len, tuned_sides().values()))


def test_choices_of_unseen_files_beat_the_commonest_and_the_default_rule() -> None:
    scores = load_physics(PHYSICS).card.scores
    for side in tuned_sides():
        score = scores[f"block_{side}"]
        assert score["accuracy"] > score["commonest"] + 0.1
        assert score["rows"] > 1000
    assert scores["block_m"]["accuracy"] > scores["block_m"]["default_rule"] + 0.1


def test_weights_are_small() -> None:
    assert (CATALOG / f"physics/{PHYSICS}.json").stat().st_size < 300_000


def test_only_kernels_that_read_a_table_name_its_tile() -> None:
    sizes = {"tokens": 64, "experts": 128, "topk": 8, "hidden": 2048, "intermediate": 768}
    device = find_device("H100-SXM-80GB")
    for library, tuned in (("vllm", True), ("trtllm", False)):
        batch = OpBatch.from_ops([Op.make("moe", Variant(dtype="bf16", library=library), **sizes)])
        analyse = Moe().analyse(batch, device)
        assert ("tuned_m" in analyse.features) is tuned
        assert (analyse.choice()[0].count("x") == 2) is tuned
