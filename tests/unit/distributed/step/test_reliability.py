from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.distributed.step.reliability import (
    HOUR_S,
    Failures,
    best_interval_s,
    experience,
    published,
    young_interval_s,
)

RUNS = (
    Failures(11136.0, 30.0, 900.0, 797.0),
    Failures(500.0, 50.0, 200.0, 190.0),
    Failures(2000.0, 1.0, 10.0, 5000.0),
    Failures(3600.0, 60.0, 0.0, 600.0),
)


@pytest.mark.parametrize("run", RUNS)
def test_what_is_drawn_agrees_with_the_closed_form(run: Failures) -> None:
    useful = 100 * run.interval_s
    drawn = run.drawn_wall_s(useful, trials=3000, seed=1)
    error = drawn.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - run.wall_s(useful)) < 4 * error
    assert np.array_equal(drawn, run.drawn_wall_s(useful, trials=3000, seed=1))
    assert drawn.min() >= 100 * (run.interval_s + run.write_s) * (1 - 1e-12)


@pytest.mark.parametrize("run", RUNS)
def test_losses_add_up(run: Failures) -> None:
    assert sum(run.losses.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(share >= 0 for share in run.losses.values())
    assert run.losses["useful"] == run.goodput


@given(
    mtbf=st.floats(100, 1e6), write=st.floats(0.1, 500), restart=st.floats(0, 2000),
    other=st.floats(0.2, 5),
)  # fmt: skip
def test_no_other_interval_is_better(
    mtbf: float, write: float, restart: float, other: float
) -> None:
    best = best_interval_s(write, mtbf)
    run = Failures(mtbf, write, restart, best)
    assert 0 < run.goodput <= 1
    assert run.with_interval(best * other).goodput <= run.goodput * (1 + 1e-12)


@given(mtbf=st.floats(1e3, 1e6), share=st.floats(1e-5, 0.05))
def test_short_checkpoints_have_the_intervals_of_young_and_daly(mtbf: float, share: float) -> None:
    best = best_interval_s(share * mtbf, mtbf)
    root = math.sqrt(share / 2.0)  # Daly 2006, equation 37: the same to a higher order
    young = young_interval_s(share * mtbf, mtbf)
    daly = young * (1.0 + root / 3.0 + root * root / 9.0) - share * mtbf
    assert daly == pytest.approx(best, rel=1e-3)
    assert young == pytest.approx(best, rel=0.6 * math.sqrt(share))


@given(
    mtbf=st.floats(100, 1e6), write=st.floats(0, 500), restart=st.floats(0, 2000),
    interval=st.floats(10, 1e4), more=st.floats(1.0, 10.0),
)  # fmt: skip
def test_goodput_falls_with_all_that_goes_wrong(
    mtbf: float, write: float, restart: float, interval: float, more: float
) -> None:
    good = Failures(mtbf, write, restart, interval).goodput
    assert Failures(mtbf / more, write, restart, interval).goodput <= good * (1 + 1e-12)
    assert Failures(mtbf, write * more, restart, interval).goodput <= good * (1 + 1e-12)
    assert Failures(mtbf, write, restart * more, interval).goodput <= good * (1 + 1e-12)
    assert good <= interval / (interval + write) * (1 + 1e-12)


def test_a_run_that_never_fails_only_writes_checkpoints() -> None:
    run = Failures(math.inf, 10.0, 900.0, 90.0)
    assert run.goodput == 0.9
    assert run.drawn_wall_s(900.0, 3).tolist() == [1000.0] * 3
    assert Failures.of_gpus(8, math.inf, 10.0, 900.0).goodput == 1.0


def test_a_run_that_fails_too_often_is_not_drawn() -> None:
    run = Failures(1.0, 0.0, 0.0, 600.0)
    assert 0 <= run.goodput < 1e-200
    with pytest.raises(SilicastError, match="failures are expected, at most 100,000 are drawn"):
        run.drawn_wall_s(1e6)


def test_times_that_are_none_are_refused() -> None:
    for times, text in (
        ((0.0, 1.0, 1.0, 1.0), "mtbf_s: is 0, expected a time above 0"),
        ((1.0, -1.0, 1.0, 1.0), "write_s: is -1, expected a time of 0 or more"),
        ((1.0, math.nan, 1.0, 1.0), "write_s: is nan"),
        ((1.0, 1.0, 1.0, math.inf), "interval_s: is infinite"),
    ):
        with pytest.raises(SilicastError) as caught:
            Failures(*times)
        assert text in str(caught.value)
    with pytest.raises(SilicastError, match="write_s: is 0: there is no best interval"):
        Failures.of_gpus(8, 1e6, 0.0, 1.0)
    with pytest.raises(SilicastError, match="gpus: is 0"):
        Failures.of_gpus(0, 1e6, 1.0, 1.0)


def test_published_runs_say_where_they_are_from() -> None:
    known = experience()
    assert set(known.run) <= set(known.sources)
    assert {f"defaults.{name}" for name in known.defaults.__struct_fields__} <= set(known.sources)
    assert 10_000 < published("opt-175b").mtbf_gpu_s / HOUR_S < 20_000
    with pytest.raises(SilicastError, match="unknown run 'none'"):
        published("none")
    assert known.gpus.slowest(16384).mean > 1.05


def test_missing_replicas_take_their_share_of_the_speed() -> None:
    """8 replicas, a failure every 2 hours, one hour away each: half a replica in the mean."""
    plain = Failures(7200.0, 10.0, 60.0, 600.0)
    elastic = replace(plain, repair_s=3600.0, replicas=8)
    assert elastic.full_speed == 1 - 0.5 / 8
    assert elastic.goodput == plain.goodput * elastic.full_speed
    losses = elastic.losses
    assert sum(losses.values()) == pytest.approx(1.0, abs=1e-12)
    assert losses["missing_replicas"] == pytest.approx(plain.goodput / 16)
    assert replace(plain, repair_s=0.0, replicas=8).goodput == plain.goodput
    assert replace(elastic, replicas=1, repair_s=1e9).goodput == 0.0


def test_drawn_runs_without_some_replicas_have_the_mean() -> None:
    elastic = Failures(7200.0, 10.0, 60.0, 600.0, 3600.0, 8)
    wall = elastic.drawn_wall_s(2e6, trials=400, seed=1)
    assert 2e6 / wall.mean() == pytest.approx(elastic.goodput, rel=0.01)


@given(st.floats(1e3, 1e6), st.floats(1e-6, 1e-4), st.floats(0.0, 1e-3))
def test_small_losses_are_youngs(mtbf: float, write: float, restart: float) -> None:
    """At the best interval a share sqrt(2 d / M) + R / M of the time is lost, to first order."""
    run = Failures(mtbf, write * mtbf, restart * mtbf, best_interval_s(write * mtbf, mtbf))
    lost = math.sqrt(2.0 * write) + restart
    assert 1.0 - run.goodput == pytest.approx(lost, rel=0.02)


def test_llama_3_405b_had_over_nine_tenths_of_its_time() -> None:
    """As published (arXiv 2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on
    16,384 devices, over 90 % of the time effective. Checkpoints of 5 s allow restarts of 13
    minutes, and not of twenty.
    """
    goodput = [
        Failures.of_gpus(16384, published().mtbf_gpu_s, write_s=5.0, restart_s=60.0 * each).goodput
        for each in (10, 13, 20)
    ]
    assert goodput[0] > goodput[1] > 0.9 > goodput[2]
