"""Mixed lists of ops: order, grouping, memory and missing families."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.kernels.registry import implementation_for
from silicast.learning import dispatch
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.elementwise import elementwise_op

H100 = find_device("H100")
OPS = [
    Op.make("rmsnorm", tokens=8, hidden=4096, residual=1),
    elementwise_op("gelu", 4096),
    Op.make("rmsnorm", tokens=8, hidden=4096),
    Op.make("silu_mul", tokens=8, width=28672),
    Op.make("rmsnorm", Variant("fp32"), tokens=8, hidden=4096),
    elementwise_op("add", 1 << 20, inputs=2),
    Op.make("rmsnorm", tokens=99, hidden=5120, residual=0),
]


def alone(op: Op) -> float:
    model = implementation_for(op.family, "simt")
    assert model is not None
    return float(model.times(OpBatch.from_ops([op]), H100).estimate_s[0])


def test_answers_come_in_the_order_asked_and_equal_single_calls() -> None:
    dispatch.forget()
    result = dispatch.times(OPS, H100)
    assert [time.op for time in result] == OPS
    assert [time.estimate_s for time in result] == [alone(op) for op in OPS]
    assert dispatch.times(OPS[::-1], H100) == result[::-1]


def test_each_device_has_its_own_memory() -> None:
    other = find_device("A100")
    first = dispatch.time_of(OPS[0], H100)
    assert dispatch.time_of(OPS[0], other).estimate_s != first.estimate_s
    slower = H100.at_clock(H100.clocks.base_hz)
    assert dispatch.time_of(OPS[0], slower).estimate_s > first.estimate_s
    assert dispatch.time_of(OPS[0], H100) is first


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch.forget()
    monkeypatch.setattr(dispatch, "MEMO_LIMIT", 4)
    before = dispatch.times(OPS, H100)
    assert dispatch.times([OPS[0]], H100) == before[:1]


def test_a_family_without_a_model_is_named() -> None:
    with pytest.raises(SilicastError) as caught:
        dispatch.times([OPS[0], Op.make("teleport", tokens=1)], H100)
    assert caught.value.kind == "not_yet"
    assert caught.value.field == "workload.kernel.op"
    assert "teleport" in str(caught.value)
    assert "rmsnorm" in caught.value.hint


def test_an_execution_model_without_kernels_is_named() -> None:
    optical = replace(H100, name="optical", execution_model="optical")  # type: ignore[arg-type]
    with pytest.raises(SilicastError, match="optical") as caught:
        dispatch.time_of(OPS[0], optical)
    assert caught.value.kind == "not_yet"


def test_rows_carry_interval_bound_and_error_factors() -> None:
    time = dispatch.time_of(OPS[3], H100)
    assert 0.0 < time.bound_s <= time.p05_s < time.estimate_s < time.p95_s
    assert time.bound_by in {"dram", "l2", "fma", "xu"}
    assert "family:silu_mul" in time.shared_log_sd
    assert time.tier == "analytic"
