"""What must hold for any matrix product on any device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.hardware.catalog import device_index, find_device
from silicast.kernels.check import check_kernel
from silicast.kernels.products.gemm import Gemm
from silicast.workload.graphs.op import Op, OpBatch, Variant
from tests.sampling import examples

MODEL = Gemm()
DEVICES = ["H100-SXM-80GB", "L40S", "B200-SXM-180GB", "A100-SXM-80GB", "T4"]
VARIANTS = [
    Variant(dtype=dtype, cache=cache, launch=launch)
    for dtype in ("bf16", "fp16", "fp32", "tf32", "fp8", "fp8_block", "int8")
    for cache in ("", "cold", "warm")
    for launch in ("graph", "stream")
]
size = st.integers(1, 40_000)


def test_battery_on_a_few_devices() -> None:
    devices = [find_device(name) for name in DEVICES]
    assert check_kernel(MODEL, devices, draws=1200, variants=VARIANTS, scalar_rows=2) > 800


@pytest.mark.full
def test_battery_on_all_devices() -> None:
    index = device_index()
    every = [index.get(name) for name in index.names]
    devices = [device for device in every if device.execution_model == "simt"]
    assert check_kernel(MODEL, devices, draws=150_000, variants=VARIANTS, scalar_rows=4) > 100_000


@examples(60)
@given(m=size, n=size, k=size, device=st.sampled_from(DEVICES))
def test_twice_the_rows_cost_little_more_than_twice(m: int, n: int, k: int, device: str) -> None:
    ops = [Op.make("gemm", Variant(dtype="fp16", cache="cold"), m=x, n=n, k=k) for x in (m, 2 * m)]
    once, twice = MODEL.times(OpBatch.from_ops(ops), find_device(device)).estimate_s
    assert twice <= 2.6 * once


@examples(60)
@given(m=size, n=size, k=size, batch=st.integers(1, 64))
def test_a_batch_costs_no_more_than_its_members_apart(m: int, n: int, k: int, batch: int) -> None:
    # operands from memory in both: one member may fit into L2 where the batch does not
    cold = Variant(cache="cold")
    ops = [Op.make("gemm", cold, m=m, n=n, k=k, batch=b) for b in (1, batch)]
    one, many = MODEL.times(OpBatch.from_ops(ops), find_device("H100-SXM-80GB")).estimate_s
    assert many <= 1.3 * batch * one


@examples(60)
@given(m=size, n=size, k=size, clock=st.floats(0.4, 1.0))
def test_a_slower_clock_never_helps(m: int, n: int, k: int, clock: float) -> None:
    device = find_device("H100-SXM-80GB")
    slow = device.at_clock(device.clocks.boost_hz * clock)
    batch = OpBatch.from_ops([Op.make("gemm", Variant(cache="cold"), m=m, n=n, k=k)])
    fast_s = MODEL.times(batch, device).estimate_s[0]
    assert MODEL.times(batch, slow).estimate_s[0] >= fast_s * 0.98


@examples(40)
@given(m=size, n=size, k=size)
def test_demand_covers_the_work(m: int, n: int, k: int) -> None:
    batch = OpBatch.from_ops([Op.make("gemm", Variant(cache="cold"), m=m, n=n, k=k)])
    demand = MODEL.times(batch, find_device("L40S")).analysis.demand
    assert demand.pipe_work["tensor"][0] >= 2 * m * n * k
    assert demand.level_bytes["dram"][0] >= 2 * (m * k + n * k + m * n) * (1 - 1e-12)
    assert demand.core_pipe_work["tensor"][0] <= demand.pipe_work["tensor"][0] * (1 + 1e-12)
    assert np.isfinite([f[0] for f in demand.level_bytes.values()]).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["fp16", "fp8", "fp32"])
def test_one_more_row_column_or_element_wins_only_a_stated_dip(device: str, dtype: str) -> None:
    """Libraries choose tiles and splits in steps: 5 % along k, 25 % along m and n, one in 100."""
    rng = np.random.default_rng(5)
    sizes = {
        name: np.exp(rng.uniform(np.log(low), np.log(40_000.0), 2000)).astype(np.int64)
        for name, low in (("m", 1.0), ("n", 16.0), ("k", 16.0))
    }
    for name in ("n", "k"):  # models' widths are round: that is where a sliver begins
        sizes[name][:1400] = sizes[name][:1400] // 64 * 64 + 64
    board, variant = find_device(device), Variant(dtype=dtype)
    before = MODEL.times(OpBatch("gemm", variant, sizes), board).estimate_s
    for name, dip in (("m", 0.25), ("n", 0.25), ("k", 0.05)):
        more = {**sizes, name: sizes[name] + 1}
        ratio = MODEL.times(OpBatch("gemm", variant, more), board).estimate_s / before
        assert ratio.min() >= 1.0 - dip, name
        assert np.mean(ratio < 0.99) <= 0.01, name


def test_few_rows_are_not_bound_by_arithmetic() -> None:
    ops = [Op.make("gemm", Variant(), m=1, n=4096, k=x) for x in (1024, 4096)]
    result = MODEL.times(OpBatch.from_ops(ops), find_device("H100-SXM-80GB"))
    assert result.bound_by() == ["l2", "l2"]
    assert (result.bound_s < result.estimate_s).all()
