"""Layers that predict further tokens, trained beside the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import silicast
from silicast.composition.passes.training_step import Batch, model_flops
from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory import plan_memory
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.models.counting import parameters, predicting_flops
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.decoder import PREDICTING, build_graph

MODEL = find_model("MiMo-7B")
HIDDEN, VOCAB, TOKENS = 4096, 151_680, 2048
ONE = replace(MODEL, predicts=1)


def test_a_layer_more_and_the_head_again() -> None:
    """A projection of two hidden states, a layer, and logits of every token."""
    framework = Framework(compiled=True, attention="fused", fused_layers=True, training=Training())
    graph = framework_graph(build_graph(ONE), ONE, PassShape(1, TOKENS), framework)
    forward, backward = (
        next(each for each in graph.blocks if each.name == name)
        for name in (PREDICTING, f"{PREDICTING}_backward")
    )
    sizes = {node.name: dict(node.op.dims) for node in forward.nodes}
    assert sizes["mtp_projection"] == {"m": TOKENS, "n": HIDDEN, "k": 2 * HIDDEN}
    assert sizes["lm_head"] == {"m": TOKENS, "n": VOCAB, "k": HIDDEN}
    assert sizes["loss"] == {"rows": TOKENS, "vocab": VOCAB}
    assert {"qkv", "o", "gate_up", "down"} <= sizes.keys()
    assert any(node.name == "lm_head_grad_weight" for node in backward.nodes)
    losses = [block.name for block, node in graph.nodes() if node.name == "loss"]
    assert losses == ["head", PREDICTING]


def test_operations_are_those_of_its_products() -> None:
    """Three times: forward, and two gradients; attention sees half of all pairs."""
    layer = HIDDEN * (32 + 2 * 8) * 128 + 32 * 128 * HIDDEN + 3 * HIDDEN * 11_008
    linear = 2 * TOKENS * (layer + 2 * HIDDEN * HIDDEN + HIDDEN * VOCAB)
    pairs = TOKENS * (TOKENS + 1) // 2 * 4 * 32 * 128
    assert predicting_flops(ONE, [(TOKENS, TOKENS)]) == linear + pairs
    batch = Batch(TOKENS, 1)
    assert model_flops(ONE, batch) - model_flops(MODEL, batch) == 3 * (linear + pairs)
    assert predicting_flops(replace(MODEL, predicts=2), [(TOKENS, TOKENS)]) == 2 * (linear + pairs)


def test_parameters_count_where_they_are_trained() -> None:
    """Where more tokens are predicted than there are layers for, the same ones run again."""
    whole, without = parameters(MODEL), parameters(MODEL, mtp=False)
    assert MODEL.mtp_layers == 1
    assert parameters(ONE, mtp=False) == whole > without
    assert parameters(replace(MODEL, predicts=2), mtp=False) == whole


def test_the_last_rank_holds_them_with_a_copy_of_the_embedding() -> None:
    plan = TrainingPlan(pp=4)
    more, less = (
        plan_memory(
            each, plan, TOKENS, 1, chunks=[[b] for b in ((0, 9), (9, 18), (18, 27), (27, end))]
        )
        for each, end in ((ONE, 37), (MODEL, 36))
    )
    added = more.parameters - less.parameters
    own = parameters(MODEL) - parameters(MODEL, mtp=False)
    assert added.tolist() == [0, 0, 0, own + VOCAB * HIDDEN]
    assert np.all((more.total - less.total)[:-1] == 0)
    assert (more.activations - less.activations)[-1] > 0


def scenario(**workload: Any) -> dict[str, Any]:
    return {
        "task": "training", "device": "H100", "model": "MiMo-7B", "cluster": {"gpus": 8},
        "parallel": {"tp": 2, "pp": 2},
        "workload": {"seq_len": 2048, "micro_batch": 1, "global_batch": 16, "recompute": "none",
                     **workload},
    }  # fmt: skip


def test_each_costs_time_and_memory() -> None:
    answers = [silicast.predict(scenario(mtp_layers=count)).answer for count in (0, 1, 2)]
    for name in ("step_time_s", "memory_gb"):
        values = [each.metrics[name].estimate for each in answers]
        assert values[0] < values[1] < values[2]
    assert [sum(each.why["layers_of_chunks"]) for each in answers] == [36, 37, 38]


def test_what_the_engine_does_counts_where_nothing_is_stated() -> None:
    usual = silicast.predict(scenario()).answer
    assert usual.metrics == silicast.predict(scenario(mtp_layers=0)).answer.metrics
    assert any("mtp_layers" in each for each in usual.warnings)
    bridge = silicast.predict({**scenario(), "engine": "megatron-bridge"}).answer
    stated = silicast.predict({**scenario(mtp_layers=1), "engine": "megatron-bridge"}).answer
    assert bridge.metrics == stated.metrics


@pytest.mark.parametrize("count", [3, 5, 6, 8, 16])
def test_as_many_as_fill_whole_chunks_are_answered(count: int) -> None:
    """A change of the plan that an answer tries, or the plan itself, leaves chunks of no layers
    before the last, which holds all that predict: these take no time.
    """
    llama = {**scenario(mtp_layers=count), "model": "Llama-3.2-1B", "parallel": {"pp": 2}}
    two = silicast.predict(llama).answer
    assert two.why["layers_of_chunks"] == [(17 + count) // 2, (16 + count) // 2]
    chunks = {**llama, "parallel": {"pp": 2, "virtual_stages": 8}}
    many = silicast.predict(chunks).answer
    layers = many.why["layers_of_chunks"]
    assert sum(layers) == 16 + count
    assert layers[-1] == count
    assert 0 in layers
    assert many.metrics["step_time_s"].estimate > two.metrics["step_time_s"].estimate


def test_chunks_that_are_left_out_share_the_layers_that_predict_too() -> None:
    plan = {"pp": 2, "schedule": "interleaved"}
    llama = {**scenario(mtp_layers=4), "model": "Llama-3.2-1B", "parallel": plan}
    assert sum(silicast.predict(llama).answer.why["layers_of_chunks"]) == 20
    llama["workload"]["mtp_layers"] = 1
    with pytest.raises(SilicastError, match="17 layers") as error:
        silicast.predict(llama)
    assert error.value.field == "parallel.virtual_stages"


def test_an_encoder_predicts_none() -> None:
    wrong = {**scenario(mtp_layers=1), "model": "bert-base-uncased", "parallel": {}}
    wrong["workload"]["seq_len"] = 128
    with pytest.raises(SilicastError, match="mtp_layers"):
        silicast.predict(wrong)
