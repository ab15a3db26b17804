"""Numbers of a record that differ by the clock are told from those that do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from silicast.core.xp import UntraceableError
from silicast.kernels.clock_inputs import ClockInputs


class Rates(NamedTuple):
    clock: float
    cores: int
    steps: Any
    names: Any


def record(clock: int) -> Rates:
    return Rates(2.0 * clock, 4, np.array([[1.0], [1.0 + clock]]), {"a": ("x", 0.5), "b": 1.0})


def test_numbers_that_differ_go_back_to_their_places() -> None:
    inputs = ClockInputs(record, (1, 2))
    assert inputs.count == 3
    assert inputs.numbers(5) == (10.0, 1.0, 6.0)
    filled, expected = inputs.filled((10.0, 1.0, 6.0)), record(5)
    assert filled.steps.tolist() == expected.steps.tolist()
    assert filled._replace(steps=0.0) == expected._replace(steps=0.0)


def test_a_clock_at_which_more_differs_has_no_numbers() -> None:
    inputs = ClockInputs(lambda clock: record(clock)._replace(cores=clock // 8), (1, 2))
    assert inputs.numbers(3) == (6.0, 1.0, 4.0)
    assert inputs.numbers(9) is None
    further = ClockInputs(lambda clock: (float(clock), *[1.0] * (clock // 8)), (1, 2))
    assert further.numbers(9) is None


@pytest.mark.parametrize("differs", [str, int])
def test_what_is_no_number_has_no_place(differs: Any) -> None:
    with pytest.raises(UntraceableError):
        ClockInputs(differs, (1, 2))
