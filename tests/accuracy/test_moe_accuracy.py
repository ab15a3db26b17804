"""Layers of experts against held-out measurements: figures, baselines, intervals, bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.rows import MeasuredRows, held_out
from lab.scorecard.suite import Scored, suites
from lab.scorecard.suites.moe import (
    layer_held_out,
    layer_rows,
    pipeweave_rows,
    problem_held_out,
    shape_held_out,
    thinned,
    unseen_shapes,
)

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def scored(data: Path) -> list[Scored]:
    return suites()["moe"].score(data, limit=3000)


@pytest.fixture(scope="module")
def layers(data: Path) -> list[MeasuredRows]:
    return layer_rows(data)


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


def test_bounds_are_honest(layers: list[MeasuredRows]) -> None:
    """Hardly a measurement is below its bound: clocks and skewed draws leave 1 in 500."""
    below = rows = 0
    for part in thinned(layers, 40):
        bound = part.model.times(part.batch, part.hardware).bound_s
        below += int((bound > part.seconds).sum())
        rows += len(part)
    assert rows > 5000
    assert below <= rows / 500


def test_what_is_held_out_is_held_out_everywhere(data: Path, layers: list[MeasuredRows]) -> None:
    fitted = held_out(layers, False)
    assert fitted
    assert not any(layer_held_out(part.batch.dims).any() for part in fitted)
    assert not any(shape_held_out(part.batch.dims).any() for part in fitted)
    first = held_out(pipeweave_rows(data), False)
    assert first
    assert not any(problem_held_out(part.batch.dims).any() for part in first)


def test_shares_and_problems_that_are_scored_are_of_known_layers(
    data: Path, layers: list[MeasuredRows]
) -> None:
    shapes, problems = unseen_shapes(layers), unseen_shapes(pipeweave_rows(data))
    assert shapes
    assert problems
    for part in shapes:
        assert not layer_held_out(part.batch.dims).any()
        assert shape_held_out(part.batch.dims).all()
    for part in problems:
        assert not layer_held_out(part.batch.dims).any()
        assert problem_held_out(part.batch.dims).all()
