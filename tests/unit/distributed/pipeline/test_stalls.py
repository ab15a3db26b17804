"""Batches that are late and checkpoints that are written."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.core.errors import SilicastError
from silicast.core.prediction import ErrorFactors, Part, Prediction
from silicast.distributed.pipeline.stalls import Checkpoint, Loading, _ways
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.reliability import Failures
from tests.unit.distributed.step.test_step import rank

TIME = st.floats(1e-3, 1e5)


def step(ps: int) -> Prediction:
    return Prediction(Part("step", ps, children=(Part("work", ps),)), ErrorFactors())


@given(st.integers(10**6, 10**13), st.floats(0.0, 100.0), st.booleans())
def test_parts_add_up_to_what_a_step_waits(ps: int, load_s: float, overlaps: bool) -> None:
    loading = Loading(load_s, overlaps)
    beside = loading.beside(step(ps))
    assert beside.seconds == pytest.approx(loading.total_s(ps * 1e-12), rel=1e-9, abs=1e-12)
    assert sum(each.exposed_ps for each in beside.part.children) == beside.part.exposed_ps
    assert beside.part.children[-1].hidden_ps + beside.part.children[-1].exposed_ps == round(
        load_s * 1e12
    )


@given(TIME, TIME)
def test_a_loader_that_keeps_up_costs_nothing(own: float, load: float) -> None:
    assert (
        max(own, load) == Loading(load).total_s(own) <= Loading(load, overlaps=False).total_s(own)
    )
    assert Loading(0.0).total_s(own) == Loading(0.0, overlaps=False).total_s(own) == own


@given(st.integers(1, 10**14), st.integers(1, 10**5), TIME, TIME, TIME)
def test_writing_beside_never_stalls_longer(
    size: int, ranks: int, storage: float, link: float, interval: float
) -> None:
    beside = Checkpoint.from_sizes(size, ranks, storage * 1e9, link * 1e9)
    blocking = Checkpoint.from_sizes(size, ranks, storage * 1e9)
    assert blocking.stall_s(interval) == blocking.write_s == size / (storage * 1e9)
    assert beside.stall_s(interval) <= max(blocking.stall_s(interval), beside.copy_s)
    assert beside.stall_s(beside.least_interval_s) == pytest.approx(
        beside.copy_s, rel=1e-6, abs=1e-6
    )
    assert beside.stall_s(math.inf) == beside.copy_s


def test_the_share_of_checkpoints_is_that_of_goodput() -> None:
    one = Checkpoint.from_sizes(10**12, 8, 10e9)
    run = Failures(math.inf, one.stall_s(900.0), 0.0, 900.0)
    assert run.goodput == pytest.approx(900.0 / 1000.0)


@pytest.mark.parametrize(
    ("rates", "field"), [((0.0, None), "storage_gb_per_s"), ((1.0, 0.0), "link_gb_per_s")]
)
def test_rates_of_nothing_are_refused(rates: tuple[float, float | None], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        Checkpoint.from_sizes(1, 1, *rates)
    assert caught.value.field == field


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(SilicastError):
        Loading(math.inf)


def test_ways_to_a_smaller_bubble_keep_the_batch_but_for_the_one_that_doubles_it() -> None:
    """Sixteen layers over four stages; eight micro-batches of four on each of two replicas."""
    current = replace(rank(TrainingPlan(pp=4, dp=2)), micro_batch=4)
    ways = list(_ways(current, 8, "1f1b"))
    assert [(field, value) for field, value, _, _ in ways] == [
        ("parallel.virtual_stages", 4),
        ("parallel.virtual_stages", 2),
        ("workload.micro_batch", 2),
        ("workload.global_batch", 2 * 64),
        ("parallel.pp", 2),
    ]
    batches = [other.micro_batch * count * other.plan.dp for *_, other, count in ways]
    assert batches == [64, 64, 64, 128, 64]
    assert [other.micro_batch for *_, other, _ in ways] == [4, 4, 2, 4, 4]
    assert {other.plan.pp * other.plan.dp for *_, other, _ in ways} == {8}
    fields = [field for field, *_ in _ways(replace(current, micro_batch=1), 7, "1f1b")]
    assert fields == ["workload.global_batch"]  # odd numbers are not halved, chunks do not divide
    chunked = replace(current, plan=TrainingPlan(pp=2, dp=2, virtual_stages=2))
    fields = [field for field, *_ in _ways(chunked, 8, "interleaved")]
    assert fields == ["parallel.virtual_stages", "workload.micro_batch", "workload.global_batch"]
