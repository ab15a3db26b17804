"""Requests that come at equal gaps."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.decode import decode
from silicast.scenario.resolving.traffic import traffic_of
from silicast.scenario.workloads import ArrivalTable, ServingWorkload


def arrivals(**fields: Any) -> list[int]:
    arrival = ArrivalTable("constant", **fields)
    work = ServingWorkload(arrival, input_len=8, output_len=2, requests=4)
    return [int(ns) for ns in traffic_of(work, seed=3).requests.arrival_ns]


def test_gaps_are_equal() -> None:
    assert arrivals(rate_per_s=4.0) == [250_000_000 * k for k in (1, 2, 3, 4)]
    assert arrivals(rate_per_s=4.0, burst=2) == [500_000_000] * 2 + [1_000_000_000] * 2


@pytest.mark.parametrize("arrival", [{}, {"rate_per_s": 2.0, "cv": 0.5}])
def test_a_rate_is_needed_and_a_variation_refused(arrival: dict[str, float]) -> None:
    tree = {
        "task": "serving",
        "model": "Llama-3.1-8B",
        "device": "H100",
        "workload": {"arrival": {"kind": "constant", **arrival}, "input_len": 8, "output_len": 2},
    }
    with pytest.raises(SilicastError) as error:
        decode(tree)
    assert error.value.field.startswith("workload.arrival.")
