"""Task capacity with ``autoscale``: what it refuses, and an answer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.scenario.set_fields import with_fields

CASE: dict[str, Any] = {
    "task": "capacity",
    "model": "Llama-3.1-8B",
    "device": "h100",
    "workload": {
        "objective": "min_gpus",
        "slo": {"ttft_p90_ms": 500.0},
        "traffic": {
            "arrival": {
                "kind": "constant",
                "stages": [
                    {"rate_per_s": 20.0, "duration_s": 1200.0},
                    {"rate_per_s": 900.0, "duration_s": 600.0},
                ],
            },
            "input_len": 64,
            "output_len": 4,
        },
        "autoscale": {"policy": "predicted", "period_s": 60.0},
    },
}
STRETCHED = {
    "workload.traffic.arrival": {
        "kind": "constant",
        "stages": [{"rate_per_s": 0.01, "duration_s": 30000.0}],
    }
}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"workload.objective": "max_rate"}, "workload.objective", "min_gpus or min_cost"),
    ({"workload.search": {"vary": {"parallel.tp": [1, 2]}}}, "workload.search.vary", "sweep"),
    ({"workload.slo": {"ttft_mean_ms": 9.0}}, "workload.slo.ttft_mean_ms", "ttft_p99_ms"),
    ({"workload.slo": {"ttft_p90_ms": 0.5}}, "workload.slo", "higher limits"),
    (
        {"workload.search": {"max_gpus": 2}, "workload.autoscale.least": 3},
        "workload.search",
        "at least 3",
    ),
    ({"workload.autoscale.policy": "often"}, "workload.autoscale.policy", ""),
    ({"workload.autoscale.policy": []}, "workload.autoscale.policy", ""),
    ({"workload.autoscale.headroom": 1.0}, "workload.autoscale.headroom", ""),
    ({"workload.autoscale.disk_gb_per_s": 0.0}, "workload.autoscale.disk_gb_per_s", ""),
    ({"workload.autoscale.most": {"b": 2}}, "workload.autoscale.most.b", "none is named"),
    (
        {"workload.traffic.arrival": {"kind": "closed", "concurrency": 8}},
        "workload.traffic.arrival",
        "a trace",
    ),
    (
        {"workload.traffic.sessions": {"turns": 2}, "workload.traffic.requests": 50},
        "workload.traffic",
        "",
    ),
    (
        {"workload.autoscale.beside": {"b": {"pool": {"model": "no such model"}}}},
        "workload.autoscale.beside.b.traffic",
        "",
    ),
    (
        {
            "workload.autoscale.beside": {
                "b": {
                    "pool": {"model": "no such model"},
                    "traffic": deepcopy(CASE["workload"]["traffic"]),
                }
            }
        },
        "workload.autoscale.beside.b: model",
        "",
    ),
    ({"pools": {"a": {"count": 3}}}, "pools.a.count", "least=3"),
    ({"workload.autoscale.period_s": 1.0, **STRETCHED}, "workload.autoscale.period_s", "or more"),
    (
        {"pools": {n: {"role": n} for n in ("prefill", "decode")}},
        "pools.prefill.role",
        "pools that do both",
    ),
]


@pytest.mark.parametrize(("fields", "field", "hint"), REFUSED)
def test_refused(fields: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(SilicastError) as caught:
        run(decode(with_fields(CASE, fields)))
    assert caught.value.field.startswith(field), caught.value.field
    assert hint in caught.value.hint


def test_an_answer() -> None:
    answer = run(decode(CASE))
    metrics, fleet = answer.metrics, answer.why["fleet"]
    (model,) = fleet["models"]
    (replica,) = model["replicas"]
    assert replica["cold_start_s"] == pytest.approx(100.0 + 16.06, abs=0.01)  # 8.03 G weights x 2
    least = 20 * -(-20 // replica["carries_per_s"]) + 10 * -(-900 // replica["carries_per_s"])
    assert metrics["gpu_hours_least"].estimate <= least / 60 + 0.2
    assert metrics["gpu_hours_least"].estimate < metrics["gpu_hours_static"].estimate
    assert model["gpus_over_time"][0] == [0.0, 1]
    assert model["requests"] == 20 * 1200 + 900 * 600
    assert 0.0 < metrics["late_share"].estimate < 1.0  # nobody was told of the jump
    assert metrics["late_share"].p05 <= metrics["late_share"].estimate
    assert any("ready after 116 s" in text for text in answer.warnings)
    again = run(decode(CASE))
    assert again == answer


def test_models_beside_each_other_are_judged_together() -> None:
    """Each alone does with the devices that are there; both together do not."""
    traffic = deepcopy(CASE["workload"]["traffic"])
    fields = {
        "workload.search": {"max_gpus": 4},
        "workload.autoscale.beside": {"b": {"pool": {"model": "Llama-3.1-8B"}, "traffic": traffic}},
    }
    stages = traffic["arrival"]["stages"]
    alone = run(decode(with_fields(CASE, {"workload.search": {"max_gpus": 4}})))
    assert alone.why["fleet"]["models"][0]["static_gpus"] is not None
    both = run(decode(with_fields(CASE, fields)))
    assert [model["static_gpus"] for model in both.why["fleet"]["models"]] == [None, None]
    least = [both.metrics[f"{prefix}gpu_hours_least"].estimate for prefix in ("", "b.")]
    span_h = sum(stage["duration_s"] for stage in stages) / 3600.0
    assert sum(least) <= 4 * span_h * 1.01


def test_least_holds_for_fleets_that_it_is_compared_with() -> None:
    metrics = run(decode(with_fields(CASE, {"workload.autoscale.least": 12}))).metrics
    hours = metrics["gpu_hours_static"].estimate
    assert hours == metrics["gpu_hours_least"].estimate == metrics["gpu_hours"].estimate
    missed = metrics["missed_probability"]
    assert (missed.estimate, missed.p05) == (0.0, 0.0)
    assert missed.p95 == pytest.approx(0.1446, abs=1e-4)  # 1.645^2 / (16 + 1.645^2)
