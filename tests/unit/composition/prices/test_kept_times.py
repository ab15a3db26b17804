"""Kept times are those that would be found, of each kernel, device and evidence apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from silicast.composition.prices import kept_times
from silicast.composition.prices.kept_times import analysis_of, keeping_times, times_of
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning.tiers import ALL_SHIPPED, Evidence, kernel_times
from silicast.workload.graphs.op import Op, OpBatch

H100 = find_device("h100").in_state("boost")
GEMM: Any = implementation_for("gemm", "simt")


def _products(*sizes: int) -> OpBatch:
    return OpBatch.from_ops([Op.make("gemm", m=size, n=512, k=128) for size in sizes])


def test_times_are_kept_only_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []

    def counted(*given: Any) -> Any:
        requested.append(len(given[1]))
        return kernel_times(*given)

    monkeypatch.setattr(kept_times, "kernel_times", counted)
    for _ in range(2):
        times_of(GEMM, _products(1, 2), H100, ALL_SHIPPED)
    assert requested == [2, 2]
    with keeping_times():
        for _ in range(3):
            times_of(GEMM, _products(1, 2, 3), H100, ALL_SHIPPED)
    times_of(GEMM, _products(1, 2, 3), H100, ALL_SHIPPED)
    assert requested == [2, 2, 3, 3]


def test_what_differs_is_kept_apart() -> None:
    a100 = find_device("a100").in_state("boost")
    analytic = Evidence(learned=False)
    requested = [
        (batch, device, evidence)
        for batch in (_products(1, 2), _products(1, 3), _products(64))
        for device in (H100, a100, H100.at_clock(1e9))
        for evidence in (ALL_SHIPPED, analytic)
    ]
    with keeping_times():
        for _ in range(2):
            for batch, device, evidence in requested:
                result = times_of(GEMM, batch, device, evidence)
                expected = kernel_times(GEMM, batch, device, evidence)
                assert np.array_equal(result.estimate_s, expected.estimate_s)
                assert np.array_equal(result.p95_s, expected.p95_s)
                slow = analysis_of(GEMM, batch, device)
                assert np.array_equal(slow.time_s, GEMM.analysed(batch, device).time_s)


def test_too_many_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_times, "ROWS", 3)
    with keeping_times():
        for size in range(1, 9):
            result = times_of(GEMM, _products(size), H100, ALL_SHIPPED)
            expected = kernel_times(GEMM, _products(size), H100, ALL_SHIPPED)
            assert result.estimate_s == expected.estimate_s
