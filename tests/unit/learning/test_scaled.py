"""Measured on one device, wanted on another: more holds between sisters than between strangers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from silicast.core.calibration import FORMAT, Calibration, Offset, Scope
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.products.gemm import Gemm
from silicast.learning.calibration import Calibrator
from silicast.learning.correction import learned_times
from silicast.learning.scaled import ScaledCalibrator, alike
from silicast.workload.graphs.op import OpBatch, Variant

CARRIED = load_physics("calibration").default["carried_other"]
"""Share of an error that carries over to other architectures, as it was fitted."""
SIZES = np.array([1, 16, 128, 1024, 4096], dtype=np.int64)
BATCH = OpBatch("gemm", Variant(), dict.fromkeys(("m", "n", "k"), SIZES))


def scaled(have: str, offset: float, log_sd: float = 0.03) -> ScaledCalibrator:
    calibration = Calibration(FORMAT, Scope(have), [Offset("gemm", offset, log_sd, 50)])
    return ScaledCalibrator(Calibrator(calibration), find_device(have))


def moved(have: str, wanted: str, offset: float) -> np.ndarray:
    model, device = Gemm(), find_device(wanted)
    before = learned_times(model, BATCH, device)
    after = scaled(have, offset).times(before, model, BATCH, device)
    sisters = find_device(have).architecture == device.architecture
    carried = sisters or CARRIED > 0.0
    assert after.tiers() == (["scaled"] * len(SIZES) if carried else before.tiers())
    assert (after.p05_s <= after.estimate_s).all()
    assert (after.estimate_s <= after.p95_s).all()
    assert (after.bound_s <= after.p05_s).all()
    return np.log(after.estimate_s / before.estimate_s)


def test_sisters_share_most_of_it_strangers_next_to_nothing() -> None:
    sister, stranger = moved("H100", "H200-SXM", 0.3), moved("A100", "H200-SXM", 0.3)
    assert (sister > 0.15).all()
    assert (sister < 0.3).all()
    assert (stranger <= CARRIED * 0.3).all()
    assert CARRIED < 0.15


@pytest.mark.parametrize("wanted", ["H200-SXM", "B200", "A100", "L40S"])
def test_nothing_measured_off_changes_nothing(wanted: str) -> None:
    assert moved("H100", wanted, 0.0) == pytest.approx(0.0, abs=1e-12)


def test_it_is_never_surer_than_what_was_measured() -> None:
    model, device = Gemm(), find_device("H200-SXM")
    before = learned_times(model, BATCH, device)
    after = scaled("H100", 0.1, log_sd=0.5).times(before, model, BATCH, device)
    known = math.fsum(value**2 for value in before.shared_log_sd.values())
    assert (after.independent_log_sd <= np.sqrt(known + before.independent_log_sd**2) + 1e-12).all()


def test_alike_is_one_with_itself_only() -> None:
    model = Gemm()
    one = model.times(BATCH, find_device("H100")).analysis
    other = model.times(BATCH, find_device("L40S")).analysis
    assert alike(one, one) == pytest.approx(1.0)
    assert (alike(one, other) < 1.0).all()
    assert alike(one, other) == pytest.approx(alike(other, one))


def test_in_any_batch_to_the_bit() -> None:
    model, device = Gemm(), find_device("H200-SXM")
    many = OpBatch("gemm", Variant(), {name: np.tile(SIZES, 40) for name in ("m", "n", "k")})
    changed = scaled("H100", 0.3)
    whole = changed.times(learned_times(model, many, device), model, many, device)
    few = changed.times(learned_times(model, BATCH, device), model, BATCH, device)
    assert whole.estimate_s[: len(SIZES)].tobytes() == few.estimate_s.tobytes()
