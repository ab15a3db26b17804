"""Answers of the task ``capacity``."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.app.commands.capacity import capacity_scenario
from silicast.app.serve_flags import ServeFlags
from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run


def asked(objective: str, slo: dict[str, float], **changes: Any) -> Answer:
    traffic = {
        "arrival": {"kind": "poisson", "rate_per_s": 30.0}, "input_len": 400, "output_len": 20,
        "requests": 80,
    }  # fmt: skip
    return run(
        decode(
            {
                "format": 1, "task": "capacity", "model": "Llama-3.1-8B", "device": "h100",
                "engine": "vllm",
                "workload": {"objective": objective, "slo": slo, "traffic": traffic, **changes},
            }
        )
    )  # fmt: skip


def test_the_highest_rate_is_where_the_objective_is_just_kept() -> None:
    found = asked("max_rate", {"ttft_p90_ms": 60.0})
    why, rate = found.why["capacity"], found.metrics["max_rate_per_s"]
    assert rate.p05 < rate.estimate < rate.p95
    assert why["reached"]
    assert rate.estimate < why["not_carried"] <= 1.0201 * rate.estimate
    assert found.metrics["ttft_p90_ms"].estimate == pytest.approx(why["values_ms"]["ttft_p90_ms"])
    assert why["values_ms"]["ttft_p90_ms"] <= 60.0
    assert found.metrics["ttft_p90_ms"].p05 >= found.bound["ttft_p90_ms"] > 0.0
    assert sum(part["share"] for part in found.why["parts"]) == pytest.approx(1.0, abs=1e-4)
    assert sum(found.why["tiers"].values()) == pytest.approx(1.0, abs=1e-4)


def test_a_run_too_short_for_queues_is_said_so() -> None:
    found = asked("max_rate", {"ttft_p90_ms": 400.0})
    assert any("queues have no time" in said for said in found.warnings)


def test_an_objective_out_of_reach_is_said_so_with_the_nearest() -> None:
    found = asked("max_rate", {"ttft_p99_ms": 1.0})
    assert not found.why["capacity"]["reached"]
    assert found.metrics["max_rate_per_s"].estimate == 0.0
    assert found.metrics["ttft_p99_ms"].estimate > 1.0
    assert any("one request at a time, ttft_p99 is" in said for said in found.warnings)


def test_clients_are_as_many_as_the_cache_holds_where_nothing_else_limits_them() -> None:
    found = asked(
        "max_concurrency", {"tpot_ms": 1e5},
        traffic={
            "arrival": {"kind": "closed", "concurrency": 1}, "input_len": 60_000, "output_len": 2,
            "requests": 12,
        },
    )  # fmt: skip
    users = found.metrics["users_that_fit"].estimate
    assert found.metrics["max_concurrency"].estimate == users > 1.0
    assert found.why["capacity"]["limited_by"] == "kv_cache"


def test_the_cheapest_plan_is_chosen_among_candidates() -> None:
    found = asked("min_gpus", {"ttft_p90_ms": 60.0}, search={"vary": {"parallel.tp": [1, 2]}})
    devices = [each["gpus"] for each in found.why["candidates"]]
    assert found.metrics["gpus"].estimate == min(devices) == devices[0]


@pytest.mark.parametrize(
    ("objective", "said"),
    [("max_tokens_per_joule", "objective max_tokens_per_joule"), ("min_cost", "price")],
)
def test_what_cannot_be_searched_for_is_refused(objective: str, said: str) -> None:
    with pytest.raises(SilicastError, match=said):
        asked(objective, {"ttft_ms": 100.0})


def test_flags_say_what_is_searched_for() -> None:
    def objective(**flags: Any) -> str:
        users = flags.pop("users", False)
        given = ServeFlags(model="m", device="d", slo="ttft=1s", **flags)
        return str(capacity_scenario(given, {}, users=users)["workload"]["objective"])

    assert objective() == "max_rate"
    assert objective(rate=5.0) == objective(concurrency=5) == "min_gpus"
    assert objective(users=True) == "max_concurrency"
    with pytest.raises(SilicastError, match="searched for"):
        objective(users=True, rate=5.0)
    with pytest.raises(SilicastError, match="--slo"):
        capacity_scenario(ServeFlags(model="m", device="d"), {})
