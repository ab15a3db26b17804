"""Answers of task serving beside their statistics."""

from __future__ import annotations

from typing import Any

import msgspec

from silicast.report.answers import answer_report
from silicast.scenario.answer import Answer, Problem, Refusal
from silicast.scenario.run import reply_to


def warnings(input_len: int) -> list[str]:
    reply = reply_to(
        {
            "task": "serving", "model": "Llama-2-7B", "device": "h100",
            "workload": {
                "arrival": {"kind": "closed", "concurrency": 1}, "requests": 2,
                "input_len": input_len, "output_len": 4,
            },
        }
    )  # fmt: skip
    assert isinstance(reply, Answer)
    return reply.warnings


def test_requests_beyond_the_models_length_are_counted() -> None:
    assert not any("are longer" in said for said in warnings(1000))
    assert any(
        said.startswith("2 of 2 requests are longer") and "4096" in said for said in warnings(4095)
    )


def case(workload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A scenario of 16 requests; fields of its workload, and others."""
    own = {
        "arrival": {"kind": "closed", "concurrency": 4}, "requests": 16, "input_len": 100,
        "output_len": 8, **(workload or {}),
    }  # fmt: skip
    return {
        "task": "serving", "model": "Llama-3.1-8B", "device": "h100", "workload": own, **fields
    }  # fmt: skip


def answered(workload: dict[str, Any] | None = None, **fields: Any) -> Answer:
    reply = reply_to(case(workload, **fields))
    assert isinstance(reply, Answer), reply
    return reply


def refused(workload: dict[str, Any] | None = None, **fields: Any) -> Problem:
    reply = reply_to(case(workload, **fields))
    assert isinstance(reply, Refusal), reply
    return reply.error


def test_of_tier_bound_latencies_are_at_their_limits() -> None:
    own, found = answered(tier="analytic"), answered(tier="bound")
    assert found.tier == "bound"
    assert found.metrics.keys() == found.bound.keys() == own.bound.keys()
    assert "output_tokens_per_s" not in found.metrics
    for name, limit in own.bound.items():
        each = found.metrics[name]
        assert (each.estimate, each.p05, each.p95) == (limit, limit, own.metrics[name].p95)
    assert answer_report(case(tier="bound"), msgspec.to_builtins(found))


def test_co_location_has_no_tier_bound() -> None:
    pools = {"a": {}, "b": {}}
    error = refused(tier="bound", pools=pools, colocation={"mode": "time_slice"})
    assert (error.kind, error.field) == ("not_yet", "tier")
