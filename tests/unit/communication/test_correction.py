"""Learned corrections of collectives: where they speak, where they fade, and what they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.scorecard.collective_training import MeasuredCalls, train_collectives
from silicast.communication.collective import (
    CollectiveTimes,
    _shipped_model,
    analytic_model,
    collective_times,
    link_bound,
)
from silicast.communication.correction import GRID, CorrectedCurve, growing, shipped_curve
from silicast.communication.features import (
    MEBIBYTES,
    SCALARS,
    CollectiveCall,
    for_trees,
    is_short,
    names_of,
    strange,
    table,
)
from silicast.communication.selection import Selection
from silicast.communication.topology import Topology
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.hardware.device import Link
from silicast.kernels.physics.constants import load_physics
from silicast.learning.boosting import Settings

H100 = find_device("H100")
MODEL = analytic_model(load_physics("communication"))
SIZES = np.array([1 << k for k in range(9, 31)])


def call(gpus: int = 8, library: str = "nccl", version: str = "") -> CollectiveCall:
    return CollectiveCall("all_reduce", Topology.from_device(H100, gpus), library, version=version)


def times(size: I64 = SIZES, gpus: int = 8, **other: object) -> CollectiveTimes:
    return collective_times("all_reduce", size, gpus, H100, "nccl", **other)  # type: ignore[arg-type]


def test_learned_times_are_another_tier() -> None:
    learned, plain = times(), times(learned=False)
    assert set(learned.tiers()) == {"cross-device"}
    assert set(plain.tiers()) == {"analytic"}
    assert plain.learned is None
    assert learned.analytic_s is not None
    assert (learned.analytic_s == plain.estimate_s).all()
    assert (learned.estimate_s != plain.estimate_s).any()
    assert (learned.p95_s / learned.estimate_s < plain.p95_s / plain.estimate_s).any()


def test_learned_times_stay_near_the_analytic_ones() -> None:
    learned = times()
    assert learned.analytic_s is not None
    ratio = learned.estimate_s / learned.analytic_s
    assert ratio.min() > 0.5
    assert ratio.max() < 2.0


def test_given_constants_are_not_corrected_by_what_others_taught() -> None:
    assert times(physics=load_physics("communication")).learned is None


def test_nothing_was_learned_between_nodes_or_of_more_devices() -> None:
    apart = Topology.from_device(H100, 16, inter=Link("network", 50e9))
    assert collective_times("all_reduce", SIZES, 16, apart, "nccl").learned is None
    wide = Topology.from_device(H100, 64, gpus_per_node=64)
    assert collective_times("all_reduce", SIZES, 64, wide, "nccl").learned is None


def test_an_architecture_without_rows_is_not_corrected() -> None:
    for name in ("V100", "RTX PRO 6000"):
        result = collective_times("all_reduce", SIZES, 2, find_device(name), "nccl")
        assert set(result.tiers()) == {"analytic"}


def test_a_device_that_was_not_measured_is_in_more_doubt() -> None:
    other = replace(H100, name="another Hopper")
    known, unknown = times(), collective_times("all_reduce", SIZES, 8, other, "nccl")
    assert (unknown.p95_s / unknown.estimate_s > known.p95_s / known.estimate_s).all()


def test_a_release_that_is_not_named_is_in_more_doubt() -> None:
    named, blank = (
        collective_times("all_reduce", SIZES[:8], 8, H100, "sglang", "eager", version=version)
        for version in ("0.5.14", "")
    )
    assert (blank.independent_log_sd > named.independent_log_sd).all()


def test_longer_messages_than_measured_keep_the_share_of_the_link() -> None:
    size = np.array([1 << 33, 1 << 36, 1 << 39])
    result = times(size)
    assert result.estimate_s[1] / result.estimate_s[0] == pytest.approx(8.0, rel=0.05)
    assert result.estimate_s[2] / result.estimate_s[1] == pytest.approx(8.0, rel=0.05)
    assert (np.diff(result.independent_log_sd) > 0.0).all(), "further from what was measured"


def test_sizes_between_the_grid_lie_between() -> None:
    here = np.flatnonzero((GRID >= 1 << 20) & (GRID <= 1 << 28))
    middle = (GRID[here] + GRID[here + 1]) // 2
    low, mid, high = (times(size).estimate_s for size in (GRID[here], middle, GRID[here + 1]))
    assert (low <= mid).all()
    assert (mid <= high).all()


def corrected_s(
    curve: CorrectedCurve, size: int, rule: int, analytic_s: float
) -> tuple[float, float]:
    """Time and weight at one size, looked up on the grid: a line within a kernel, else the factor
    of the side that the library's rule is of.
    """
    grid = GRID.tolist()
    left = max([n for n, each in enumerate(grid) if each <= size], default=0)
    right = min(left + 1, len(grid) - 1)
    time, weight = curve.time_s, curve.weight
    if size == 0:
        return 0.0, float(weight[left]) if curve.rule[left] == rule else 0.0
    if left < right and size >= grid[left] and curve.joined[left]:
        share = (size - grid[left]) / (grid[right] - grid[left])
        return float(time[left] * (1 - share) + time[right] * share), float(weight[left])
    for side in (left, right):
        if curve.rule[side] == rule:
            return float(analytic_s * time[side] / curve.analytic_s[side]), float(weight[side])
    return analytic_s, 0.0


@pytest.mark.parametrize("seed", range(5))
def test_a_size_takes_the_line_within_a_kernel_and_else_the_factor_of_its_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = len(GRID)
    taught = shipped_curve(call(), _shipped_model)
    assert taught is not None
    rule = np.sort(rng.integers(0, 30, points))
    result = replace(
        taught, time_s=rng.uniform(1.0, 2.0, points), analytic_s=rng.uniform(1.0, 2.0, points),
        weight=rng.uniform(0.0, 1.0, points), rule=rule, joined=rng.random(points - 1) < 0.5,
    )  # fmt: skip
    edges = [0, 1, int(GRID[0]) - 1, int(GRID[-1]), int(GRID[-1]) * 3, *GRID[:: points // 20]]
    size = np.array([*edges, *np.exp(rng.uniform(0, np.log(GRID[-1]), 300)).astype(np.int64)])
    near = rule[np.clip(np.searchsorted(GRID, size), 0, points - 1)]
    selection = selected(size, near + rng.integers(-1, 2, len(size)))
    times_s, weights = result.at(size, selection)
    for row, each in enumerate(size.tolist()):
        wanted = corrected_s(result, each, selection.rule[row], float(selection.time_s[row]))
        assert (times_s[row], weights[row]) == (
            pytest.approx(wanted[0], rel=1e-12), wanted[1]
        ), each  # fmt: skip


def selected(size: I64, rule: I64) -> Selection:
    """Some analytic times of sizes, under given rules."""
    time_s: F64 = 1e-6 + 1e-9 * size.astype(np.float64)
    zeros = np.zeros(len(size))
    return Selection(
        time_s, 0.6 * time_s, np.zeros(len(size), dtype=np.int64), ("ring",), 0.0, rule, rule, zeros
    )


def test_short_is_a_message_whose_time_is_mostly_latency() -> None:
    size = np.array([8, 8, 8])
    result = replace(
        selected(size, size), time_s=np.array([4.0, 4.0, 4.0]), latency_s=np.array([1.9, 2.0, 2.1])
    )
    assert is_short(result).tolist() == [False, False, True]


def test_growing_keeps_what_grows_and_starts_anew_at_a_gap() -> None:
    rising = np.array([1.0, 2.0, 4.0])
    assert (growing(rising, np.array([True, True])) == rising).all()
    fallen = np.array([2.0, 1.0, 4.0])
    assert growing(fallen, np.array([True, True])).tolist() == [1.5, 1.5, 4.0]
    assert (growing(fallen, np.array([False, True])) == fallen).all()


def test_features_are_bounded_and_say_no_size_beyond_the_longest() -> None:
    names = names_of([(call(), MODEL(call(), SIZES)[0])])
    size = np.array([1, 1 << 10, 1 << 36, 1 << 40])
    selection, bound = MODEL(call(), size)
    seen = for_trees(table(call(), size, selection, bound, names))
    assert (seen >= 0.0).all()
    assert not seen[MEBIBYTES].any()
    assert (table(call(), size, selection, bound, names)[MEBIBYTES] * 2**20 == size).all()
    shares = seen[: SCALARS.index("gpus")]
    assert (np.abs(shares[:, 3] / shares[:, 2] - 1.0) < 0.01).all()


def test_kinds_of_calls_without_a_mark_are_strange() -> None:
    names = names_of([(call(), MODEL(call(), SIZES)[0])])
    other = CollectiveCall("all_gather", Topology.from_device(H100, 8))
    assert strange(other, MODEL(other, SIZES)[0], names).all()
    released = call(version="2.29")
    assert not strange(released, MODEL(released, SIZES)[0], names).any(), "a release may be new"


def test_training_finds_a_factor_that_depends_on_the_size() -> None:
    size = np.unique(np.geomspace(512, 1 << 30, 400).astype(np.int64))
    selection, bound = MODEL(call(), size)
    truth = np.maximum(selection.time_s, bound) * np.where(size < 1 << 20, 1.3, 1.1)
    part = MeasuredCalls(call(), size, truth, np.arange(400) % 2 == 0, np.arange(400) % 3)
    described, arrays = train_collectives([part], MODEL, Settings(trees=100, depth=3, prior=1.0))
    assert [one.key for one in described] == ["graph.hopper"]
    assert described[0].scores["learned"] < 0.2 * described[0].scores["analytic"]
    assert described[0].devices == [H100.name]
    assert arrays["graph.hopper"].ranges.shape == (len(described[0].features), 2)


def test_never_below_the_bound() -> None:
    result = times()
    assert (
        result.estimate_s >= link_bound("all_reduce", SIZES * 1.0, Topology.from_device(H100, 8))
    ).all()
