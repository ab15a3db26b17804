"""What a host does beside a training step, in an answer."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

FAILS = {"mtbf_hours_per_gpu": 500.0}
TWICE = {"failures": FAILS | {"checkpoint_s": 3}}


def asked(
    cluster: dict[str, Any] | None = None, model: str = "Llama-3.2-1B", **work: Any
) -> Answer:
    host = work.pop("host", None)
    tree = {
        "format": 1, "task": "training", "model": model, "device": "H100",
        "parallel": {"tp": 2, "dp": 4, "zero": 1}, "cluster": {"gpus": 8, **(cluster or {})},
        "workload": {"seq_len": 2048, "global_batch": 32, "recompute": "none", **work},
    }  # fmt: skip
    return run(decode(tree | ({"host": host} if host else {})))


def step_s(answer: Answer) -> float:
    return answer.metrics["step_time_s"].estimate


def test_offloading_says_what_the_host_holds() -> None:
    plain, away = asked(), asked(offload={"optimizer": 1.0, "update": "device"})
    assert "host_memory_gb" not in plain.metrics
    saved = plain.metrics["memory_gb"].estimate - away.metrics["memory_gb"].estimate
    assert away.metrics["host_memory_gb"].estimate == pytest.approx(8 * saved)
    assert away.why["memory_gb"]["optimizer"] == 0.0
    assert step_s(away) > step_s(plain)


def test_a_host_that_is_too_small_is_named() -> None:
    away = {"optimizer": 1.0}
    assert any(
        "which has 1 GB" in warning
        for warning in asked(offload=away, host={"memory_gb": 1}).warnings
    )
    assert not any("host's memory" in warning for warning in asked(offload=away).warnings)
    unknown = asked(offload=away, host={"cpu": "mine", "factor": 1.0})
    assert any("host.memory_gb" in warning for warning in unknown.warnings)


@pytest.mark.parametrize(
    ("work", "field"),
    [
        ({"host": {"link_gb_per_s": 0}}, "host.link_gb_per_s"),
        ({"host": {"memory_gb_per_s": 0}}, "host.memory_gb_per_s"),
        ({"offload": {"weights": 2}}, "workload.offload.weights"),
        ({"offload": {"update": "nobody"}}, "workload.offload.update"),
        ({"data_loading": {}}, "workload.data_loading"),
        ({"data_loading": {"tokens_per_s": 1, "seconds_per_batch": 1}}, "workload.data_loading"),
        ({"data_loading": {"tokens_per_s": 0}}, "workload.data_loading.tokens_per_s"),
        ({"checkpoint": {"storage_gb_per_s": 0}}, "workload.checkpoint.storage_gb_per_s"),
        ({"checkpoint": {"storage_gb_per_s": 1}}, "workload.checkpoint.interval_s"),
        (
            {"checkpoint": {"storage_gb_per_s": 1, "interval_s": 9, "interval_steps": 9}},
            "workload.checkpoint.interval_s",
        ),
        (
            {"checkpoint": {"storage_gb_per_s": 1}, "cluster": TWICE},
            "cluster.failures.checkpoint_s",
        ),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(work: dict[str, Any], field: str) -> None:
    with pytest.raises(SilicastError) as caught:
        asked(**work)
    assert caught.value.field == field


def test_loaders_hold_a_step_up_by_what_they_take_longer() -> None:
    plain = asked()
    metric, load = plain.metrics["step_time_s"], 10.0
    slow = asked(data_loading={"seconds_per_batch": load}).metrics["step_time_s"]
    assert (slow.p05, slow.estimate, slow.p95) == (load, load, load)
    quick = asked(data_loading={"seconds_per_batch": metric.p05 / 2})
    assert quick.metrics == plain.metrics
    first = asked(data_loading={"seconds_per_batch": load, "overlap": False})
    assert step_s(first) == pytest.approx(metric.estimate + load)
    assert sum(each["exposed_ms"] for each in first.why["parts"]) == pytest.approx(
        1e3 * step_s(first)
    )
    rate = asked(data_loading={"tokens_per_s": 2048 * 32 / load}).metrics["step_time_s"]
    assert rate.estimate == pytest.approx(load)


def test_checkpoints_are_in_step_time_and_goodput() -> None:
    result = asked(checkpoint={"storage_gb_per_s": 2.0, "interval_steps": 100})
    # 16-bit weights, fp32 copies and two moments of 1.24e9 parameters
    size = result.metrics["checkpoint_gb"].estimate
    assert size == pytest.approx(14 * 1.236, rel=0.01)
    stall = result.metrics["checkpoint_stall_s"].estimate
    assert stall == pytest.approx(size / 2.0)
    mean = result.metrics["step_time_with_checkpoints_s"].estimate
    assert mean == pytest.approx(step_s(result) + stall / 100)
    assert result.metrics["goodput"].estimate == pytest.approx(step_s(result) / mean)
    beside = asked(
        checkpoint={"storage_gb_per_s": 2.0, "interval_steps": 100, "asynchronous": True}
    )
    assert beside.metrics["checkpoint_stall_s"].estimate < 0.05 * stall


def test_one_mechanism_finds_the_best_interval() -> None:
    result = asked({"failures": FAILS}, checkpoint={"storage_gb_per_s": 2.0})
    stall = result.metrics["checkpoint_stall_s"].estimate
    stated = asked({"failures": FAILS | {"checkpoint_s": stall}})
    for name in ("goodput", "checkpoint_interval_s", "tokens_per_s_with_failures"):
        assert result.metrics[name] == stated.metrics[name]
    slow = {"storage_gb_per_s": 0.01, "asynchronous": True}
    beside = asked({"failures": FAILS}, checkpoint=slow)
    wait = beside.metrics["checkpoint_interval_s"].estimate
    assert wait >= beside.why["goodput"]["checkpoint_write_s"] - 1.0
