"""Calibrated times: batches, intervals, distance, what a file may not say."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from silicast.core.calibration import FORMAT, Calibration, Offset, Scope
from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.kernels.products.gemm import Gemm
from silicast.learning.calibration import Calibrator
from silicast.learning.calibration_fit import MANY_ROWS, SOME_ROWS, MeasuredKernels, fit_offset
from silicast.workload.graphs.op import OpBatch, Variant

DEVICE = find_device("L40S")
MODEL = Gemm()


def products(count: int, seed: int = 0, low: int = 4) -> OpBatch:
    """Random products of 2**low to 2**13 a side."""
    rng = np.random.default_rng(seed)
    dims = {name: np.exp2(rng.uniform(low, 13, count)).astype(np.int64) for name in "mnk"}
    return OpBatch("gemm", Variant(), {**dims, "batch": np.ones(count, dtype=np.int64)})


def measured(batch: OpBatch, noise: float = 0.02, seed: int = 0) -> F64:
    """Times of a device that is slower where m is small, with noise."""
    estimate_s = Gemm.times(MODEL, batch, DEVICE).estimate_s
    slower = 0.15 + 0.2 / (1.0 + batch.dims["m"] / 256.0)
    return estimate_s * np.exp(
        slower + noise * np.random.default_rng(seed).standard_normal(len(batch))
    )


def fitted(count: int, noise: float = 0.02) -> Offset:
    batch = products(count)
    part = MeasuredKernels(batch, DEVICE.name, measured(batch, noise), np.zeros(count, np.bool_))
    return fit_offset(MODEL, [part], DEVICE, learned=False)[0]


def ready(offset: Offset) -> Calibrator:
    return Calibrator(Calibration(FORMAT, Scope(DEVICE.name), [offset]))


@pytest.mark.parametrize(("count", "most"), [(4, 0.25), (30, 0.12), (200, 0.06)])
def test_more_rows_come_closer(count: int, most: float) -> None:
    offset = fitted(count)
    assert (offset.interpolation is not None) == (count >= SOME_ROWS)
    if count < MANY_ROWS:
        assert offset.correction is None
    fresh = products(300, seed=5)
    before = Gemm.times(MODEL, fresh, DEVICE)
    after = ready(offset).times(before, MODEL, fresh, DEVICE)
    truth = measured(fresh, noise=0.0)
    error = np.abs(np.log(after.estimate_s / truth)).mean()
    assert error < most
    assert error < np.abs(np.log(before.estimate_s / truth)).mean()


def test_nine_rows_in_ten_lie_inside() -> None:
    fresh = products(400, seed=5)
    before = Gemm.times(MODEL, fresh, DEVICE)
    after = ready(fitted(200, noise=0.05)).times(before, MODEL, fresh, DEVICE)
    truth = measured(fresh, noise=0.05, seed=9)
    inside = (after.p05_s <= truth) & (truth <= after.p95_s)
    assert 0.82 < inside.mean() <= 1.0
    assert np.median(after.p95_s / after.p05_s) < 1.4


@pytest.mark.parametrize("count", [30, 200])
def test_a_row_has_the_same_bits_in_any_batch(count: int) -> None:
    calibrator = ready(fitted(count))
    fresh = products(100, seed=7)
    whole = calibrator.times(Gemm.times(MODEL, fresh, DEVICE), MODEL, fresh, DEVICE)
    for row in (0, 41, 99):
        one = fresh.rows(np.array([row]))
        alone = calibrator.times(Gemm.times(MODEL, one, DEVICE), MODEL, one, DEVICE)
        for name in ("estimate_s", "p05_s", "p95_s", "independent_log_sd"):
            assert getattr(alone, name)[0] == getattr(whole, name)[row]


def test_the_same_rows_make_the_same_file() -> None:
    one, other = fitted(120), fitted(120)
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


def test_far_from_the_rows_it_is_less_sure() -> None:
    calibrator = ready(fitted(200))
    near, far = products(50, seed=3, low=6), products(50, seed=3)
    tiny = OpBatch("gemm", Variant(), {name: np.ones_like(far.dims["m"]) for name in far.dims})
    for batch in (far, tiny):
        result = calibrator.times(Gemm.times(MODEL, batch, DEVICE), MODEL, batch, DEVICE)
        usual = calibrator.times(Gemm.times(MODEL, near, DEVICE), MODEL, near, DEVICE)
        assert result.independent_log_sd.mean() >= usual.independent_log_sd.mean() - 1e-3
    assert result.tiers() == ["analytic"] * len(tiny)


def test_another_style_or_cache_is_not_spoken_for() -> None:
    calibrator = ready(fitted(60))
    batch = products(5)
    stream = msgspec.structs.replace(batch, variant=Variant(launch="stream"))
    before = Gemm.times(MODEL, stream, DEVICE)
    after = calibrator.times(before, MODEL, stream, DEVICE)
    assert after.estimate_s.tolist() == before.estimate_s.tolist()


def test_features_that_nobody_knows_are_named() -> None:
    offset = fitted(30)
    assert offset.interpolation is not None
    strange = msgspec.structs.replace(
        offset.interpolation, trend={"constant": 0.0, "marvel:x": 0.1}
    )
    calibrator = ready(msgspec.structs.replace(offset, interpolation=strange))
    batch = products(3)
    with pytest.raises(SilicastError, match="marvel") as caught:
        calibrator.times(Gemm.times(MODEL, batch, DEVICE), MODEL, batch, DEVICE)
    assert "silicast calibrate" in caught.value.hint
