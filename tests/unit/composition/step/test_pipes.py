"""What a kernel waits for: exposed pipes are its time, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silicast
from silicast.composition.step.pipes import CLOCK, REST, host_part, pipe_parts
from silicast.core.prediction import to_picoseconds
from silicast.kernels.limits import SERIAL

NAMES = ("dram", "l2", "tensor", "fma", "xu", "launch")
SECONDS = st.floats(0.0, 1e-2, allow_nan=False)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.tuples(SECONDS, SECONDS), min_size=1),
    st.tuples(SECONDS, SECONDS),
    st.tuples(st.floats(0, 300), st.floats(0, 300)),
    st.floats(1.0, 2.0),
)
def test_exposed_pipes_sum_to_the_kernel_in_whole_picoseconds(
    needs: dict[str, tuple[float, float]],
    beyond: tuple[float, float],
    weights: tuple[float, float],
    slowdown: float,
) -> None:
    table = {name: np.array(values) for name, values in needs.items()}
    bound = np.max([s for n, s in table.items() if n not in SERIAL] or [np.zeros(2)], axis=0)
    time, runs = bound + np.array(beyond), np.array(weights)
    whole = to_picoseconds(float((time * runs).sum()))
    parts = pipe_parts(table, time, runs, whole, slowdown=slowdown)
    assert sum(part.exposed_ps for part in parts) == (whole if parts else 0)
    assert all(part.exposed_ps >= 0 and part.hidden_ps >= 0 for part in parts)
    limit = to_picoseconds(float((bound * runs).sum()))
    busiest = sum(p.exposed_ps for p in parts if p.name not in (*SERIAL, CLOCK, REST))
    assert abs(busiest - limit) <= len(NAMES)


def test_what_needs_most_is_exposed_and_the_rest_hidden_under_it() -> None:
    needs = {"dram": np.array([3e-6]), "tensor": np.array([5e-6]), "launch": np.array([2e-6])}
    parts = pipe_parts(needs, np.array([9e-6]), np.ones(1), 9_000_000, {"dram": 1e12}, slowdown=1.1)
    table = {part.name: (part.exposed_ps, part.hidden_ps) for part in parts}
    assert table["tensor"] == (5_000_000, 0)
    assert table["dram"] == (0, 3_000_000)
    assert table["launch"] == (2_000_000, 0)
    assert table[CLOCK] == (500_000, 0)  # a tenth of what the matrix pipes need
    assert table[REST] == (1_500_000, 0)
    # no kernel is faster than its busiest resource; its launch and the clock are no bound
    assert {part.name: part.bound_ps for part in parts if part.bound_ps} == {"tensor": 5_000_000}
    assert next(part.work for part in parts if part.name == "dram") == pytest.approx(3e6)


def test_the_limiting_resource_may_differ_between_states() -> None:
    needs = {"dram": np.array([3e-6, 1e-6]), "tensor": np.array([1e-6, 4e-6])}
    parts = pipe_parts(needs, np.array([3e-6, 4e-6]), np.array([2.0, 1.0]), 10_000_000)
    assert {part.name: part.exposed_ps for part in parts} == {
        "dram": 6_000_000,
        "tensor": 4_000_000,
    }


def test_host_parts_sum_to_the_host() -> None:
    whole = host_part(1e-3, 3e-3, 2e-3, 5e-4, "between_steps")
    assert {part.name: (part.exposed_ps, part.hidden_ps) for part in whole.children} == {
        "between_steps": (2_000_000_000, 500_000_000),
        "launches": (1_000_000_000, 2_000_000_000),
    }
    assert (whole.exposed_ps, whole.hidden_ps) == (3_000_000_000, 2_500_000_000)
    assert host_part(0.0, 0.0, 2e-3, 0.0, "between_steps").children == ()


def test_a_full_answer_shows_pipes_and_a_short_one_does_not() -> None:
    ask: dict[str, Any] = {
        "task": "inference", "model": "Qwen3-8B", "device": "h100", "parallel": {"tp": 2},
        "workload": {"batch": 4, "input_len": 128, "output_len": 8},
    }  # fmt: skip
    short, full = silicast.predict(ask), silicast.predict({**ask, "why": "full"})
    assert short.metrics == full.metrics
    kinds = _kinds(full.why)
    assert {"pipe", "host"} <= kinds
    assert "pipe" not in _kinds(short.why)
    _adds_up(full.why)


def test_a_kernel_alone_shows_its_pipes() -> None:
    gemm = {"op": "gemm", "m": 4096, "n": 4096, "k": 4096}
    why = silicast.predict(task="kernel", device="h100", kernel=gemm, why="full").why
    assert next(part["name"] for part in why["parts"]) == "tensor"
    work = next(part["work"] for part in why["parts"] if part["name"] == "tensor")
    assert work == pytest.approx(2 * 4096**3, rel=1e-6)
    _adds_up(why)


def _kinds(node: Any) -> set[str]:
    return {str(node.get("kind", ""))}.union(*(_kinds(part) for part in node.get("parts", ())))


def _adds_up(node: Any) -> None:
    parts = node.get("parts", ())
    if parts:
        assert sum(round(p["exposed_ms"] * 1e9) for p in parts) == round(node["exposed_ms"] * 1e9)
    for part in parts:
        _adds_up(part)


def test_a_collective_waits_for_links_and_hops() -> None:
    work = {"op": "all_reduce", "bytes": 1 << 24, "gpus": 8}
    why = silicast.predict(task="collective", device="h100", workload=work, why="full").why
    assert {"link", "latency"} <= {part["name"] for part in why["parts"]}
    _adds_up(why)
