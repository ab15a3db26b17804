"""Sensitivities: a bound by bandwidth moves with bandwidth, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.report.tasks.sensitivity import chosen_metric, sensitivity_data
from silicast.scenario.sensitivity import NumberChange, sensitivities

DRAM = "memory.dram.bandwidth_gb_per_s"
COPY: dict[str, Any] = {
    "task": "kernel",
    "device": "h100",
    "kernel": {"op": "elementwise", "kind": "add", "elements": 1 << 28, "inputs": 2},
}


def rows_of(tree: dict[str, Any], *texts: str) -> list[dict[str, Any]]:
    reply, rows = sensitivities(tree, [NumberChange.parse(text) for text in texts])
    return sensitivity_data(reply, rows, chosen_metric(reply, None))


def test_what_waits_for_memory_moves_with_its_bandwidth() -> None:
    first, *others = rows_of(COPY, f"{DRAM}=+25%", "memory.dram.capacity_gb=+25%")
    assert first["field"] == DRAM
    assert first["elasticity"] == pytest.approx(-1.0, abs=0.15)
    assert others[0]["change"] == pytest.approx(0.0, abs=1e-9)


def test_a_change_after_which_the_model_does_not_fit_says_so() -> None:
    """The times of a device that cannot hold the model would read as those of one that can."""
    workload = {"batch": 1, "input_len": 64, "output_len": 2}
    tree = {"task": "inference", "model": "Llama-3.1-8B", "device": "l4", "workload": workload}
    shrunk, grown = rows_of(tree, "memory.dram.capacity_gb=-50%", "memory.dram.capacity_gb=+50%")
    assert shrunk["warning"].startswith("does not fit by")
    assert "warning" not in grown


def test_a_change_without_a_sign_goes_both_ways_and_counts_stay_whole() -> None:
    rows = rows_of(COPY, "kernel.elements=50%")
    assert sorted(row["after"] for row in rows) == [1 << 27, 3 << 27]
    assert all(isinstance(row["after"], int) for row in rows)
    assert all(row["elasticity"] == pytest.approx(1.0, abs=0.1) for row in rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory.dram.bandwith=+20%", "neither a field of scenarios nor of the device"),
        (f"{DRAM}=2", "expected FIELD=+20%"),
        (f"{DRAM}=-100%", "expected 0 to 100 %"),
        ("limits.power_w=+10%", "the scenario states no such number"),
        ("kernel.inputs=+20%", "is a whole number"),
    ],
)
def test_what_is_no_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(SilicastError) as error:
        rows_of(COPY, text)
    assert message in str(error.value)
