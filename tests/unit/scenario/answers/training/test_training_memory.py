"""Memory of a training step, as answers have it."""

from __future__ import annotations

from typing import Any

import pytest

from silicast.composition.engines.engine import find_engine
from silicast.distributed.memory.memory import Rules, plan_memory
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.scenario.answers.training.training_runs import TrainingRun, run_of
from silicast.scenario.decode import decode
from silicast.workload.models.lookup import find_model


def ran(
    model: str, engine: str | dict[str, Any], recompute: str | None = "none", **more: Any
) -> TrainingRun:
    work: dict[str, Any] = {"seq_len": 2048, "global_batch": 8, "micro_batch": 2}
    if recompute is not None:
        work["recompute"] = recompute
    return run_of(
        decode(
            {
                "format": 1, "task": "training", "model": model, "device": "h200",
                "engine": engine, "workload": work, **more,
            }
        )
    )  # fmt: skip


@pytest.mark.parametrize("model", ["Llama-3.2-1B", "OLMoE-1B-7B"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_one_device_keeps_what_the_closed_form_says(model: str, recompute: str) -> None:
    parts = ran(model, "megatron", recompute).memory.parts
    workspace_mb = find_engine("megatron").memory.workspaces_mb["hopper"]
    rules = Rules(
        recompute=recompute,
        framework_bytes=round(parts["framework"] * 1e9),
        workspace_bytes=round(workspace_mb * 1e6),
    )
    wanted = plan_memory(find_model(model), TrainingPlan(), 2048, 2, 4, rules)
    for name in ("weights", "gradients", "optimizer", "activations", "transient", "buffers"):
        assert parts[name] == pytest.approx(float(getattr(wanted, name)[0]) / 1e9), name


def test_one_device_recomputes_the_least_that_fits_by_the_same_count() -> None:
    result = ran("OLMoE-1B-7B", "megatron", None)
    assert result.recompute == "none"
    assert result.memory.parts["excess"] == 0.0


def test_an_encoder_and_attention_to_its_results_are_kept() -> None:
    precision = {"recipe": "fp32"}
    alone = ran("T5-base", "megatron", precision=precision)
    many = ran("T5-base", "megatron", precision=precision, parallel={"dp": 4})
    assert alone.memory.parts["activations"] == many.memory.parts["activations"]
    model = find_model("T5-base")
    assert model.encoder is not None
    tokens, hidden, inner = 2 * 2048, model.hidden, model.kind(0).intermediate
    of_encoder = 4 * (4 * hidden + 4 * hidden + 2 * inner + model.kind(0).heads)
    crossing = 4 * (2 * hidden + 4 * hidden + model.kind(0).heads)
    each = model.encoder.layers * of_encoder + model.layers * (of_encoder + crossing)
    ends = 4 * 4 * hidden  # both last norms' inputs, the head's, and the encoder's results
    assert alone.memory.parts["activations"] * 1e9 == tokens * (each + ends)


def test_only_the_first_pipeline_rank_keeps_what_an_encoder_keeps() -> None:
    model, plan = find_model("T5-base"), TrainingPlan(pp=2)
    assert model.encoder is not None
    activations = plan_memory(model, plan, 512, 1, 1, chunks=(((0, 6),), ((6, 12),))).activations
    assert activations[0] > 1.5 * activations[1]


def test_a_models_own_code_is_counted_on_its_operations() -> None:
    result = ran("GPT-2", "pytorch", seed=0)
    assert result.memory.peak_at
    assert "transient" not in result.memory.parts


def test_a_model_far_too_large_for_one_device_does_not_fit() -> None:
    result = ran("DeepSeek-V3", "megatron")
    assert result.memory.parts["excess"] > 10_000.0


@pytest.mark.parametrize(("device", "less_mb"), [("a100", 75.0), ("h200", 0.0), ("gb200", 75.0)])
def test_workspaces_are_wide_where_sums_have_one_order_or_they_are_stated_so(
    device: str, less_mb: float
) -> None:
    """Three streams: 3 x (32 - 8.125) MiB, but on Hopper, where PyTorch's are always wide."""
    assert pytest.approx(3 * (32 - 8.125) * 2**20, rel=2e-3) == 75e6
    narrow, wide, ordered = (
        ran("Llama-3.2-1B", {"name": "megatron", "options": on}, device=device).memory.parts[
            "transient"
        ]
        for on in ({}, {"wide_workspaces": True}, {"deterministic": True})
    )
    assert (wide - narrow) * 1e3 == pytest.approx(less_mb, abs=1e-6)
    assert ordered == wide
