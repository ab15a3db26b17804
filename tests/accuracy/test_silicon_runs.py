"""Degrees of measured serving runs, where their table holds products of two degrees."""

from __future__ import annotations

from typing import Any

import pytest

from lab.scorecard.silicon_runs import _degrees, plan

ROW: dict[str, Any] = {
    "tp_size": 1,
    "pp_size": 1,
    "moe_tp_size": 1,
    "moe_ep_size": 8,
    "attention_dp_size": 8,
    "batch_size": None,
    "concurrency": 448,
    "silicon_data_source": "source_file=runs.csv",
}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_product_of_two_equal_degrees_is_one_degree(ranks: int) -> None:
    stated = {"moe_tp_size": ranks, "moe_ep_size": ranks, "attention_dp_size": ranks * ranks}
    assert _degrees(ROW | stated) == {"attention_dp_size": ranks, "moe_tp_size": 1}


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"tp_size": 4, "moe_tp_size": 2, "moe_ep_size": 2, "attention_dp_size": None},
        {"moe_tp_size": 4, "moe_ep_size": 1, "attention_dp_size": 4},
        {"moe_tp_size": None, "moe_ep_size": None, "attention_dp_size": None},
    ],
)
def test_degrees_that_fit_stay(stated: dict[str, Any]) -> None:
    assert _degrees(ROW | stated) == {}


def test_clients_a_device_tell_replicas_of_a_routed_run() -> None:
    routed = {
        "tp_size": 2,
        "moe_ep_size": 1,
        "attention_dp_size": 1,
        "batch_size": 14,
        "silicon_data_source": "source_file=runs.csv; dynamo_version=0.8.1",
    }
    assert plan(ROW | routed)["dp"] == 448 // 14 // 2
    assert "dp" not in plan(ROW | routed | {"batch_size": 224})
    assert "dp" not in plan(ROW | routed | {"silicon_data_source": "source_file=runs.csv"})
