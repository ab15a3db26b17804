"""Rates of engines that share a device, against turns that are played out one by one."""

from __future__ import annotations

import pytest

from silicast.serving.simulation.sharing import UNIT, DeviceLoad, TimeSlicing, Together, rates

TURN = 2.0


def played(steps: list[tuple[float, float]], until: float, switch: float = 0.0) -> list[float]:
    """Mean milliseconds of a step of each engine where they take turns on the device.

    Args:
        steps: (device, host) milliseconds of a step of each.
        switch: beside each turn that another one's follows.
    """
    now, turn = 0.0, 0
    left = [device for device, _ in steps]
    ready = [0.0] * len(steps)  # when the host has done its part
    done = [0] * len(steps)
    last = -1
    while now < until:
        waiting = [(turn + k) % len(steps) for k in range(len(steps))]
        waiting = [each for each in waiting if ready[each] <= now + 1e-12]
        if not waiting:
            now = min(ready)
            continue
        one = waiting[0]
        if last not in (-1, one):
            now += switch
        last = one
        span = min(TURN, left[one])  # who comes meanwhile waits for the end of the turn
        now += span
        left[one] -= span
        if left[one] <= 1e-9:
            done[one] += 1
            left[one], ready[one] = steps[one][0], now + steps[one][1]
        turn = (one + 1) % len(steps)
    return [until / count for count in done]


def predicted(steps: list[tuple[float, float]], switch: float = 0.0) -> list[float]:
    law = TimeSlicing((1.0,) * len(steps), switch, TURN)
    loads = [DeviceLoad(device / (device + host), step_ns=device) for device, host in steps]
    result = rates(law, loads)
    return [sum(step) * UNIT / rate for step, rate in zip(steps, result, strict=True)]


@pytest.mark.parametrize(
    "steps",
    [
        [(6.8, 0.0), (12.0, 0.0)],
        [(6.8, 0.7), (12.0, 0.7)],
        [(9.0, 3.0), (25.0, 3.0)],
        [(6.8, 0.5), (12.0, 0.5), (21.3, 0.5)],
        [(3.0, 0.5), (12.0, 0.5)],
        [(1.0, 0.2), (1.5, 0.2)],
    ],
)
def test_rates_are_the_mean_of_turns(steps: list[tuple[float, float]]) -> None:
    for item, turns in zip(predicted(steps), played(steps, 60_000.0), strict=True):
        assert item == pytest.approx(turns, rel=0.06)


def test_a_switch_takes_its_share_of_a_turn() -> None:
    steps = [(8.0, 0.0), (12.0, 0.0)]
    for item, turns in zip(predicted(steps, 0.04), played(steps, 60_000.0, 0.04), strict=True):
        assert item == pytest.approx(turns, rel=0.01)


def test_weights_divide_the_time() -> None:
    result = rates(TimeSlicing((1.0, 3.0)), [DeviceLoad(1.0), DeviceLoad(1.0)])
    assert [round(rate / UNIT, 4) for rate in result] == [0.25, 0.75]


def test_an_idle_neighbour_slows_nobody() -> None:
    busy, idle = DeviceLoad(1.0, (1.0, 1.0, 1.0)), DeviceLoad()
    for law in (TimeSlicing((1.0, 1.0), 0.5), Together()):
        assert rates(law, [busy, idle])[0] == UNIT


def test_nothing_beside_one_engine_or_idle_ones_slows_it() -> None:
    busy, idle = DeviceLoad(0.9, needs=(0.8, 1.7, 0.0)), DeviceLoad(0.0, needs=(0.8, 0.9, 0.0))
    assert Together().slowdowns([0.9], [busy]) == [1.0]
    assert Together().slowdowns([0.9, 0.0], [busy, idle])[0] == 1.0
    assert Together().slowdowns([0.9, 0.5], [busy, idle])[0] > 1.0
