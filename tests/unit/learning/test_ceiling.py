"""The ceiling: what one kernel in ten was quicker than, never under the bound."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import default_variants, draw_batch
from silicast.kernels.implementation import implementation_for
from silicast.learning.artefact import load_artefact
from silicast.learning.boosting import Settings, bin_tables, train_quantile
from silicast.learning.ceiling import ceiling_times, without_who


def test_quantile_trees_find_the_quantile_of_every_group() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(1, 3, 30_000).astype(np.float64)
    target = np.where(group > 1.0, 0.5, -0.5) + rng.exponential(0.2, 30_000)
    columns: F64 = group[None]
    settings = Settings(trees=60, depth=1, rate=0.2, columns=1.0)
    trees = train_quantile(bin_tables(columns), columns, target, 0.1, settings)
    found = trees.evaluate(columns)
    for value in (1.0, 2.0):
        below = (target < found)[group == value].mean()
        assert 0.07 < below < 0.13


def test_marks_of_who_provides_a_kernel_are_cleared() -> None:
    names = ("x:fill", "library:vllm", "release:vllm 1", "stream")
    columns = np.ones((4, 2))
    assert without_who(columns, names).tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
    assert columns.all()


@pytest.mark.parametrize("device", ["H100", "B200", "L40S"])
def test_ceilings_keep_above_the_bound_and_repeat_alone(device: str) -> None:
    model, card = implementation_for("gemm", "simt"), find_device(device)
    assert model is not None
    artefact = load_artefact("gemm")
    assert artefact is not None
    trained = artefact.find(card.architecture, "bf16")
    assert trained is not None
    assert artefact.ceiling(trained) is not None
    variant = next(v for v in default_variants(model) if v.dtype == "bf16")
    batch = draw_batch(model, variant, 50, np.random.default_rng(2))
    found = ceiling_times(model, batch, card)
    assert found is not None
    assert (found >= model.times(batch, card).bound_s).all()
    again = ceiling_times(model, batch, card)
    assert again is not None
    assert (again == found).all()


def test_nothing_measured_has_no_ceiling() -> None:
    model = implementation_for("gemm", "simt")
    assert model is not None
    variant = next(v for v in default_variants(model) if v.dtype == "bf16")
    batch = draw_batch(model, variant, 3, np.random.default_rng(2))
    assert ceiling_times(model, batch, find_device("MI300X")) is None
