"""Other ways to predict a kernel: what their laws say where one can tell."""

from __future__ import annotations

import numpy as np
import pytest

from lab.scorecard.baselines.neusight import NeuSight
from lab.scorecard.baselines.raw_shapes import RawShapes
from lab.scorecard.baselines.throughput import Throughput
from lab.scorecard.baselines.wave_scaling import WaveScaling
from lab.scorecard.rows import MeasuredRows
from silicast.hardware.catalog import find_device
from silicast.kernels.products.gemm import Gemm
from silicast.workload.graphs.op import OpBatch, Variant

MODEL = Gemm()
SLOWER = 1.3


def rows(
    device: str = "H100",
    first: int = 64,
    step: int = 64,
    count: int = 80,
    library: str = "",
    cache: str = "",
) -> MeasuredRows:
    """Products that take :data:`SLOWER` times their bound."""
    m = first + step * np.arange(count, dtype=np.int64)
    dims = {"m": m, "n": np.full(count, 4096), "k": np.full(count, 4096)}
    batch = OpBatch("gemm", Variant("bf16", library=library, cache=cache), dims)
    seconds = SLOWER * MODEL.times(batch, find_device(device)).bound_s
    return MeasuredRows(batch, device, seconds, np.zeros(count, dtype=np.bool_))


def test_throughput_of_equal_kernels_is_theirs_between_measured_sizes() -> None:
    between = rows(first=96, count=60)
    assert Throughput(MODEL, [rows()]).seconds(between) == pytest.approx(between.seconds, rel=1e-6)


def test_throughput_rests_on_all_parts_of_a_configuration() -> None:
    low, high = rows(count=40), rows(first=64 + 40 * 64, count=40)
    whole = Throughput(MODEL, [rows()]).seconds(high)
    assert Throughput(MODEL, [low, high]).seconds(high) == pytest.approx(whole)


def test_throughput_has_no_answer_for_what_was_not_measured() -> None:
    other = rows(library="vllm", count=8)
    assert np.isnan(Throughput(MODEL, [rows()]).seconds(other)).all()


def test_wave_scaling_on_the_same_device_is_what_was_measured() -> None:
    known = WaveScaling(MODEL, [rows()])
    assert known.reach([rows(count=100)]) == 80
    seconds = known.seconds(rows(count=100))
    assert seconds[:80] == pytest.approx(rows().seconds)
    assert np.isnan(seconds[80:]).all()


def test_wave_scaling_counts_the_quickest_of_equal_sizes() -> None:
    slow = rows()
    slow = MeasuredRows(slow.batch, slow.device, 2.0 * slow.seconds, slow.held_out)
    seconds = WaveScaling(MODEL, [slow, rows()]).seconds(rows())
    assert seconds == pytest.approx(rows().seconds)


def test_wave_scaling_follows_bandwidth_where_memory_decides() -> None:
    few = rows(first=1, step=1, count=8, cache="cold")
    wanted = MeasuredRows(few.batch, "H200", few.seconds, few.held_out)
    h100, h200 = (find_device(name).dram.bandwidth_bytes_per_s for name in ("H100", "H200"))
    seconds = WaveScaling(MODEL, [few]).seconds(wanted)
    fills = [
        MODEL.times(few.batch, find_device(name)).analysis.demand.occupancy
        for name in ("H100", "H200")
    ]
    same = fills[0] == fills[1]  # where both boards run as many blocks a core
    assert same.sum() >= 6
    assert seconds[same] == pytest.approx((few.seconds * h100 / h200)[same], rel=0.05)


@pytest.mark.parametrize("way", [NeuSight, RawShapes])
def test_what_learns_finds_a_regular_law(way: type[NeuSight] | type[RawShapes]) -> None:
    seen = rows(step=32, count=240)
    seconds = way(MODEL, [seen]).seconds(seen)
    assert np.abs(seconds / seen.seconds - 1.0).mean() < 0.1


@pytest.mark.parametrize("way", [NeuSight, RawShapes])
def test_what_learns_repeats_itself(way: type[NeuSight] | type[RawShapes]) -> None:
    first, second = (way(MODEL, [rows()]).seconds(rows(count=5)) for _ in range(2))
    assert (first == second).all()
