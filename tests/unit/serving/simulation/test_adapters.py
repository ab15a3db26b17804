"""What adapters add to steps, and the memory that they take."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.serving.simulation.adapters import AdaptedPrices, RequestAdapters, adapted
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import Simulation
from silicast.serving.traffic.requests import Requests
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

NONE = np.zeros(0, dtype=np.int64)


def deployed(name: str = "Llama-3.1-8B", plan: Plan = Plan()) -> Deployment:
    return Deployment.from_model(find_model(name), find_device("H100"), find_engine("vllm"), plan)


def prices(adapters: RequestAdapters, deployment: Deployment | None = None) -> AdaptedPrices:
    deployment = deployment or deployed()
    adapted_prices = adapted(replica_spec(deployment), deployment, adapters).prices
    assert isinstance(adapted_prices, AdaptedPrices)
    return adapted_prices


def test_an_adapter_takes_the_memory_of_its_weights() -> None:
    deployment = deployed()
    plain = replica_spec(deployment)
    result = adapted(plain, deployment, RequestAdapters(16, count=10))
    parameters = 41_943_040  # rank 16 on all products of Llama-3.1-8B
    lost = (plain.limits.blocks - result.limits.blocks) * plain.layout.block_bytes
    assert 0 <= lost - 10 * 2 * parameters < plain.layout.block_bytes
    with pytest.raises(SilicastError, match="no room") as caught:
        adapted(plain, deployment, RequestAdapters(16, count=10_000))
    assert caught.value.field == "lora.adapters"


def test_tensor_parallel_ranks_share_the_larger_side() -> None:
    whole = prices(RequestAdapters(16))
    cut = prices(RequestAdapters(16), deployed(plan=Plan(8)))
    assert 1 / 8 < cut.each_s / whole.each_s < 0.7


def test_more_adapters_targets_and_rank_cost_more() -> None:
    few = ("q_proj", "v_proj")
    added = [
        prices(adapters).added_s((), 32)
        for adapters in (
            RequestAdapters(16, few),
            RequestAdapters(16),
            RequestAdapters(16, count=8),
            RequestAdapters(64, count=8),
            RequestAdapters(64, count=64),
        )
    ]
    assert added == sorted(added)
    assert added[0] > 0.0


def test_a_run_is_its_steps() -> None:
    current = prices(RequestAdapters(16, count=4))
    lengths = np.full(20, 300)
    run, step = current.run(lengths, 3), current.price((), lengths)
    assert run.pass_s[0] == pytest.approx(step.pass_s, rel=1e-9)
    assert current.price([(64, 64)], NONE).pass_s > current.target.price([(64, 64)], NONE).pass_s


def test_requests_of_adapters_are_served_slower() -> None:
    deployment = deployed()
    plain = replica_spec(deployment)
    requests = Requests.closed(4, [100] * 8, [20] * 8)
    ends = [
        Simulation(requests, [spec]).run().end_ns
        for spec in (plain, adapted(plain, deployment, RequestAdapters(16, count=4)))
    ]
    assert ends[0] < ends[1] < 2 * ends[0]


@pytest.mark.parametrize(
    ("model", "targets", "kind"),
    [
        ("Llama-3.1-8B", ("zz",), "unknown_name"),
        ("DeepSeek-V2-Lite", ("q_proj",), "not_yet"),
        ("Qwen3-30B-A3B", ("up_proj",), "not_yet"),
    ],
)
def test_what_has_no_adapters_is_refused(model: str, targets: tuple[str, ...], kind: str) -> None:
    deployment = deployed(model, Plan(4))
    with pytest.raises(SilicastError) as caught:
        adapted(replica_spec(deployment), deployment, RequestAdapters(16, targets))
    assert (caught.value.kind, caught.value.field) == (kind, "lora.targets")
