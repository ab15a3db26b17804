"""How far collectives are from what was measured, on rows that nothing was fitted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.scorecard.collectives import LONG, read_collectives
from lab.scorecard.collectives_between import read_multinode
from lab.scorecard.held_out import collectives_without, constants_without, held_out
from lab.scorecard.suite import Scored, suites
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics


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
@pytest.mark.parametrize("metric", ["latency_us", "long_us", "unseen_device_us", "unmeasured_us"])
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


@pytest.fixture(scope="module")
def between(data: Path) -> Scored:
    return suites()["collectives-multinode"].score(data)[0]


@pytest.mark.data
def test_a_provider_that_was_held_out_is_near_and_beats_every_line(between: Scored) -> None:
    every = np.ones(len(between.measured), dtype=bool)
    off = np.abs(between.estimate / between.measured - 1.0)
    assert float(np.median(off)) <= 0.20
    assert float(np.mean(off)) <= 0.30
    for line in between.baselines.values():
        assert mape(between, between.estimate, every) < mape(between, line, every)
    assert 0.84 <= coverage(between) <= 0.97
    assert between.roofline is not None
    assert (between.roofline < between.measured).all()


@pytest.mark.data
def test_nodes_are_told_from_devices_and_repeats_count_once(data: Path) -> None:
    rows = read_multinode(data)
    assert (rows.nodes > 1).all()
    keys = list(zip(rows.run, rows.device, rows.op, rows.gpus, rows.forced, rows.size,
                    rows.network, strict=True))  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert set(rows.forced) == {"", "ring", "tree"}
    assert set(rows.nodes[rows.provider == "BSC"]) == {4, 8, 16, 32, 64}


def test_networks_held_out_know_nothing_of_kinds_that_only_their_provider_has() -> None:
    assert not constants_without("network", "AWS").is_measured("efa")
    assert not constants_without("network", "GCP").is_measured("tcpx")
    assert constants_without("network", "Nebius").is_measured("infiniband")


def test_devices_held_out_alone_keep_their_sisters() -> None:
    for device, physics in collectives_without().items():
        architecture = find_device(device).architecture
        constants, whole = physics.constants(architecture), load_physics("communication")
        assert physics.is_measured(architecture)
        assert constants != whole.constants(architecture)
