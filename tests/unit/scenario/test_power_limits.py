"""Power limits that no clock holds: every task that has one says so in the same words."""

from __future__ import annotations

from typing import Any

import pytest

import silicast
from silicast.hardware.catalog import find_device

SAID = "limits.power_w cannot be held: the slowest clock, 183 MHz, is assumed"
PROMPTS: dict[str, Any] = {"batch": 4, "input_len": 1024, "output_len": 4}
CASES: dict[str, dict[str, Any]] = {
    "kernel": {"task": "kernel",
               "workload": {"kernel": {"op": "gemm", "m": 8192, "n": 8192, "k": 8192}}},
    "engine": {"task": "inference", "model": "Llama-3.1-8B", "workload": PROMPTS},
    "framework": {"task": "inference", "model": "gpt2", "engine": "torch-eager",
                  "workload": PROMPTS | {"input_len": 512}},
    "graph": {"task": "graph", "model": "gpt2", "engine": "torch-compile",
              "workload": {"mode": "inference", "batch": 32, "seq_len": 1024}},
    "graph training": {"task": "graph", "model": "gpt2",
                       "workload": {"mode": "training", "batch": 32, "seq_len": 1024,
                                    "optimizer": "adamw"}},
    "training": {"task": "training", "model": "gpt2",
                 "workload": {"micro_batch": 8, "global_batch": 8, "seq_len": 1024}},
}  # fmt: skip


def said(name: str, watts: float | None, **fields: Any) -> list[str]:
    limits = {} if watts is None else {"limits": {"power_w": watts}}
    result = silicast.predict(CASES[name], device="H100", **limits, **fields)
    return [line for line in result.warnings if "cannot be held" in line]


@pytest.mark.parametrize("name", CASES)
def test_a_limit_that_no_clock_holds_is_said_once(name: str) -> None:
    assert said(name, 107.0) == [SAID]
    assert said(name, 300.0) == said(name, 699.0) == said(name, None) == []


@pytest.mark.parametrize("name", CASES)
def test_a_tighter_limit_is_not_held_either(name: str) -> None:
    told = [bool(said(name, watts)) for watts in (107.0, 120.0, 140.0, 160.0, 200.0, 250.0)]
    assert told == sorted(told, reverse=True)
    assert told[0]
    assert not told[-1]


def test_a_phase_is_enough() -> None:
    """The limit holds in the prefill, whose units slow down; memory alone takes more in decode."""
    case = {**CASES["engine"], "workload": {**PROMPTS, "output_len": 512}}
    result = silicast.predict(case, device="H100", limits={"power_w": 200.0})
    clocks = result.why["clock_mhz"]
    assert clocks["decode"] == pytest.approx(183.0) != clocks["prefill"]
    assert result["total_ms"].estimate > 2.0 * result["prefill_ms"].estimate
    assert [line for line in result.warnings if "cannot be held" in line] == [SAID]


def test_a_limit_on_the_clock_moves_the_slowest_one() -> None:
    limits = {"power_w": 107.0, "clock_mhz": 1000}
    for name in ("kernel", "graph"):
        result = silicast.predict(CASES[name], device="H100", limits=limits)
        assert any("the slowest clock, 100 MHz, is assumed" in line for line in result.warnings)


@pytest.mark.parametrize("name", ["kernel", "engine"])
def test_a_laptop_without_a_limit_says_which_one_is_taken(name: str) -> None:
    chosen = "taken at its largest power, 150 W; makers of systems set 80 W and more"
    for limits, times in (({}, 1), ({"limits": {"power_w": 100.0}}, 0)):
        result = silicast.predict(CASES[name], device="RTX 4090 Laptop", **limits)
        assert sum(chosen in line for line in result.warnings) == times


@pytest.mark.parametrize("device", ["RTX 4090 Laptop", "RTX 4060 Laptop", "RTX 5070 Laptop"])
def test_a_laptop_is_slower_toward_the_end_of_its_range(device: str) -> None:
    board = find_device(device)
    assert board.least_power_cap_w is not None
    assert board.power_cap_w is not None
    share = (board.power_cap_w - board.least_power_cap_w) / 4
    limits = [board.least_power_cap_w + step * share for step in range(5)]
    times = [
        silicast.predict(CASES["kernel"], device=device, limits={"power_w": watts})
        .metrics["latency_us"]
        .estimate
        for watts in limits
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.1 * times[-1]
    # a stated limit means a board that is hot from seconds of the same work
    kernel = CASES["kernel"]["workload"]["kernel"]
    hot = {"task": "kernel", "workload": {"kernel": {**kernel, "board": "hot"}}}
    assert silicast.predict(hot, device=device).metrics["latency_us"].estimate == times[-1]
    cool = silicast.predict(CASES["kernel"], device=device).metrics["latency_us"]
    assert cool.estimate <= times[-1]


@pytest.mark.parametrize(("times", "extrapolates"), [(2.0, False), (2.2, True)])
def test_a_clock_beyond_twice_the_datasheets_extrapolates(times: float, extrapolates: bool) -> None:
    mhz = times * 2040.0
    device = {"base": "L4", "clocks": {"boost_mhz": mhz, "max_mhz": mhz}}
    result = silicast.predict(CASES["kernel"], device=device)
    lines = [line for line in result.warnings if "times the boost clock of L4" in line]
    assert bool(lines) == extrapolates
