"""Serving scenarios whose pools share devices."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.scenario.answer import Answer, Refusal
from silicast.scenario.run import reply_to

WORKLOAD = {
    "requests": 40, "arrival": {"kind": "poisson", "rate_per_s": 4.0},
    "input_len": 256, "output_len": 32,
}  # fmt: skip


def scenario(mode: str = "time_slice", shares: Any = None, **changes: Any) -> dict[str, Any]:
    pools = {
        "chat": {"device": "H100", "model": "Llama-3.2-3B", "engine": "vllm"},
        "code": {"device": "H100", "model": "Llama-2-7B", "engine": "vllm"},
    }
    for name, item in changes.pop("pools", {}).items():
        pools.setdefault(name, {}).update(item)
    sharing = {"mode": mode} | ({} if shares is None else {"shares": shares})
    return {
        "task": "serving", "colocation": sharing, "pools": pools, "workload": WORKLOAD, "seed": 3,
    } | changes  # fmt: skip


def answered(tree: dict[str, Any]) -> Answer:
    reply = reply_to(tree)
    assert isinstance(reply, Answer), reply
    return reply


def refused(tree: dict[str, Any]) -> Any:
    reply = reply_to(tree)
    assert isinstance(reply, Refusal)
    return reply.error


@pytest.mark.parametrize(
    ("mode", "shares"),
    [("time_slice", [0.4, 0.6]), ("mps", None), ("mps", [0.3, 0.7]), ("mig", [3 / 7, 4 / 7])],
)
def test_every_model_has_its_metrics_beside_those_alone(mode: str, shares: Any) -> None:
    reply = answered(scenario(mode, shares))
    for name in ("chat", "code"):
        ratio = reply.metrics[f"{name}.tpot_mean_ratio"]
        assert ratio.p05 <= ratio.estimate <= ratio.p95
        assert ratio.estimate >= 1.0
        metric, alone = reply.metrics[f"{name}.tpot_p99_ms"], reply.why["colocation"]["pools"][name]
        p99 = reply.metrics[f"{name}.tpot_p99_ratio"].estimate
        assert metric.estimate / alone["alone"]["tpot_p99_ms"] == pytest.approx(p99)
    assert reply.tier == "analytic"
    assert reply.domain == ("near" if mode == "mig" else "out")
    assert any("no measurement of models beside each other" in text for text in reply.warnings)
    both = sum(reply.metrics[f"{name}.requests_per_s"].estimate for name in ("chat", "code"))
    assert reply.metrics["requests_per_s"].estimate == pytest.approx(both)


def test_parts_of_their_own_do_not_see_the_neighbour() -> None:
    shares = [3 / 7, 4 / 7]
    one = answered(scenario("mig", shares))
    other = answered(scenario("mig", shares, pools={"code": {"model": "Qwen3-8B"}}))
    current = [name for name in one.metrics if name.startswith("chat.")]
    assert current
    assert all(one.metrics[name] == other.metrics[name] for name in current)
    turns = answered(scenario("time_slice", shares))
    others = answered(scenario("time_slice", shares, pools={"code": {"model": "Qwen3-8B"}}))
    assert turns.metrics["chat.tpot_mean_ms"] != others.metrics["chat.tpot_mean_ms"]


def test_memory_is_split_by_share() -> None:
    reply = answered(scenario("time_slice", {"chat": 0.25, "code": 0.75}))
    even = answered(scenario("time_slice"))
    small, half = (each.why["colocation"]["pools"]["chat"]["engine_limits"]["kv_blocks"]
                   for each in (reply, even))  # fmt: skip
    assert small < half
    assert any("turns of unequal length" in text for text in reply.warnings)


@pytest.mark.parametrize(
    ("mode", "shares", "changes", "field", "words"),
    [
        ("mps", [0.5, 0.6], {}, "colocation.shares", "add up to 1.1"),
        ("mps", [0.5], {}, "colocation.shares", "1 shares for 2 pools"),
        ("mps", [0.5, 0.0], {}, "colocation.shares", "the share of code is 0"),
        ("mps", {"chat": 0.5, "cod": 0.5}, {}, "colocation.shares.cod", "no pool"),
        ("mps", {"chat": 0.5}, {}, "colocation.shares.code", "is missing"),
        ("mps", None, {"code": {"device": "A100"}}, "pools.code.device", "beside"),
        ("mps", None, {"code": {"count": 2}}, "pools.code", "beside"),
        ("mig", [0.9, 0.1], {}, "colocation.shares", "slices"),
        ("time_slice", [0.9, 0.1], {}, "pools.code", "does not start"),
        ("mps", None, {"code": {"role": "decode"}, "chat": {"role": "prefill"}}, "pools.chat",
         "not yet"),
    ],
)  # fmt: skip
def test_what_cannot_share_is_refused(
    mode: str, shares: Any, changes: Any, field: str, words: str
) -> None:
    error = refused(scenario(mode, shares, pools=changes))
    assert error.field == field
    assert words in error.message


def test_parts_have_no_links() -> None:
    pools = {name: {"parallel": {"tp": 2}} for name in ("chat", "code")}
    error = refused(scenario("mig", [3 / 7, 4 / 7], pools=pools))
    assert (error.kind, error.field) == ("unsupported", "pools.chat.parallel")
    answered(scenario("time_slice", pools=pools))


def test_a_mode_is_refused_where_there_is_none() -> None:
    pools = {name: {"device": "MI300X"} for name in ("chat", "code")}
    error = refused(scenario("mps", pools=pools))
    assert (error.kind, error.field) == ("unsupported", "colocation.mode")
    assert "NVIDIA" in error.message
    answered(scenario("time_slice", pools=pools))
