"""The ceiling: what one kernel in ten was quicker than, never under the bound."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from lab.boosted_forests import train_quantile
from lab.family_training import without_who
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.check import default_variants, draw_batch
from silicast.kernels.implementation import Implementation, KernelTimes
from silicast.kernels.registry import implementation_for
from silicast.learning.boosting import Settings, bin_tables
from silicast.learning.tiers import Evidence, kernel_times
from silicast.workload.graphs.op import OpBatch


def test_quantile_trees_find_the_quantile_of_every_group() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(1, 3, 30_000).astype(np.float64)
    target = np.where(group > 1.0, 0.5, -0.5) + rng.exponential(0.2, 30_000)
    columns: F64 = group[None]
    settings = Settings(trees=60, depth=1, rate=0.2, columns=1.0)
    trees = train_quantile(bin_tables(columns), columns, target, 0.1, settings)
    evaluate = trees.evaluate(columns)
    for value in (1.0, 2.0):
        below = (target < evaluate)[group == value].mean()
        assert 0.07 < below < 0.13


def test_marks_of_who_provides_a_kernel_are_cleared() -> None:
    names = ("x:fill", "library:vllm", "release:vllm 1", "stream")
    columns = np.ones((4, 2))
    assert without_who(columns, names).tolist() == [[1, 1], [0, 0], [0, 0], [1, 1]]
    assert columns.all()


@pytest.mark.parametrize("device", ["H100", "B200", "L40S"])
def test_ceilings_keep_above_the_bound_and_repeat_alone(device: str) -> None:
    batch = products(50)
    result = asked(batch, device)
    assert result.ceiling_s is not None
    assert (result.ceiling_s >= result.bound_s).all()
    alone = asked(batch.rows(np.array([7])), device)
    assert alone.ceiling_s is not None
    assert alone.ceiling_s[0] == result.ceiling_s[7]
    # asking changes nothing else
    assert (result.estimate_s == kernel_times(gemm(), batch, find_device(device)).estimate_s).all()


def test_who_provides_a_kernel_changes_no_ceiling() -> None:
    batch = products(20)
    other = msgspec.structs.replace(batch, variant=replace(batch.variant, library="vllm"))
    one, two = asked(batch, "H100"), asked(other, "H100")
    assert one.ceiling_s is not None
    assert two.ceiling_s is not None
    assert (one.ceiling_s == two.ceiling_s).all()


def test_nothing_measured_and_nothing_asked_have_no_ceiling() -> None:
    batch = products(3)
    assert asked(batch, "MI300X").ceiling_s is None
    assert kernel_times(gemm(), batch, find_device("H100")).ceiling_s is None


def gemm() -> Implementation:
    implementation = implementation_for("gemm", "simt")
    assert implementation is not None
    return implementation


def products(count: int) -> OpBatch:
    variant = next(v for v in default_variants(gemm()) if v.dtype == "bf16")
    return draw_batch(gemm(), variant, count, np.random.default_rng(2))


def asked(batch: OpBatch, device: str) -> KernelTimes:
    return kernel_times(gemm(), batch, find_device(device), Evidence(ceilings=True))
