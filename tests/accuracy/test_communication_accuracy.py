"""How far collectives are from what was measured, on rows that nothing was fitted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silicast.hardware.catalog import find_device
from silicast.validation.scorecard.collectives import LONG, read_collectives
from silicast.validation.scorecard.held_out import constants_without, held_out
from silicast.validation.scorecard.suite import Scored, suites


@pytest.fixture(scope="module")
def metrics(data: Path) -> dict[str, Scored]:
    return {scored.metric: scored for scored in suites()["communication"].score(data)}


@pytest.fixture(scope="module")
def scored(metrics: dict[str, Scored]) -> Scored:
    return metrics["latency_us"]


def mape(scored: Scored, predicted: np.ndarray, rows: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted[rows] / scored.measured[rows] - 1.0)) * 100.0)


def coverage(scored: Scored) -> float:
    return float(((scored.measured >= scored.p05) & (scored.measured <= scored.p95)).mean())


@pytest.mark.data
@pytest.mark.parametrize(
    ("device", "regime", "limit"),
    [
        ("H200", "nccl graph", 6.0),
        ("GB200", "nccl graph", 8.0),
        ("H100", "nccl graph", 6.0),
        ("A100", "nccl graph", 7.0),
        ("B200", "nccl graph", 7.0),
        ("H20", "nccl torch", 4.0),
        ("H800", "nccl torch", 5.0),
        ("H200", "sglang graph", 6.0),
        ("H200", "vllm graph", 6.0),
        ("GB200", "vllm graph", 11.0),
        ("H200", "trtllm graph", 8.0),
    ],
)
def test_unseen_sizes_by_device(scored: Scored, device: str, regime: str, limit: float) -> None:
    rows = (scored.groups["device"] == device) & (scored.groups["regime"] == regime)
    assert rows.sum() > 40
    assert mape(scored, scored.estimate, rows) < limit


@pytest.mark.data
def test_every_device_beats_the_baselines(scored: Scored) -> None:
    baseline = scored.baselines["alpha-beta"]
    for device in np.unique(scored.groups["device"]):
        rows = scored.groups["device"] == device
        ours = mape(scored, scored.estimate, rows)
        assert ours < mape(scored, baseline, rows), device
        assert scored.roofline is not None
        assert ours < mape(scored, scored.roofline, rows), device


@pytest.mark.data
@pytest.mark.parametrize("metric", ["latency_us", "long_us", "unmeasured_us"])
def test_intervals_hold_what_they_promise(metrics: dict[str, Scored], metric: str) -> None:
    assert 0.84 <= coverage(metrics[metric]) <= 0.97


@pytest.mark.data
def test_nothing_was_measured_below_its_bound(scored: Scored) -> None:
    assert scored.roofline is not None
    assert (scored.roofline < scored.measured).all()


@pytest.mark.data
def test_the_sides_of_the_split_share_no_point(data: Path) -> None:
    rows = read_collectives(data, thin=400)
    keys = np.array(
        ["|".join(map(str, key)) for key in zip(
            rows.device, rows.op, rows.gpus, rows.size, strict=True)]
    )  # fmt: skip
    assert not set(keys[rows.fitted]) & set(keys[~rows.fitted])
    scored = suites()["communication"].score(data)[0]
    assert len(scored.measured) == int((~read_collectives(data).fitted).sum())


@pytest.mark.data
def test_long_messages_are_eight_times_those_learned_from(data: Path) -> None:
    rows = read_collectives(data, thin=400)
    long = rows.is_long()
    for device in np.unique(rows.device):
        for launch in np.unique(rows.launch):
            mine = (rows.device == device) & (rows.launch == launch) & (rows.op == "all_reduce")
            mine &= (rows.library == "nccl") & (rows.gpus == 2)
            if mine.any():
                largest = rows.size[mine].max()
                assert rows.size[mine & ~long].max() * LONG <= largest


def test_constants_held_out_know_nothing_of_their_architecture() -> None:
    bodies = held_out("communication")
    for architecture in bodies:
        physics = constants_without("communication", architecture)
        assert not physics.is_measured(architecture)
        assert architecture not in physics.fallback.values()
    assert {find_device(name).architecture for name in ("A100", "H200", "GB200", "L40S")} == set(
        bodies
    )
