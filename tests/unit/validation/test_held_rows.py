"""Measured rows of all families in samples that can be scored."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.learning.training import MeasuredKernels
from silicast.validation.held_rows import (
    ONE_METRIC,
    Predicted,
    metric_of,
    predicted,
    scored,
    some_rows,
)
from silicast.validation.source import sources
from silicast.workload.op import OpBatch, Variant


def rows(device: str, count: int, *, first: int = 16) -> MeasuredKernels:
    """Products whose held-out rows are every fourth."""
    m = first + np.arange(count, dtype=np.int64)
    batch = OpBatch("gemm", Variant("bf16"), {"m": m, "n": np.full(count, 512), "k": m * 0 + 512})
    seconds = np.arange(count, dtype=np.float64) * 1e-6 + 1e-5
    return MeasuredKernels(batch, device, seconds, np.arange(count) % 4 == 0)


@pytest.mark.parametrize("held_out", [True, False])
def test_a_sample_is_of_one_side_of_the_split(held_out: bool) -> None:
    found = some_rows([rows("H100", 400), rows("H100", 40)], 44, held_out=held_out)
    assert all((part.held_out == held_out).all() for part in found)
    assert [len(part.batch) for part in found] == [40, 4]


def test_sampled_rows_keep_their_times() -> None:
    whole = rows("H100", 400)
    (part,) = some_rows([whole], 10, held_out=True)
    for m, seconds in zip(part.batch.dims["m"].tolist(), part.seconds.tolist(), strict=True):
        assert whole.seconds[m - 16] == seconds


def test_scored_rows_are_microseconds_by_device() -> None:
    parts = [rows("H100", 3), rows("A100", 2)]
    found = scored(
        "gemm_bf16_us",
        [Predicted(part, predicted(part), {"other": part.seconds * 2.0}) for part in parts],
    )
    assert found.measured == pytest.approx([10.0, 11.0, 12.0, 10.0, 11.0])
    assert (found.baselines["other"] == 2.0 * found.measured).all()
    assert found.groups["architecture"].tolist() == ["hopper"] * 3 + ["ampere"] * 2
    assert found.estimate[:3] == pytest.approx(1e6 * predicted(parts[0]).estimate_s)


def test_metrics_tell_formats_apart_but_where_they_are_reported_together() -> None:
    assert metric_of(rows("H100", 1)) == "gemm_bf16_us"
    assert set(sources()) >= ONE_METRIC
