"""Memory of passes that run a model's own code, and where their time is shown."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.app.api import predict
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.timeline.timeline import Timeline
from silicast.core.numerics import F64
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.counting import parameters, weight_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan


def deployment(**plan: int) -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.2-1B"), find_device("H100"), find_engine("torch-eager"),
        plan=Plan(**plan),
    )  # fmt: skip


def test_a_batch_holds_the_scores_that_eager_attention_writes() -> None:
    where, framework = deployment(), Framework()
    short, long = (
        predict_static_batch(where, [tokens], 2, framework).memory.activations
        for tokens in (2048, 4096)
    )
    scores = 2 * 32 * 4096 * 4096  # one copy of them, 16 bits, 32 heads
    assert long > 2 * scores
    assert long > 2.5 * short, "they grow with the square of the length"
    padded = predict_static_batch(where, [100, 4096], 2, framework).memory
    assert padded == predict_static_batch(where, [4096, 4096], 2, framework).memory


def test_a_stage_holds_its_own_weights_and_results() -> None:
    whole, staged = (
        predict_framework_pass(deployment(pp=pp), 1, 512, Framework()).memory for pp in (1, 4)
    )
    where = deployment(pp=4)
    current = weight_bytes(where.model, where.plan, where.precision, policy=where.policy)
    assert staged.weights == current < whole.weights
    assert staged.activations < whole.activations


def training_graph(optimizer: str | None) -> dict[str, float]:
    work = {"mode": "training", "batch": 1, "seq_len": 128}
    if optimizer:
        work["optimizer"] = optimizer
    result = predict(
        {
            "task": "graph", "model": "Llama-3.2-1B", "device": "h100", "engine": "torch-eager",
            "workload": work,
        }
    )  # fmt: skip
    memory: dict[str, float] = result.why["memory_gb"]
    return memory


def test_a_training_pass_holds_gradients_and_what_its_optimizer_keeps() -> None:
    task = predict(
        {
            "task": "training", "model": "Llama-3.2-1B", "device": "h100", "engine": "torch-eager",
            "workload": {"seq_len": 128, "micro_batch": 1, "global_batch": 1, "optimizer": "adamw"},
        }
    ).why["memory_gb"]  # fmt: skip
    with_update, without = training_graph("adamw"), training_graph(None)
    for name in ("weights", "gradients", "optimizer"):
        assert with_update[name] == pytest.approx(task[name], rel=1e-9), name
    count = parameters(find_model("Llama-3.2-1B"), mtp=False)
    assert without["gradients"] == pytest.approx(4e-9 * count)
    assert "optimizer" not in without


def line(*runs: tuple[int, float, float]) -> F64:
    stream, start, end = (np.array(each) for each in zip(*runs, strict=True))
    none = np.zeros(len(runs))
    timeline = Timeline(none, start.astype(float), end.astype(float), stream, none)
    assert timeline.exposed_s.sum() + timeline.waited_s.sum() == pytest.approx(timeline.total_s)
    return timeline.exposed_s


def test_a_side_stream_is_exposed_where_the_main_one_is_idle() -> None:
    assert line((0, 0, 4), (1, 1, 3)).tolist() == [4, 0]
    assert line((1, 0, 4), (0, 1, 3)).tolist() == [2, 2]
    assert line((0, 0, 2), (1, 1, 5), (0, 3, 4)).tolist() == [2, 2, 1]
    assert line((1, 0, 2), (2, 1, 4), (0, 6, 7)).tolist() == [2, 2, 1]


def test_stages_fill_buckets_of_their_own() -> None:
    where = deployment(dp=2, pp=2)
    framework = Framework(training=Training())
    nodes = predict_framework_pass(where, 2, 64, framework).model.graph.nodes
    held = [
        weight_bytes(where.model, where.plan, where.precision, stage, where.policy)
        for stage in (0, 1)
    ]
    summed = [0, 0]
    for node in nodes:
        if node.name.startswith("gradient_sum"):
            size = node.op.dim("bytes")
            assert isinstance(size, int)
            summed[node.stage] += node.count * size
    norms = 2 * 2 * where.model.hidden * (where.model.layers + 1)  # taken apart, they state none
    for item, whole in zip(summed, held, strict=True):
        assert whole - norms <= item <= whole
