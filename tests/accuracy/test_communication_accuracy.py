"""How far collectives are from what was measured, on rows that no constant was fitted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.validation.collective_rows import HELD_OUT_DEVICES, read_collectives
from silicast.validation.suite import Scored, data_folder, suites


@pytest.fixture(scope="module")
def data() -> Path:
    try:
        return data_folder()
    except SilicastError as error:
        pytest.skip(f"MEASURED DATA ABSENT, accuracy not recomputed: {error}")


@pytest.fixture(scope="module")
def scored(data: Path) -> Scored:
    return suites()["communication"].score(data)[0]


def mape(scored: Scored, predicted: np.ndarray, rows: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted[rows] / scored.measured[rows] - 1.0)) * 100.0)


@pytest.mark.data
@pytest.mark.parametrize(
    ("device", "regime", "limit"),
    [
        ("H200", "nccl graph", 7.0),
        ("GB200", "nccl graph", 9.0),
        ("H100", "nccl graph", 6.0),
        ("A100", "nccl graph", 8.0),
        ("B200", "nccl graph", 7.0),
        ("H20", "nccl torch", 12.0),
        ("H800", "nccl torch", 11.0),
        ("H200", "sglang graph", 7.0),
        ("H200", "vllm graph", 9.0),
        ("H200", "trtllm graph", 10.0),
    ],
)
def test_held_out_error_by_device(scored: Scored, device: str, regime: str, limit: float) -> None:
    rows = (scored.groups["device"] == device) & (scored.groups["regime"] == regime)
    assert rows.sum() > 50
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
def test_intervals_hold_what_they_promise(scored: Scored) -> None:
    inside = (scored.measured >= scored.p05) & (scored.measured <= scored.p95)
    assert 0.85 <= inside.mean() <= 0.97
    held = scored.groups["unseen"] == "device"
    assert 0.85 <= inside[held].mean() <= 0.97


@pytest.mark.data
def test_nothing_was_measured_below_its_bound(scored: Scored) -> None:
    assert scored.roofline is not None
    assert (scored.roofline < scored.measured).all()


@pytest.mark.data
def test_no_row_of_a_held_out_device_is_fitted(data: Path) -> None:
    rows = read_collectives(data, thin=400)
    mine = rows.take(rows.fitted & np.isin(rows.device, HELD_OUT_DEVICES))
    assert set(zip(mine.device, mine.launch, strict=True)) <= {("GB200", "eager")}
    scored = suites()["communication"].score(data)[0]
    assert len(scored.measured) == int((~read_collectives(data).fitted).sum())


@pytest.mark.data
def test_rows_whose_host_was_seen_are_not_called_an_unseen_device(scored: Scored) -> None:
    regimes = scored.groups["regime"]
    grace = (scored.groups["device"] == "GB200") & np.char.endswith(regimes, "eager")
    assert grace.any()
    assert set(scored.groups["unseen"][grace]) == {"device, host seen"}
    assert "device, host seen" not in scored.groups["unseen"][~grace]
