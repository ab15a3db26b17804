"""Answers of task serving beside their statistics."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import silicast
from silicast.report.answers import answer_report
from silicast.scenario.answer import Answer, Problem, Refusal
from silicast.scenario.answers.serving.answerer import prepared
from silicast.scenario.decode import decode
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
    assert not any("are longer" in warning for warning in warnings(1000))
    assert any(
        warning.startswith("2 of 2 requests are longer") and "4096" in warning
        for warning in warnings(4095)
    )


def case(workload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A scenario of 16 requests; fields of its workload, and others."""
    table = {
        "arrival": {"kind": "closed", "concurrency": 4}, "requests": 16, "input_len": 100,
        "output_len": 8, **(workload or {}),
    }  # fmt: skip
    return {
        "task": "serving", "model": "Llama-3.1-8B", "device": "h100", "workload": table, **fields
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
    current, result = answered(tier="analytic"), answered(tier="bound")
    assert result.tier == "bound"
    assert result.metrics.keys() == result.bound.keys() == current.bound.keys()
    assert "output_tokens_per_s" not in result.metrics
    for name, limit in current.bound.items():
        each = result.metrics[name]
        assert (each.estimate, each.p05, each.p95) == (limit, limit, current.metrics[name].p95)
    assert answer_report(case(tier="bound"), msgspec.to_builtins(result))


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
    remark = [text for text in answered(**fields).warnings if "does not read it" in text]
    option = list(fields["engine"]["options"])[-1]
    line = f"engine.options.{option} changes nothing here: policy {policy} does not read it"
    assert remark == ([line] if policy else [])


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


def remarks(workload: dict[str, Any], **fields: Any) -> list[str]:
    """Warnings about fields of the workload and the router."""
    remark = answered(workload, **fields).warnings
    return [text for text in remark if text.startswith(("workload.", "router"))]


TURNS = {"sessions": {"turns": 2}}
ALIKE = {"prefix": {"length": 64}}


@pytest.mark.parametrize(
    ("workload", "fields", "words"),
    [
        ({"prefix": {"hit_ratio": 0.5}}, engine("vllm-v0"), "workload.prefix.hit_ratio changes"),
        (ALIKE, engine("vllm", enable_prefix_caching=False), "workload.prefix.length changes"),
        ({}, {"router": "random"}, "router = random changes nothing here"),
        ({}, {"router": "session", "parallel": {"dp": 2}}, "as by round_robin"),
        ({}, {"router": "prefix_aware", "parallel": {"dp": 2}}, "as by least_loaded"),
        (
            {"arrival": {"kind": "poisson", "rate_per_s": 1e4, "concurrency": 1}},
            {},
            "workload.arrival.concurrency = 1: 15 of 16 requests are sent later than they come",
        ),
    ],
)
def test_what_a_workload_states_in_vain_is_remarked(
    workload: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    (remark,) = remarks(workload, **fields)
    assert words in remark


@pytest.mark.parametrize(
    ("workload", "fields"),
    [
        ({"prefix": {"hit_ratio": 0.5}}, engine("vllm")),
        ({"prefix": {"hit_ratio": 0.5}}, engine("vllm-v0", enable_prefix_caching=True)),
        ({"prefix": {"length": 64, "cache": False}}, engine("vllm-v0")),
        ({}, {"router": "random", "parallel": {"dp": 2}}),
        (TURNS, {"router": "session", "parallel": {"dp": 2}}),
        (ALIKE, {"router": "prefix_aware", "parallel": {"dp": 2}}),
        ({"arrival": {"kind": "poisson", "rate_per_s": 0.1, "concurrency": 4}}, {}),
    ],
)
def test_what_it_does_not_is_not(workload: dict[str, Any], fields: dict[str, Any]) -> None:
    assert remarks(workload, **fields) == []


def test_requests_that_few_clients_hold_back_are_counted_as_they_come_and_as_they_are_sent() -> (
    None
):
    arrival = {"kind": "poisson", "rate_per_s": 1e4}
    rates = [
        answered({"arrival": {**arrival, **clients}}).why["requests"]
        for clients in ({}, {"concurrency": 1})
    ]
    free, held = rates
    assert held["offered_per_s"] == free["offered_per_s"]
    assert held["sent_per_s"] < 0.1 * held["offered_per_s"]
    assert "sent_per_s" not in free
    assert "queue_growth" in free


def test_a_host_of_no_known_name_needs_a_factor() -> None:
    error = refused(host={"cpu": "foo"})
    assert (error.kind, error.field) == ("unknown_name", "host.cpu")
    assert "host.factor" in error.hint
    slow = answered(host={"cpu": "foo", "factor": 0.5}).metrics["tpot_mean_ms"]
    assert slow.estimate > answered().metrics["tpot_mean_ms"].estimate


def test_co_location_has_no_tier_bound() -> None:
    pools: dict[str, Any] = {"a": {}, "b": {}}
    error = refused(tier="bound", pools=pools, colocation={"mode": "time_slice"})
    assert (error.kind, error.field) == ("not_yet", "tier")


@pytest.mark.parametrize(("size", "count"), [(32, 1), (128, 0), (None, 0)])
def test_scales_of_other_groups_are_remarked(size: int | None, count: int) -> None:
    precision = {"weights": "int4", **({} if size is None else {"group_size": size})}
    remark = answered(precision=precision).warnings
    assert sum(text.startswith("precision.group_size = 32: kernels") for text in remark) == count


def test_tokens_for_money_are_as_uncertain_as_money_for_tokens() -> None:
    metrics = silicast.predict(
        task="serving", model="Llama-3.1-8B", device="H100", cluster={"price_per_gpu_hour": 2.0},
        workload={"arrival": {"kind": "closed", "concurrency": 4}, "requests": 16,
                  "input_len": 512, "output_len": 16},
    ).metrics  # fmt: skip
    each, whole = metrics["output_tokens_per_cost"], metrics["cost_per_million_output_tokens"]
    assert each.p05 * whole.p95 == pytest.approx(1e6)
    assert each.p95 * whole.p05 == pytest.approx(1e6)
    assert each.p05 < each.estimate < each.p95


def test_no_share_of_what_devices_can_do_is_above_one() -> None:
    metrics = silicast.predict(
        task="serving", model="BERT-base", device="A100", engine="triton-server",
        workload={"arrival": {"kind": "closed", "concurrency": 64}, "requests": 200,
                  "input_len": 128, "output_len": 1},
    ).metrics  # fmt: skip
    assert metrics["mfu"].p05 < metrics["mfu"].estimate <= metrics["mfu"].p95 <= 1.0


OPEN: dict[str, Any] = {
    "task": "serving",
    "model": "Llama-3.2-1B",
    "device": "l4",
    "workload": {
        "arrival": {"kind": "poisson", "rate_per_s": 400.0},
        "input_len": 128,
        "output_len": 8,
    },
}


def test_an_objective_has_a_run_that_is_long_enough_for_its_quantile() -> None:
    limits: dict[int, dict[str, float] | None] = {
        1000: None,
        4000: {"ttft_mean_ms": 9e9},
        8000: {"ttft_ms": 9e9, "quantile": 0.995},
    }
    quiet = {**OPEN["workload"], "arrival": {"kind": "poisson", "rate_per_s": 100.0}}
    for count, slo in limits.items():
        work = {**quiet, **({"slo": slo} if slo else {})}
        assert len(prepared(decode({**OPEN, "workload": work})).served.requests) == count
    assert len(prepared(decode(OPEN)).served.requests) == 4000  # more come than are answered


def test_a_quantile_of_few_requests_is_said_to_be_the_slowest() -> None:
    for count, quantile, said in ((20, "p99", True), (100, "p99", False), (20, "p95", False)):
        slo = {f"ttft_{quantile}_ms": 1e3}
        work = {**OPEN["workload"], "requests": count, "slo": slo}
        reply = reply_to({**OPEN, "workload": work})
        assert isinstance(reply, Answer)
        assert any("is that of the slowest; 100 show it" in line for line in reply.warnings) == said
