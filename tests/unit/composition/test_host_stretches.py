"""How long a device waits for its host within a pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.host_stretches import stretches_s
from silicast.composition.placed import Placed
from silicast.workload.gradients import HOST_WAITS
from silicast.workload.op import Op, Variant

ASKED = Variant(flags=((HOST_WAITS, True),))


def placed(*waits: bool, count: int = 1, block: str = "layer") -> list[Placed]:
    return [
        Placed(0, block, f"n{number}", count,
               Op.make("data_movement", ASKED if wait else Variant(), written_bytes=1))
        for number, wait in enumerate(waits)
    ]  # fmt: skip


def test_launches_hide_behind_long_kernels() -> None:
    each = np.array([10e-6] * 4)
    assert stretches_s(placed(*[False] * 4), each, 4e-6, 26e-6) == pytest.approx(4e-6)
    assert stretches_s(placed(*[False] * 4), each, 0.0, 26e-6) == 0.0


def test_short_kernels_wait_for_their_launches() -> None:
    each = np.array([2e-6] * 3)
    found = stretches_s(placed(*[False] * 3, count=100), each, 8e-6, 26e-6)
    assert found == pytest.approx(300 * 8e-6 + 2e-6 - 300 * 2e-6)


def test_a_long_kernel_lets_the_host_run_ahead() -> None:
    each = np.array([100e-6, 2e-6, 2e-6])
    assert stretches_s(placed(False, False, False), each, 8e-6, 26e-6) == pytest.approx(8e-6)


def test_an_answer_costs_a_trip_and_the_lead() -> None:
    each = np.array([100e-6, 2e-6, 2e-6])
    found = stretches_s(placed(True, False, False), each, 8e-6, 26e-6)
    # 8 before the first; then a trip of 26 in place of the launch, and 6 before the last
    assert found == pytest.approx(8e-6 + 26e-6 + 6e-6)


@given(st.lists(st.tuples(st.floats(1e-6, 1e-3), st.booleans()), min_size=1, max_size=20))
def test_answers_never_save_time(kernels: list[tuple[float, bool]]) -> None:
    each = np.array([seconds for seconds, _ in kernels])
    waits = [wait for _, wait in kernels]
    asked = stretches_s(placed(*waits), each, 8e-6, 26e-6)
    quiet = stretches_s(placed(*[False] * len(waits)), each, 8e-6, 26e-6)
    assert asked >= quiet - 1e-12
