"""Designs of a parameter file under a whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.exploration.space_file import space_of
from silicast.scenario.designs.design_models import design_problem
from silicast.scenario.run import reply_to

CHIP = """
name = "chip"
[[level]]
name = "dram"
word_bits = 16
[[level]]
name = "buffer"
word_bits = 16
capacity_kib = 256
area_um2 = 4e6
[[level]]
name = "array"
mesh = [32, 32]
[compute]
area_um2 = 500.0
[vector]
per_cycle = 64
special_per_cycle = 16
[system]
memory_gb = 16
memory_gb_per_s = 100
"""
SCENARIO: dict[str, Any] = {
    "task": "kernel", "workload": {"kernel": {"op": "gemm", "m": 64, "n": 256, "k": 256,
                                              "dtype": "bf16"}},
}  # fmt: skip
SPACE: dict[str, Any] = {
    "base": "chip.toml", "scenario": SCENARIO, "die": {"node_nm": 7},
    "objective": [{"metric": "latency_us"}, {"metric": "die_cost_usd"}],
    "parameter": [{"name": "gb_per_s", "path": "system.memory_gb_per_s", "values": [10, 100]}],
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "chip.toml").write_text(CHIP, encoding="utf-8")
    return str(tmp_path / "space.toml")


def test_a_design_answers_what_its_scenario_asks(file: str) -> None:
    problem = design_problem(space_of(SPACE, file))
    slow, fast = (problem.evaluation.outcome(np.array([level])) for level in (0, 1))
    assert slow.metrics["latency_us"] > fast.metrics["latency_us"]
    assert slow.metrics["die_cost_usd"] == fast.metrics["die_cost_usd"] > 0
    reply = reply_to({**SCENARIO, "device": str(Path(file).parent / "chip.toml")})
    assert reply.ok
    assert fast.metrics["latency_us"] == reply.metrics["latency_us"].estimate  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"objective": [{"metric": "tpot_mean_ms"}]}, "objective.tpot_mean_ms"),
        ({"scenario": {**SCENARIO, "device": "H100"}}, "scenario.device"),
        ({"layer": [{"op": "matmul", "m": 2, "n": 2, "k": 2}]}, "layer"),
        ({"scenario": {"task": "kernel", "workload": {"kernel": {"op": "gemn"}}}}, "scenario."),
    ],
)
def test_wrong_files_are_refused_by_their_field(
    change: dict[str, Any], field: str, file: str
) -> None:
    with pytest.raises(SilicastError) as caught:
        design_problem(space_of({**SPACE, **change}, file))
    assert caught.value.field.startswith(field)


def test_the_cost_of_a_die_needs_its_node(file: str) -> None:
    table = {name: value for name, value in SPACE.items() if name != "die"}
    with pytest.raises(SilicastError, match="needs its node") as caught:
        design_problem(space_of(table, file))
    assert caught.value.field == "objective.die_cost_usd"


def test_a_die_too_large_for_a_wafer_is_infeasible(file: str) -> None:
    table = {**SPACE, "parameter": [{"name": "side", "path": "level.array.mesh[0]",
                                     "values": [32, 10_000_000]}]}  # fmt: skip
    outcome = design_problem(space_of(table, file)).evaluation.outcome(np.array([1]))
    assert outcome.cause.startswith("no die")
