"""The battery finds each kind of broken kernel model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Device
from silicast.kernels.check import check_kernel, draw_batch, op_at
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.rows.norms import RmsNorm
from silicast.workload.graphs.op import Op, OpBatch, Variant

DEVICES = [find_device("H100"), find_device("T4")]


class Wrapped(Implementation):
    """RMSNorm with its analysis or counts tampered with."""

    family: ClassVar[str] = "rmsnorm"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = RmsNorm.dims

    def __init__(
        self,
        tamper: Callable[[Analysis, OpBatch], Analysis] = lambda analysis, _: analysis,
        count: Callable[[int], Any] = lambda value: value,
    ) -> None:
        self.inner, self.tamper, self.count = RmsNorm(), tamper, count

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.tamper(self.inner.analyse(batch, device), batch)

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return self.inner.shared_log_sd(variant, device)

    def flops(self, op: Op) -> int:
        return self.inner.flops(op)

    def compulsory_bytes(self, op: Op) -> int:
        compulsory_bytes: int = self.count(self.inner.compulsory_bytes(op))
        return compulsory_bytes


def test_an_honest_model_passes() -> None:
    assert check_kernel(Wrapped(), DEVICES, draws=48) >= 48


def nan_in_one_row(analysis: Analysis, _: OpBatch) -> Analysis:
    time = analysis.time_s.copy()
    time[len(time) // 2] = np.nan
    return replace(analysis, time_s=time)


def depends_on_the_batch(analysis: Analysis, _: OpBatch) -> Analysis:
    return replace(analysis, time_s=analysis.time_s + analysis.time_s.mean())


def depends_on_the_place(analysis: Analysis, _: OpBatch) -> Analysis:
    return replace(analysis, time_s=analysis.time_s * (1.0 + np.arange(len(analysis.time_s))))


def bound_falls_with_work(analysis: Analysis, batch: OpBatch) -> Analysis:
    bound = 1e-6 / batch.dims["tokens"]
    return replace(analysis, bound_s=bound, resource_s={"dram": bound})


def bound_is_not_a_resource(analysis: Analysis, _: OpBatch) -> Analysis:
    return replace(analysis, bound_s=analysis.bound_s * 2.0)


def takes_no_time(analysis: Analysis, _: OpBatch) -> Analysis:
    instant = np.full_like(analysis.bound_s, 1.7e-9)
    return replace(analysis, time_s=instant, bound_s=instant, resource_s={"dram": instant})


def scalar_feature(analysis: Analysis, _: OpBatch) -> Analysis:
    return replace(analysis, features={**analysis.features, "share": np.array(1.0)})


def zero_bound(analysis: Analysis, _: OpBatch) -> Analysis:
    zero = analysis.bound_s * 0.0
    return replace(analysis, bound_s=zero, resource_s={"dram": zero})


@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        (nan_in_one_row, "not finite"),
        (depends_on_the_batch, "differs in its bits"),
        (depends_on_the_place, "differs in its bits"),
        (bound_falls_with_work, "more tokens lowers the bound"),
        (bound_is_not_a_resource, "not the largest resource time"),
        (takes_no_time, "shorter than 300 clocks"),
        (scalar_feature, "feature share has shape"),
        (zero_bound, "not 0 < bound"),
    ],
)
def test_a_broken_model_is_named(
    tamper: Callable[[Analysis, OpBatch], Analysis], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_kernel(Wrapped(tamper), DEVICES, draws=48)


def test_inexact_counts_are_named() -> None:
    with pytest.raises(AssertionError, match=r"compulsory_bytes.*not an exact count"):
        check_kernel(Wrapped(count=float), DEVICES, draws=48)


def test_refusing_a_format_is_allowed_but_refusing_everything_is_not() -> None:
    def refuse(analysis: Analysis, batch: OpBatch) -> Analysis:
        if batch.variant.dtype != "fp32":
            raise SilicastError("only fp32", kind="unsupported", field="dtype")
        return analysis

    def refuse_all(analysis: Analysis, batch: OpBatch) -> Analysis:
        raise SilicastError("nothing", kind="unsupported", field="dtype")

    assert 0 < check_kernel(Wrapped(refuse), DEVICES, draws=48) < 48
    with pytest.raises(AssertionError, match="every device refused"):
        check_kernel(Wrapped(refuse_all), DEVICES, draws=48)


def test_rows_of_a_ragged_batch_are_taken_with_their_sequences() -> None:
    batch = OpBatch.from_ops(
        [
            Op.make("attention_prefill", q_lens=(1, 2, 3), kv_lens=(4, 5, 6), num_heads=8),
            Op.make("attention_prefill", q_lens=(7,), kv_lens=(8,), num_heads=16),
            Op.make("attention_prefill", q_lens=(9, 10), kv_lens=(11, 12), num_heads=32),
        ]
    )
    taken = batch.rows(np.array([2, 0]))
    assert [op_at(taken, row) for row in range(2)] == [op_at(batch, 2), op_at(batch, 0)]
    assert taken.offsets is not None
    assert taken.offsets.tolist() == [0, 2, 5]


def test_draws_stay_in_range_and_repeat() -> None:
    first, second = (
        draw_batch(RmsNorm(), Variant(), 500, np.random.default_rng(7)) for _ in range(2)
    )
    for name, (low, high) in RmsNorm.dims.items():
        assert low <= first.dims[name].min() <= first.dims[name].max() <= high
        assert (first.dims[name] == second.dims[name]).all()
    assert set(first.dims["residual"].tolist()) == {0, 1}
