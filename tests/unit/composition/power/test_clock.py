"""The clock that a limit holds: of many pieces of work as of each alone."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.power.clock import ClockedWork, PowerLimit, held_clocks
from silicast.composition.step.machine import Machine
from silicast.core.numerics import F64, I64
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.held_clock import CLOCKS
from silicast.kernels.physics.power import top_hz

SECONDS = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
CORES_W = np.array([100.0, 900.0, 500.0, 2000.0, 700.0])
MEMORY_W = np.array([300.0, 40.0, 350.0, 100.0, 0.0])
OF_CORES = np.array([0.0, 1.0, 0.3, 0.9, 0.6])
"""Share of the time that goes with the clock."""


def work_at(position: int, rows: I64) -> ClockedWork[F64]:
    slower = 1.0 + OF_CORES[rows] * (1.0 / CLOCKS[position] - 1.0)
    seconds = SECONDS[rows]
    core_j, memory_j = CORES_W[rows] * seconds, MEMORY_W[rows] * seconds
    return ClockedWork(seconds * slower, core_j, memory_j, 400.0 * seconds)


def one_at(position: int, row: int) -> ClockedWork[float]:
    return ClockedWork(*(float(each[0]) for each in work_at(position, np.array([row]))))


def _of_row(row: int, position: int) -> ClockedWork[float]:
    return one_at(position, row)


@pytest.mark.parametrize("machine", [{}, {"power_w": 400.0}, {"clock_hz": 1.2e9}])
def test_clocks_of_many_are_those_of_each_alone(machine: dict[str, float]) -> None:
    where = Machine(find_device("H100"), find_engine("vllm"), **machine)  # type: ignore[arg-type]
    asked: list[tuple[int, int]] = []

    def at(position: int, rows: I64) -> tuple[F64, F64]:
        assert (np.diff(rows) > 0).all()
        asked.extend((position, row) for row in rows.tolist())
        work = work_at(position, rows)
        return work.seconds, work.dynamic_j

    found = held_clocks(where, work_at(0, np.arange(5)), at)
    alone = [PowerLimit(where).clock(one_at(0, row), partial(_of_row, row)) for row in range(5)]
    assert found.tolist() == alone
    assert len(asked) == len(set(asked))
    assert found[3] < top_hz(where.limited_device)  # it draws far more than the limit


@pytest.mark.parametrize("machine", [{}, {"power_w": 350.0}, {"power_w": 200.0}])
def test_any_work_alone_has_the_clock_that_it_has_among_others(machine: dict[str, float]) -> None:
    where = Machine(find_device("H100"), find_engine("vllm"), **machine)  # type: ignore[arg-type]
    draw = np.random.default_rng(7)
    count = 400
    cores, memory = draw.uniform(0.0, 3000.0, count), draw.uniform(0.0, 500.0, count)
    seconds, part = draw.uniform(1e-5, 1e-1, count), draw.uniform(0.0, 1.0, count)

    def work_of(position: int, rows: I64) -> ClockedWork[F64]:
        slower = 1.0 + part[rows] * (1.0 / CLOCKS[position] - 1.0)
        watts = (cores[rows], memory[rows], 0.7 * (cores + memory)[rows])
        return ClockedWork(seconds[rows] * slower, *(w * seconds[rows] for w in watts))

    def one(row: int, position: int) -> ClockedWork[float]:
        return ClockedWork(*(float(each[0]) for each in work_of(position, np.array([row]))))

    def at(position: int, rows: I64) -> tuple[F64, F64]:
        work = work_of(position, rows)
        return work.seconds, work.dynamic_j

    together = held_clocks(where, work_of(0, np.arange(count)), at).tolist()
    assert together == [PowerLimit(where).clock(one(r, 0), partial(one, r)) for r in range(count)]
    assert len(set(together)) > count / 10 or "power_w" in machine


def test_work_within_the_limit_is_evaluated_at_no_other_clock() -> None:
    where = Machine(find_device("H100"), find_engine("vllm"))
    light = ClockedWork(1.0, 50.0, 50.0, 0.0)

    def never(position: int) -> ClockedWork[float]:
        raise AssertionError(position)

    assert PowerLimit(where).clock(light, never) == top_hz(where.limited_device)
