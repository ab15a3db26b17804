"""Stopwatches: what is in the time, what is flushed, how calls are grouped."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from silicast.measurement.machine.measured_machine import MeasuredMachine
from silicast.measurement.sweeps.runtime import CudaRuntime, Runtime
from silicast.measurement.sweeps.timing import (
    GROUP_S,
    MOST_CAPTURED,
    REPLAY_S,
    EventClock,
    GraphClock,
    HostClock,
)
from tests.unit.measurement.fake_cuda import MACHINE, FakeCuda, LostError


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


def runtime(cuda: FakeCuda) -> CudaRuntime:
    return CudaRuntime(MACHINE, cuda)


def test_events_hold_the_launch_and_the_kernel(cuda: FakeCuda) -> None:
    clock = EventClock(runtime(cuda), [cuda.kernel(30e-6)], flushes=False)
    clock.prepare(clock.first())
    assert clock.sample() == pytest.approx([35e-6])


def test_a_graph_holds_the_kernel_alone(cuda: FakeCuda) -> None:
    clock = GraphClock(runtime(cuda), [cuda.kernel(30e-6)], flushes=False)
    clock.prepare(30e-6)
    assert clock.sample() == pytest.approx([30e-6])
    # behind a device that is still busy, and without a flush
    assert cuda.log[-2] == "spin"
    assert not any(line.startswith("flush") for line in cuda.log)


@pytest.mark.parametrize("kernel_s", [1e-6, 40e-6, 0.1])
def test_quick_kernels_are_captured_often_enough(cuda: FakeCuda, kernel_s: float) -> None:
    clock = GraphClock(runtime(cuda), [cuda.kernel(kernel_s)], flushes=False)
    clock.prepare(1.0)  # as it seemed when its first call was compiled
    clock.sample()
    count = int(cuda.log[-1].split()[1])
    assert 1 <= count <= MOST_CAPTURED
    assert count * kernel_s >= min(REPLAY_S, MOST_CAPTURED * kernel_s) * 0.5
    assert count == 1 or count * kernel_s < 2.0 * REPLAY_S


def test_sets_that_cover_the_caches_go_round_in_the_graph(cuda: FakeCuda) -> None:
    clock = GraphClock(runtime(cuda), [cuda.kernel(10e-6)] * 8, flushes=False)
    clock.prepare(10e-6)
    assert clock.sample() == pytest.approx([10e-6])
    assert cuda.log[-1] == "replay 56"


def test_cold_sets_run_once_a_round_behind_a_flush(cuda: FakeCuda) -> None:
    calls = [cuda.kernel(10e-6) for _ in range(7)]
    clock = GraphClock(runtime(cuda), calls, flushes=True)
    clock.prepare(10e-6)
    cuda.log.clear()
    assert clock.sample() == pytest.approx([10e-6])
    # twice the last level of caches is written before each round, outside of the time
    assert cuda.log == [f"flush {2 << 20}", "spin", "replay 7"]


def test_one_cold_set_is_flushed_before_every_call(cuda: FakeCuda) -> None:
    clock = EventClock(runtime(cuda), [cuda.kernel(30e-6, "k")], flushes=True)
    clock.prepare(0.0)
    clock.sample()
    clock.sample()
    assert cuda.log == [f"flush {2 << 20}", "k"] * 2


def test_what_cannot_be_captured_says_so() -> None:
    cuda = FakeCuda(captures=False)
    clock = GraphClock(runtime(cuda), [cuda.kernel(1e-6)], flushes=False)
    with pytest.raises(LostError, match="capturing"):
        clock.prepare(1e-6)


def test_after_a_capture_that_failed_others_are_captured() -> None:
    cuda = FakeCuda(captures=False)
    before = cuda.current_stream()
    clock = GraphClock(runtime(cuda), [cuda.kernel(1e-6)], flushes=False)
    with pytest.raises(LostError):
        clock.prepare(1e-6)
    assert cuda.current_stream() is before
    assert not cuda.generator_captured  # it would give no numbers
    assert clock._graph is None
    cuda.captures = True
    clock = GraphClock(runtime(cuda), [cuda.kernel(30e-6)], flushes=False)
    clock.prepare(30e-6)
    assert clock.sample() == pytest.approx([30e-6])


class _Plain(Runtime):
    """A device that does nothing, and notes its flushes."""

    kind = "cpu"

    def __init__(self) -> None:
        super().__init__(MeasuredMachine("cpu", "", None, 1, 1 << 30), SimpleNamespace())
        self.flushes = 0

    def synchronize(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 30

    def flush(self) -> None:
        self.flushes += 1


def counted() -> tuple[list[int], Any]:
    calls = [0]

    def call() -> None:
        calls[0] += 1

    return calls, call


def test_quick_calls_share_a_reading_of_the_clock() -> None:
    calls, call = counted()
    clock = HostClock(_Plain(), [call], flushes=False)
    clock.prepare(GROUP_S / 10)
    samples = clock.sample()
    assert len(samples) == 1
    assert calls[0] == 10


def test_slow_calls_are_timed_one_by_one() -> None:
    clock = HostClock(_Plain(), [lambda: time.sleep(0.002)] * 3, flushes=False)
    clock.prepare(0.002)
    samples = clock.sample()
    assert len(samples) == 3
    assert min(samples) >= 0.002


def test_a_round_of_cold_calls_uses_each_set_once_after_one_flush() -> None:
    used: list[int] = []
    plain = _Plain()
    calls = [partial(used.append, number) for number in range(5)]
    clock = HostClock(plain, calls, flushes=True)
    clock.prepare(GROUP_S / 2)
    samples = clock.sample()
    assert used == [0, 1, 2, 3, 4]
    assert len(samples) == 3  # two calls, two calls, one
    assert plain.flushes == 1


def test_one_quick_call_behind_a_flush_is_not_repeated() -> None:
    calls, call = counted()
    clock = HostClock(_Plain(), [call], flushes=True)
    clock.prepare(GROUP_S / 10)
    assert len(clock.sample()) == 1
    assert calls[0] == 1
