"""Task ``graph``: one forward pass of a model."""

from typing import Any

import pytest

from silicast.scenario.run import reply_to

CASE: dict[str, Any] = {
    "task": "graph",
    "device": "V100-PCIE-32GB",
    "model": "gpt2_large",
    "precision": {"weights": "fp32", "activations": "fp32"},
    "workload": {"mode": "inference", "batch": 4, "seq_len": 1024},
}


def answered(**changes: Any) -> Any:
    reply = reply_to({**CASE, **changes})
    assert reply.ok, reply
    return reply


def refused(**changes: Any) -> Any:
    reply = reply_to({**CASE, **changes})
    assert not reply.ok
    return reply.error  # type: ignore[union-attr]


def test_metrics_and_order() -> None:
    reply = answered()
    assert set(reply.metrics) == {"e2e_ms", "forward_ms", "energy_j", "power_w"}
    for name, belief in reply.metrics.items():
        assert reply.bound.get(name, 0.0) <= belief.p05 <= belief.estimate <= belief.p95
    assert reply.metrics["forward_ms"].estimate < reply.metrics["e2e_ms"].estimate
    assert sum(part["exposed_ms"] for part in reply.why["parts"]) == pytest.approx(
        reply.metrics["e2e_ms"].estimate
    )


def test_plain_eager_is_the_default() -> None:
    assert answered(engine="torch-eager").metrics == answered().metrics


def test_compiling_saves_time() -> None:
    compiled = answered(engine="torch-compile").metrics["e2e_ms"].estimate
    assert compiled < answered().metrics["e2e_ms"].estimate


def test_fused_attention_saves_time() -> None:
    engine = {"name": "torch-eager", "options": {"attention": "fused"}}
    fused = answered(engine=engine)
    assert fused.metrics["e2e_ms"].estimate < answered().metrics["e2e_ms"].estimate
    assert not any("one by one" in warning for warning in fused.warnings)
    assert any("one by one" in warning for warning in answered().warnings)


def test_more_work_takes_longer() -> None:
    one, two = (
        answered(workload={"batch": b, "seq_len": 512}).metrics["e2e_ms"].estimate for b in (1, 2)
    )
    assert one < two


def test_a_serving_engine_says_what_is_taken() -> None:
    assert any("serves" in warning for warning in answered(engine="vllm").warnings)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"workload": {"mode": "inference", "batch": 1, "seq_len": 8, "optimizer": "adamw"}},
            "workload.optimizer",
        ),
        (
            {"engine": {"name": "torch-eager", "options": {"autocast": "int4"}}},
            "engine.options.autocast",
        ),
        ({"workload": {"graph": "model.json"}, "model": None}, "precision"),
        ({"workload": {"graph": "model.json"}, "model": None, "precision": None}, "workload.graph"),
        (
            {"engine": {"name": "torch-eager", "options": {"attention": "magic"}}},
            "engine.options.attention",
        ),
        ({"engine": {"name": "torch-eager", "options": {"other": 1}}}, "engine.options.other"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, Any], field: str) -> None:
    assert refused(**changes).field == field


def test_automatic_mixed_precision_is_between_both_formats() -> None:
    def forward(weights: str, **options: str) -> float:
        result = answered(
            device="A100",
            precision={"weights": weights},
            engine={"name": "torch-eager", "options": {"attention": "math", **options}},
            workload={"mode": "training", "batch": 8, "seq_len": 512},
        )
        return float(result.metrics["e2e_ms"].estimate)

    assert forward("bf16") < forward("fp32", autocast="bf16") < forward("fp32")
    assert (
        refused(
            precision={"weights": "bf16"},
            engine={"name": "torch-eager", "options": {"autocast": "bf16"}},
        ).field
        == "engine.options.autocast"
    )


def test_a_training_pass_has_a_backward_half() -> None:
    result = answered(workload={"mode": "training", "batch": 4, "seq_len": 256})
    assert set(result.metrics) == {"e2e_ms", "forward_ms", "backward_ms", "energy_j", "power_w"}
    more = answered(workload={"mode": "training", "batch": 4, "seq_len": 256, "optimizer": "adamw"})
    assert more.metrics["e2e_ms"].estimate > result.metrics["e2e_ms"].estimate
