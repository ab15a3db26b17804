"""Common trees and those of regions: by hand, the same bits in any batch, kept by artefacts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.artefact_files import Learned, write_artefact, write_tensors
from lab.boosted_forests import SMALLEST_REGION, train_forest
from silicast.core.numerics import F64
from silicast.core.tensors import read_tensors
from silicast.learning.artefact import FORMAT, Card, Trained, read_artefact
from silicast.learning.boosting import Settings, train
from silicast.learning.forest import Forest, binned, codes, regions

SETTINGS = Settings(trees=10, depth=3, own_trees=10, regions=4)


def rows_of(count: int, seed: int = 0) -> F64:
    rows: F64 = np.exp(np.random.default_rng(seed).normal(0.0, 2.0, (3, count)))
    return rows


def law(rows: F64) -> F64:
    """Small and large sizes have nothing in common."""
    small = np.where(rows[1] > 1.0, 0.3, 0.0)
    large = np.where(rows[2] > 2.0, -0.4, 0.1) * (rows[1] > 0.5)
    law: F64 = np.where(rows[0] < 1.0, small, 0.8 + large)
    return law


@pytest.fixture(scope="module")
def forest() -> Forest:
    rows = rows_of(12_000)
    return train_forest(rows, law(rows), SETTINGS)


def test_regions_follow_the_splits_in_order() -> None:
    splits = np.array([[0, 0, 2], [1, 1, 1], [0, 1, 1]], dtype=np.int16)
    bins = np.array([[0, 0, 2, 2], [0, 1, 0, 1]], dtype=np.uint8)
    assert regions(splits, bins).tolist() == [0, 3, 1, 2]
    many = np.tile(bins, 10)
    assert regions(splits, many).tolist() == [0, 3, 1, 2] * 10


def test_regions_are_found_and_help(forest: Forest) -> None:
    rows = rows_of(4_000, seed=7)
    assert 2 <= len(forest.own) <= SETTINGS.regions
    seen = rows_of(12_000)
    sizes = np.bincount(regions(forest.splits, binned(forest.common.bins, codes(seen))))
    assert sizes.min() >= SMALLEST_REGION
    plain = train(seen, law(seen), SETTINGS)
    apart = np.abs(forest.evaluate(rows) - law(rows)).mean()
    assert apart < 0.5 * np.abs(plain.evaluate(rows) - law(rows)).mean()


def test_bits_do_not_depend_on_the_batch(forest: Forest) -> None:
    rows = rows_of(20_000, seed=3)
    whole = forest.evaluate(rows)
    for start, end in ((0, 1), (5, 8), (100, 164), (3_000, 19_000)):
        assert (forest.evaluate(rows[:, start:end]) == whole[start:end]).all()
    order = np.random.default_rng(1).permutation(rows.shape[1])
    assert (forest.evaluate(rows[:, order]) == whole[order]).all()


def test_too_few_rows_have_no_regions() -> None:
    rows = rows_of(2 * SMALLEST_REGION - 1)
    assert train_forest(rows, law(rows), SETTINGS).own == ()


def test_splits_of_regions_that_are_not_there_are_refused(forest: Forest) -> None:
    with pytest.raises(ValueError, match="shape"):
        Forest(forest.common, forest.splits[:-1], forest.own)
    wrong = forest.splits.copy()
    wrong[0, 0] = 1
    with pytest.raises(ValueError, match="there is not"):
        Forest(forest.common, wrong, forest.own)


def written(forest: Forest, path: Path) -> Card:
    ranges = np.zeros((3, 2), dtype=np.int64)
    one = Trained("bf16.x", "x", ["bf16"], ["H100"], ["a", "b", "c"], 0.1, 0.1, 0.1, 0.1, 9, {})
    card = Card(FORMAT, "gemm", ["none"], "none", "a test", "2026-11-21", "", [one])
    part = Learned(forest, forest.common, forest.own[0] if forest.own else forest.common, ranges)
    return write_artefact(path, card, {"bf16.x": part})


def test_artefacts_keep_every_bit(forest: Forest, tmp_path: Path) -> None:
    path = tmp_path / "gemm.json"
    written(forest, path)
    artefact = read_artefact(path)
    rows = rows_of(500, seed=5)
    again = artefact.trees(artefact.card.trained[0])
    assert (again.evaluate(rows) == forest.evaluate(rows)).all()
    assert len(again.own) == len(forest.own)
    ceiling = artefact.ceiling(artefact.card.trained[0])
    assert ceiling is not None
    assert (ceiling.evaluate(rows) == forest.common.evaluate(rows)).all()
    spread = artefact.spread(artefact.card.trained[0])
    assert (spread.evaluate(rows) == forest.own[0].evaluate(rows)).all()


def test_artefacts_of_format_1_are_read(forest: Forest, tmp_path: Path) -> None:
    """They have one sum of trees, and leaves of two bytes."""
    path = tmp_path / "gemm.json"
    plain = Forest(forest.common, np.zeros((0, 3), np.int16))
    card = written(plain, path)
    tensors = read_tensors(path.with_suffix(".safetensors"))
    old = {n: x for n, x in tensors.items() if n.split("/")[1] in ("edges", "ranges")}
    old["bf16.x/features"] = plain.common.features
    old["bf16.x/thresholds"] = plain.common.thresholds
    old["bf16.x/leaves"] = plain.common.leaves
    digest = write_tensors(path.with_suffix(".safetensors"), old)
    text = path.read_text().replace(card.sha256, digest)
    path.write_text(text.replace(f'"format": {FORMAT}', '"format": 1'))
    artefact = read_artefact(path)
    rows = rows_of(500, seed=5)
    again = artefact.trees(artefact.card.trained[0])
    assert (again.evaluate(rows) == plain.evaluate(rows)).all()
    assert artefact.ceiling(artefact.card.trained[0]) is None
    assert not artefact.spread(artefact.card.trained[0]).evaluate(rows).any()
