"""Designed sweeps: what they choose, and that nothing stops them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.learning.dispatch import time_of
from silicast.measurement.benches.ranges import Ranges, Size
from silicast.measurement.design.candidates import candidates_from
from silicast.measurement.design.design import HOPELESS, REPEAT_EVERY, MeasurementDesign, usual_cost
from silicast.measurement.design.points import (
    PointCovariance,
    PointDesign,
    Points,
    ProcessParameters,
)
from silicast.measurement.records.records import Columns
from silicast.scenario.kernels.kernel_case import kernel_case

DEVICE = find_device("H100")
PRODUCTS = Ranges(
    "gemm",
    {"m": Size(1, 8192), "n": Size(64, 16_384, multiple=64), "k": Size(64, 16_384, multiple=64)},
    {"dtype": ("bf16", "fp32"), "library": (None, "torch")},
)
CANDIDATES = candidates_from(PRODUCTS, 300, 0)


def took(kernel: Columns) -> float:
    """A device on which few rows are slow; microseconds."""
    known = time_of(kernel_case(kernel).op, DEVICE).estimate_s * 1e6
    return known * math.exp(0.3 * math.sin(math.log(kernel["m"])))


def swept(design: MeasurementDesign, count: int) -> list[Columns]:
    columns = []
    for _ in range(count):
        kernel = design.next()
        if kernel is None:
            break
        design.tell(kernel, took(kernel))
        columns.append(kernel)
    return columns


def test_the_same_results_give_the_same_sweep() -> None:
    one, other = (swept(MeasurementDesign(DEVICE, CANDIDATES, 3), 40) for _ in range(2))
    assert one == other


def test_asking_twice_gives_the_same_kernel_and_repeats_are_rare() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES)
    assert design.next() == design.next()
    count = 2 * REPEAT_EVERY + 4
    chosen = swept(design, count)
    again = [n for n in Counter(kernel_case(k).op for k in chosen).values() if n > 1]
    assert 1 <= sum(n - 1 for n in again) <= 2 * count // REPEAT_EVERY
    assert sum(design.rows.values()) == count


def test_every_format_is_measured_before_any_is_measured_much() -> None:
    some = [kernel for kernel in CANDIDATES if kernel["dtype"] == "bf16"]
    some += [kernel for kernel in CANDIDATES if kernel["dtype"] == "fp32"][:20]
    design = MeasurementDesign(DEVICE, some)
    swept(design, 16)
    assert design.rows == {"gemm bf16": 8, "gemm fp32": 8}


def test_what_matters_more_gets_more_rows() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES, weights={"gemm fp32": 20.0})
    swept(design, 60)
    assert design.rows["gemm fp32"] > 1.5 * design.rows["gemm bf16"]


def test_dear_kernels_are_measured_where_they_are_worth_it() -> None:
    def dear(seconds: F64) -> F64:
        return 1e-3 + 1000.0 * seconds

    def same(seconds: F64) -> F64:
        return np.ones_like(seconds)

    spent = {}
    for name, cost in (("dear", dear), ("same", same)):
        chosen = swept(MeasurementDesign(DEVICE, CANDIDATES, cost=cost), 50)
        spent[name] = sum(took(kernel) for kernel in chosen)
    assert spent["dear"] < 0.3 * spent["same"]


def test_the_budget_is_kept() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES, budget_s=3.0)
    chosen = swept(design, 1000)
    spent = sum(float(usual_cost(np.array([took(k) * 1e-6]))[0]) for k in chosen)
    assert 0.5 < spent / 3.0 < 1.3
    assert design.next() is None


def test_every_candidate_is_measured_in_the_end() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES[:30])
    chosen = {kernel_case(kernel).op for kernel in swept(design, 100)}
    assert chosen == {kernel_case(kernel).op for kernel in CANDIDATES[:30]}
    assert design.next() is None


def test_failures_are_not_tried_again() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES)
    kernel = design.next()
    assert kernel is not None
    design.failed(kernel)
    remaining = swept(design, 400)
    assert kernel not in remaining
    assert len({kernel_case(k).op for k in remaining}) == len(CANDIDATES) - 1


def test_what_is_as_large_as_what_did_not_fit_is_not_tried() -> None:
    sizes = [{"op": "gemm", "m": m, "n": n, "k": 64, "dtype": "bf16"}
             for m in (64, 128, 256) for n in (64, 128, 256)]  # fmt: skip
    design = MeasurementDesign(DEVICE, sizes)
    design.failed({**sizes[0], "m": 128, "n": 128}, "out_of_memory")
    remaining = {(kernel["m"], kernel["n"]) for kernel in swept(design, 100)}
    assert remaining == {(m, n) for m in (64, 128, 256) for n in (64, 128, 256) if min(m, n) < 128}


def test_a_variant_that_never_succeeds_is_given_up() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES)
    failed = 0
    chosen = []
    while (kernel := design.next()) is not None:
        if "library" in kernel:
            design.failed(kernel, "unsupported")
            failed += 1
        else:
            design.tell(kernel, took(kernel))
            chosen.append(kernel)
    assert failed <= 2 * HOPELESS  # of each format
    assert len({kernel_case(k).op for k in chosen}) == sum("library" not in k for k in CANDIDATES)


def test_rows_measured_before_count_though_they_are_no_candidates() -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES)
    other = {"op": "gemm", "m": 77, "n": 64, "k": 64, "dtype": "bf16"}
    design.tell(other, took(other))
    foreign = {"op": "rmsnorm", "tokens": 8, "hidden": 4096}
    design.tell(foreign, 5.0)
    assert design.rows == {"gemm bf16": 1, "gemm fp32": 0, "rmsnorm bf16": 1}
    first = design.next()
    assert first is not None
    assert first["op"] == "gemm"
    assert other not in swept(design, 50)


def test_kernels_that_nothing_predicts_are_taken_in_their_order() -> None:
    # T4 computes no bf16: its predictions are refused, PyTorch may run it all the same
    some = [kernel for kernel in CANDIDATES if kernel["dtype"] == "bf16"][:12]
    design = MeasurementDesign(find_device("T4"), some)
    chosen: list[Any] = []
    while (kernel := design.next()) is not None:
        design.tell(kernel, 10.0)
        chosen.append(kernel)
    assert chosen == some


@pytest.mark.parametrize("latency_us", [0.0, -1.0, math.nan, math.inf])
def test_no_time_is_refused(latency_us: float) -> None:
    design = MeasurementDesign(DEVICE, CANDIDATES[:5])
    with pytest.raises(SilicastError, match="above 0"):
        design.tell(CANDIDATES[0], latency_us)


def test_no_candidates_give_no_kernel() -> None:
    assert MeasurementDesign(DEVICE, []).next() is None


def _line(count: int) -> Points:
    """Points on a line, the trend a constant."""
    where = np.linspace(0.0, 20.0, count).reshape(1, -1)
    return Points(where, np.ones((1, count)), np.ones(count), np.ones(count))


def test_too_many_candidates_are_drawn_from_by_the_seed() -> None:
    chosen: dict[int, tuple[int, ...]] = {}
    for seed in (0, 0, 1):
        design = PointDesign(_line(3000), seed)
        for _ in range(12):
            best = design.best()
            assert best is not None
            design.tell(best.place, 0.1)
        assert chosen.setdefault(seed, design.rows) == design.rows
    assert chosen[0] != chosen[1]


def test_the_first_points_on_a_line_are_its_middle_and_its_halves() -> None:
    design = PointDesign(_line(101))
    chosen = []
    for _ in range(3):
        best = design.best()
        assert best is not None
        chosen.append(best.place)
        design.tell(best.place, 0.0)
    assert 30 <= chosen[0] <= 70
    assert min(chosen) < 35
    assert max(chosen) > 65


def test_points_crowd_where_errors_are_large() -> None:
    points, inside = _line(400), {True: 0, False: 0}
    for seed in range(3):
        random = np.random.default_rng(seed)
        rough = 0.5 * random.standard_normal(400) * (np.arange(400) >= 300)
        for local in (True, False):
            design = PointDesign(points, local=local)
            for _ in range(80):
                best = design.best()
                assert best is not None
                design.tell(best.place, float(rough[best.place]))
            inside[local] += sum(row >= 300 for row in design.rows)
    assert inside[True] > 1.2 * inside[False]


def test_what_is_left_open_is_what_a_whole_fit_leaves() -> None:
    points = _line(30)
    law = ProcessParameters.prior(points)
    positions, rows = np.arange(30), np.array([3, 11, 25])
    stepwise = PointCovariance(points, law, positions, rows[:1])
    for position in rows[1:].tolist():
        stepwise.measured(position)
    whole = PointCovariance(points, law, positions, rows)
    current = law.covariance(points, rows, rows) + law.noise**2 * np.eye(3)
    shared = law.covariance(points, rows, positions)
    exact = law.covariance(points, positions, positions) - shared.T @ np.linalg.solve(
        current, shared
    )
    for items in (stepwise, whole):
        np.testing.assert_allclose(items.all(positions), exact, atol=1e-9)
        np.testing.assert_allclose(items.variance, np.diag(exact), atol=1e-9)
        np.testing.assert_allclose(items.covariance(7), exact[7], atol=1e-9)
