"""Fleets whose devices together may draw so much power."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

TRAFFIC = {
    "arrival": {"kind": "poisson", "rate_per_s": 20.0},
    "input_len": 64,
    "output_len": 16,
    "requests": 60,
}
SLO = {"tpot_ms": 40.0, "quantile": 0.9}


def asked(search: dict[str, Any], objective: str = "max_rate", **top: Any) -> Answer:
    work = {"objective": objective, "slo": SLO, "traffic": TRAFFIC, "search": search}
    return run(
        decode(
            {"task": "capacity", "model": "Llama-3.2-1B", "device": "h100", "workload": work} | top
        )
    )


def test_candidates_that_may_draw_more_are_left_out_by_name() -> None:
    """Two boards at 700 W and four at 350 W are 1,400 W; four at 700 W are 2,800 W."""
    vary = {"parallel.dp": [2, 4], "limits.power_w": [700, 350]}
    tried = asked({"max_power_w": 1400, "vary": vary}).why["candidates"]
    drawn = {
        (each["fields"]["parallel.dp"], each["fields"]["limits.power_w"]): each.get("power_limit_w")
        for each in tried
    }
    assert drawn == {(2, 700): 1400.0, (4, 350): 1400.0, (2, 350): 700.0, (4, 700): None}
    (over,) = (each["refused"] for each in tried if "refused" in each)
    assert "4 devices may draw 2,800 W, more than 1,400 W" in over
    assert "limits.power_w of at most 350 W" in over


def test_a_single_fleet_above_it_is_refused() -> None:
    with pytest.raises(SilicastError, match="1 device may draw 700 W, more than 600 W") as refused:
        asked({"max_power_w": 600})
    assert refused.value.field == "workload.search.max_power_w"
    assert refused.value.hint == "limits.power_w of at most 600 W"


def test_searched_counts_stay_within_it() -> None:
    """The traffic needs more than one replica at so low a cap; three such boards are 900 W."""
    reply = asked({"max_power_w": 900}, "min_gpus", limits={"power_w": 300})
    capacity = reply.why["capacity"]
    assert capacity["power_limit_w"] <= capacity["max_power_w"] == 900
    assert capacity["power_limit_w"] == 300 * reply.metrics["gpus"].estimate


def test_a_device_without_a_limit_says_so() -> None:
    with pytest.raises(SilicastError, match="the power limit of a device is not known"):
        asked({"max_power_w": 900}, device="M4 Max")


def test_plans_have_no_such_limit() -> None:
    scenario = {
        "task": "plan",
        "model": "Llama-3.2-1B",
        "device": "h100",
        "cluster": {"gpus": 2},
        "workload": {
            "objective": "step_time",
            "training": {"seq_len": 512, "global_batch": 4},
            "search": {"max_power_w": 900},
        },
    }
    with pytest.raises(SilicastError, match="a power limit of all devices"):
        run(decode(scenario))
