"""Parts of a module: asked for together they have the bits of calls of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.timed_parts import FEW, PartBatch, TimedPart, queued, timed
from silicast.workload.graphs.op import OpBatch, Variant

H100 = find_device("H100")


def part(name: str, n: int, ops: int, count: int = 1, least: int | None = None) -> PartBatch:
    """A product of some rows for each of a module's ops."""
    m = np.arange(1, ops + 1, dtype=np.int64) * 48
    dims = {"m": m, "n": np.full(ops, n), "k": np.full(ops, 1024)}
    return PartBatch(name, OpBatch("gemm", Variant("bf16"), dims), count, least)


def norm(ops: int) -> PartBatch:
    dims = {"tokens": np.arange(1, ops + 1, dtype=np.int64), "hidden": np.full(ops, 4096)}
    return PartBatch("norm", OpBatch("rmsnorm", Variant("bf16"), dims))


def same(one: TimedPart, other: TimedPart) -> bool:
    return bool(
        (one.estimate_s == other.estimate_s).all()
        and (one.products_s == other.products_s).all()
        and (one.demand.tasks == other.demand.tasks).all()
        and (one.demand.level_bytes["dram"] == other.demand.level_bytes["dram"]).all()
    )


@pytest.mark.parametrize("ops", [1, 3, FEW, FEW + 1])
def test_together_and_alone(ops: int) -> None:
    parts = [part("up", 4096, ops), norm(ops), part("down", 512, ops)]
    together = timed(parts, H100)
    assert [item.name for item in together] == ["up", "norm", "down"]
    for each, item in zip(parts, together, strict=True):
        assert same(item, timed([each], H100)[0])
        assert item.estimate_s.shape == (ops,)
    assert not same(together[0], together[2])


def test_counts() -> None:
    often, needless = timed([part("a", 512, 2, count=3), part("b", 512, 2, least=0)], H100)
    assert often.total_s.tolist() == (3.0 * often.estimate_s).tolist()
    assert often.least.tolist() == [3.0, 3.0]
    assert (needless.count.tolist(), needless.least.tolist()) == ([1.0, 1.0], [0.0, 0.0])


def test_what_streams_owes_no_products() -> None:
    assert not timed([norm(2)], H100)[0].products_s.any()


def test_a_part_does_not_wait_for_the_host() -> None:
    batch = part("a", 512, 1).batch
    eager = OpBatch("gemm", Variant("bf16", launch="stream"), batch.dims)
    assert queued(eager).variant == batch.variant
    assert queued(batch) is batch


def test_a_device_without_a_model_is_refused() -> None:
    unheard_of: Any = "unheard_of"
    with pytest.raises(ValueError, match="no model of gemm"):
        timed([part("a", 512, 1)], replace(H100, execution_model=unheard_of))
    with pytest.raises(SilicastError, match="no design"):
        timed([part("a", 512, 1)], replace(H100, execution_model="loop_nest"))
