"""Switches of a training engine that cost time or memory, in an answer."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.core.errors import SilicastError
from silicast.scenario.answer import Answer
from silicast.scenario.decode import decode
from silicast.scenario.run import run

LARGE = {"seq_len": 4096, "global_batch": 32, "recompute": "none"}
SMALL = {"seq_len": 256, "global_batch": 32, "recompute": "none"}


def asked(
    options: dict[str, Any] | None = None,
    work: dict[str, Any] = LARGE,
    engine: str = "megatron",
    device: str = "H100",
) -> Answer:
    return run(
        decode(
            {
                "format": 1,
                "task": "training",
                "model": "Llama-3.2-1B",
                "device": device,
                "parallel": {"tp": 2, "dp": 4, "zero": 1},
                "cluster": {"gpus": 8},
                "engine": {"name": engine, "options": options or {}},
                "workload": dict(work),
            }
        )
    )


def step_s(answer: Answer) -> float:
    return answer.metrics["step_time_s"].estimate


def ratio(answer: Answer) -> float:
    step = answer.metrics["step_time_s"]
    return step.p95 / step.p05


def test_a_small_model_waits_for_the_host() -> None:
    eager, captured = asked(work=SMALL), asked({"cuda_graph": "full"}, SMALL)
    assert step_s(eager) > 2.0 * step_s(captured)
    large = step_s(asked()) / step_s(asked({"cuda_graph": "full"}))
    assert large < step_s(eager) / step_s(captured)


def test_a_slower_host_takes_longer_where_it_is_what_limits() -> None:
    """EPYC 7742 takes 1.5 times as long; an A100's kernels would not, they hardly count here."""
    host = step_s(asked(work=SMALL, device="A100")) / step_s(asked(work=SMALL))
    assert host == pytest.approx(1.5, abs=0.1)


def test_deterministic_mode_costs_time_and_says_so() -> None:
    plain, same_bits = asked(), asked({"deterministic": True})
    assert step_s(plain) < step_s(same_bits) < 1.2 * step_s(plain)
    assert ratio(same_bits) > ratio(plain)
    assert any("deterministic mode costs time" in each for each in same_bits.warnings)
    assert not any("deterministic" in each for each in plain.warnings)


def test_a_loss_of_operators_takes_longer_than_one_kernel() -> None:
    kernels_limit = {**LARGE, "seq_len": 8192, "micro_batch": 2}
    assert step_s(asked({"fused_loss": False}, kernels_limit)) > step_s(asked(work=kernels_limit))


def test_switches_of_unknown_cost_are_named_and_widen() -> None:
    plain, one = asked(), asked({"unpriced": ["profile"]})
    four = asked({"unpriced": ["profile", "b", "c", "d"]})
    assert step_s(plain) == step_s(one) == step_s(four)
    assert ratio(plain) < ratio(one) < ratio(four)
    assert any("profile" in each for each in one.warnings)


def test_dropout_keeps_two_masks_a_layer() -> None:
    """2 bytes an element of the residual stream, shared by the sequence parallel ranks."""
    plain, drops = asked(), asked({"dropout": True})
    masks = 2 * 4096 * 2048 // 2 * 16 / 1e9
    more = drops.why["memory_gb"]["activations"] - plain.why["memory_gb"]["activations"]
    assert more == pytest.approx(masks, rel=1e-6)


def test_products_that_add_to_gradients_keep_a_tensor_of_each_shape() -> None:
    fused, apart = asked(), asked({"fused_gradient_accumulation": False})
    assert apart.why["memory_gb"]["buffers"] < fused.why["memory_gb"]["buffers"]


def test_memory_is_three_numbers() -> None:
    answer = asked()
    parts, metrics = answer.why["memory_gb"], answer.metrics
    allocated, reserved, whole = (
        metrics[name].estimate
        for name in ("memory_allocated_gb", "memory_reserved_gb", "memory_gb")
    )
    names = ("weights", "gradients", "optimizer", "activations", "transient", "buffers")
    assert allocated == pytest.approx(sum(parts[name] for name in names))
    assert reserved - allocated == pytest.approx(parts["fragmentation"])
    assert whole - reserved == pytest.approx(parts["framework"])


@pytest.mark.parametrize("options", [{"deterministic": 1}, {"unpriced": "profile"}])
def test_a_wrong_value_is_named(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(SilicastError) as error:
        asked(options)
    assert error.value.field == f"engine.options.{name}"
