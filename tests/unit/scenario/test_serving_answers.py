"""Answers of task serving beside their statistics."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

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


def engine(name: str, **options: Any) -> dict[str, Any]:
    return {"engine": {"name": name, "options": options}}


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        (engine("vllm", capacity_scheduler_policy="MAX_UTILIZATION"), "vllm-v1"),
        (engine("vllm", schedule_policy="lpm"), "vllm-v1"),
        (engine("vllm", watermark=0.1), "vllm-v1"),
        (engine("vllm-v0", enable_chunked_prefill=True), "vllm-v0"),
        (engine("vllm", policy="orca", enable_chunked_prefill=True), "orca"),
        (engine("vllm", enable_chunked_prefill=True), ""),
        (engine("vllm", scheduler_reserve_full_isl=True), ""),
        (engine("vllm", policy="sglang", schedule_policy="lpm"), ""),
    ],
)
def test_switches_that_a_policy_does_not_read_are_remarked(
    fields: dict[str, Any], policy: str
) -> None:
    said = [text for text in answered(**fields).warnings if "does not read it" in text]
    option = list(fields["engine"]["options"])[-1]
    line = f"engine.options.{option} changes nothing here: policy {policy} does not read it"
    assert said == ([line] if policy else [])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("capacity_scheduler_policy", "MAX", "GUARANTEED_NO_EVICT or MAX_UTILIZATION, found 'MAX'"),
        ("watermark", "low", "expected a number, found 'low'"),
        ("watermark", -3, "found -3"),
        ("max_num_seqs", -3, "found -3"),
        ("max_num_seqs", "-3", "found '-3'"),
    ],
)
def test_bad_values_of_switches_are_refused_under_every_policy(
    option: str, value: object, words: str
) -> None:
    error = refused(**engine("vllm", **{option: value}))
    assert error.field == f"engine.options.{option}"
    assert words in error.message


def test_co_location_has_no_tier_bound() -> None:
    pools: dict[str, Any] = {"a": {}, "b": {}}
    error = refused(tier="bound", pools=pools, colocation={"mode": "time_slice"})
    assert (error.kind, error.field) == ("not_yet", "tier")
