"""Layers of experts against held-out measurements: figures, baselines, intervals, bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.kernels.moe import Moe
from silicast.validation.suite import Scored, suites
from silicast.validation.suites._moe_rows import (
    aic_rows,
    layer_held_out,
    pipeweave_rows,
    problem_held_out,
    shape_held_out,
)
from silicast.workload.op import OpBatch

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def scored(data: Path) -> list[Scored]:
    return suites()["moe"].score(data, limit=3000)


def best_constant(roofline: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The roofline times the constant with the least mean error on these very rows."""
    ratio = roofline / measured
    constants = np.exp(np.linspace(-1.0, 3.0, 161))
    errors = [float(np.mean(np.abs(ratio * constant - 1.0))) for constant in constants]
    best: np.ndarray = roofline * constants[int(np.argmin(errors))]
    return best


CAMPAIGNS_NOBODY_FITTED = {"wide_trtllm_us": 0.8, "wide_shared_us": 0.4}
"""Lowest coverage; the second is 72 rows of one MLP, of three kernels with shared errors."""


WITHOUT_ITS_DEVICES = "w13_device_us"
"""A constant fitted to a device's own rows is no match for what never saw the device."""


def test_beats_roofline_with_one_constant_on_every_device(scored: list[Scored]) -> None:
    for part in scored:
        if part.metric == WITHOUT_ITS_DEVICES:
            continue
        assert part.roofline is not None
        for device in np.unique(part.groups["device"]):
            mine = part.groups["device"] == device
            measured = part.measured[mine]
            ours = float(np.mean(np.abs(part.estimate[mine] / measured - 1.0)))
            plain = best_constant(part.roofline[mine], measured)
            theirs = float(np.mean(np.abs(plain / measured - 1.0)))
            assert ours < theirs, f"{part.metric} on {device}: {ours:.3f} against {theirs:.3f}"


def test_intervals_cover(scored: list[Scored]) -> None:
    for part in scored:
        inside = (part.p05 <= part.measured) & (part.measured <= part.p95)
        lowest = CAMPAIGNS_NOBODY_FITTED.get(part.metric, 0.85)
        assert lowest <= float(inside.mean()) <= 0.99, part.metric


def test_bounds_are_honest(data: Path) -> None:
    """Hardly a measurement is below its bound: clocks and skewed draws leave 1 in 500."""
    below = rows = 0
    for part in aic_rows(data, 40):
        bound = Moe().times(OpBatch("moe", part.variant, part.dims), find_device(part.device))
        below += int((bound.bound_s > part.seconds).sum())
        rows += len(part)
    assert rows > 5000
    assert below <= rows / 500


def test_what_is_held_out_is_held_out_everywhere(data: Path) -> None:
    fitted = aic_rows(data, 30, held_out=False)
    assert fitted
    assert not any(layer_held_out(part.sizes).any() for part in fitted)
    assert not any(shape_held_out(part.sizes).any() for part in fitted)
    first = pipeweave_rows(data, 100, held_out=False)
    assert first
    assert not any(problem_held_out(part.sizes).any() for part in first)


def test_shares_and_problems_that_are_scored_are_of_known_layers(data: Path) -> None:
    shapes = aic_rows(data, 30, held_out=True, known_layer=True)
    problems = pipeweave_rows(data, 100, held_out=True, known_layer=True)
    assert shapes
    assert problems
    for part in shapes:
        assert not layer_held_out(part.sizes).any()
        assert shape_held_out(part.sizes).all()
    for part in problems:
        assert not layer_held_out(part.sizes).any()
        assert problem_held_out(part.sizes).all()
