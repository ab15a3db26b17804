"""What the host holds for a rank: bytes that leave, come back, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.host_copies import HOST_COPY, HOST_UPDATE, link_bytes_per_s
from silicast.composition.passes.deployment import Deployment
from silicast.core.errors import SilicastError
from silicast.distributed.memory.memory import Rules, plan_memory
from silicast.distributed.memory.memory_search import remedies
from silicast.distributed.memory.offload import SHARES, HostMoves, Offload, host_updates
from silicast.distributed.pipeline.chunk import Rank, chunk_graph, host_moves
from silicast.distributed.ranks.adapters import RankAdapters
from silicast.distributed.ranks.data_ranks import Exchanges, layer_parameters
from silicast.distributed.ranks.plan import TrainingPlan
from silicast.distributed.step.step import MicroBatches, Overlap, predict_step
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.workload.frameworks.eager import Framework
from silicast.workload.graphs.graph import Graph, Node
from silicast.workload.graphs.op import Op
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan

MODEL = find_model("Llama-3.2-1B")
ALL = Offload(1.0, 1.0, 1.0)
SHARE = st.floats(0.0, 1.0)


@cache
def rank(
    offload: Offload = Offload(), plan: TrainingPlan = TrainingPlan(), device: str = "H100",
    host: Host = Host(), adapters: RankAdapters | None = None,
) -> Rank:  # fmt: skip
    current = Deployment.from_model(
        MODEL, find_device(device), find_engine("megatron"), Plan(tp=plan.tp),
        Precision.from_formats(weights="bf16"),
    )  # fmt: skip
    current = replace(current, machine=replace(current.machine, host=host))
    framework = Framework(
        compiled=True, attention="fused", fused_layers=True, training=Training(dropout=False)
    )
    return Rank(current, plan, framework, 2048, 1, adapters, offload)


def size(node: Node, name: str) -> int:
    size = node.op.dim(name)
    assert isinstance(size, int)
    return size


def moved(graph: Graph, name: str) -> int:
    """Bytes of the copies of a name, as often as they run."""
    return sum(
        block.count * size(node, "bytes")
        for block, node in graph.nodes()
        if node.op.family == HOST_COPY and node.name == name
    )


def seconds(offload: Offload, **more: Any) -> float:
    return predict_step(rank(offload, **more), 2, "adamw").step.seconds


@given(SHARE, SHARE, SHARE, st.sampled_from((0, 1, 2, 3)), st.sampled_from((1, 2)))
def test_the_host_holds_what_the_device_does_not(
    activations: float, optimizer: float, weights: float, zero: int, pp: int
) -> None:
    plan = TrainingPlan(dp=4, pp=pp, zero=zero)
    away = Offload(activations, optimizer, weights, "device")
    here = plan_memory(MODEL, plan, 2048, 1, 4)
    result = plan_memory(MODEL, plan, 2048, 1, 4, Rules(offload=away))
    left = sum(
        getattr(here, n) - getattr(result, n) for n in ("activations", "optimizer", "weights")
    )
    assert (left == result.host).all()
    assert (result.gradients == here.gradients).all()
    assert (here.host == 0).all()


def test_a_cpu_that_updates_holds_gradients_too() -> None:
    ways = (Offload(optimizer=1.0), Offload(optimizer=1.0, update="device"))
    by_host, by_device = (
        plan_memory(MODEL, TrainingPlan(), 2048, 1, 1, Rules(offload=away)) for away in ways
    )
    assert by_host.host[0] - by_device.host[0] == by_host.gradients[0]


@pytest.mark.parametrize(
    "plan", [TrainingPlan(), TrainingPlan(tp=2, dp=2, zero=1, sequence_parallel=True)]
)
def test_what_goes_down_comes_up(plan: TrainingPlan) -> None:
    current = rank(ALL, plan)
    graph = chunk_graph(current, 0, MODEL.layers, MicroBatches.from_rank(current, Overlap()).last)
    remaining = sum(
        host_moves(current).kept[MODEL.kinds.index(MODEL.kind(i))] for i in range(MODEL.layers)
    )
    here = plan_memory(MODEL, plan, 2048, 1, 1)
    assert moved(graph, "activations_down") == moved(graph, "activations_up") == remaining
    assert 0.9 * here.activations[0] < remaining < here.activations[0]
    layers = layer_parameters(
        replace(graph, blocks=tuple(block for block in graph.blocks if block.layers)), MODEL
    )
    assert moved(graph, "weights_up") == moved(graph, "weights_up_again") == 2 * sum(layers)
    whole = layer_parameters(graph, MODEL)[0]
    assert moved(graph, "gradients_down") == pytest.approx(4 * whole / plan.sharers, rel=1e-6)


def test_gradients_go_down_once_a_step() -> None:
    kinds = MicroBatches.from_rank(rank(ALL), Overlap())
    assert kinds.last.gradients_down
    assert not kinds.first.gradients_down
    assert not kinds.between.gradients_down


@given(
    SHARE, SHARE, st.sampled_from(("host", "device")), st.integers(1, 10**9),
    st.sampled_from((0, 2, 4)),
)  # fmt: skip
def test_an_update_moves_every_byte_once(
    optimizer: float, weights: float, who: str, elements: int, gradient: int
) -> None:
    away = Offload(0.0, optimizer, weights, who)  # type: ignore[arg-type]
    node = Node("update", Op.make("optimizer", elements=elements))
    nodes = host_updates(node, elements, "adamw", "bf16", away, gradient)
    held, home = int(elements * optimizer), int(elements * weights)

    def total(name: str, family: str, unit: str = "bytes") -> int:
        return sum(
            size(each, unit)
            for each in nodes
            if each.op.family == family and each.name.startswith(name)
        )

    by_host = held if who == "host" else 0
    assert total("update", "optimizer", "elements") == elements - by_host
    assert total("states_up", HOST_COPY) == total("states_down", HOST_COPY) == 12 * (held - by_host)
    assert total("gradients_down", HOST_COPY) == gradient * by_host
    assert total("host_update", HOST_UPDATE) == by_host * 30
    assert total("weights_up", HOST_COPY) == 2 * max(by_host - home, 0)
    assert total("weights_down", HOST_COPY) == 2 * max(home - by_host, 0)
    names = [each.name for each in nodes]
    assert len(set(names)) == len(names)
    assert all(name in names for each in nodes for name in each.inputs)


def test_an_infinite_link_costs_nothing() -> None:
    quick = Host("host", link_gb_per_s=1e12, memory_gb_per_s=1e15)
    away = Offload(1.0, 1.0, 1.0, "device")
    assert seconds(away, host=quick) == pytest.approx(seconds(Offload()), rel=2e-3)


@pytest.mark.parametrize("name", SHARES)
def test_a_slower_link_is_slower_and_none_is_refused(name: str) -> None:
    shares: dict[str, Any] = {name: 1.0}
    away = Offload(**shares, update="device")
    steps = [seconds(away, host=Host("host", link_gb_per_s=rate)) for rate in (400.0, 40.0, 4.0)]
    assert steps[0] <= steps[1] < steps[2]
    assert seconds(Offload()) <= steps[0]


def test_copies_hide_behind_work() -> None:
    for device, hidden in (("GB200", 0.6), ("A100", 0.1)):
        current = rank(Offload(activations=1.0), device=device)
        both = 2 * 2 * host_moves(current).kept[0] * MODEL.layers
        copies = both / link_bytes_per_s(current.deployment.machine) / 0.85
        more = predict_step(current, 2, "adamw").step.seconds - seconds(Offload(), device=device)
        assert 0.0 < more < (1.0 - hidden) * copies


@pytest.mark.parametrize(
    "plan", [TrainingPlan(pp=4), TrainingPlan(dp=4, zero=3), TrainingPlan(dp=2, pp=2, zero=1)]
)
def test_every_kind_of_plan_takes_it(plan: TrainingPlan) -> None:
    assert seconds(ALL, plan=plan) > seconds(Offload(), plan=plan)


def test_adapters_leave_little_to_offload() -> None:
    adapters = RankAdapters(16, ("qkv", "o"))
    lora = rank(Offload(optimizer=1.0), adapters=adapters)
    graph = chunk_graph(lora, 0, MODEL.layers, MicroBatches.from_rank(lora, Overlap()).last)
    full = rank(Offload(optimizer=1.0))
    whole = chunk_graph(full, 0, MODEL.layers, MicroBatches.from_rank(full, Overlap()).last)
    assert 0 < moved(graph, "gradients_down") < 0.02 * moved(whole, "gradients_down")


def test_offload_is_a_remedy() -> None:
    usable = 14e9
    result = remedies(MODEL, TrainingPlan(), 2048, 1, 1, Rules(), usable)
    assert "offload.optimizer = 1" in result
    for text in result:
        if text.startswith("offload."):
            name = text.removeprefix("offload.").partition(" = ")[0]
            rules = Rules(offload=Offload(**{name: 1.0}))  # type: ignore[arg-type]
            assert plan_memory(MODEL, TrainingPlan(), 2048, 1, 1, rules).total.max() <= usable


def test_shares_outside_0_to_1_are_refused() -> None:
    with pytest.raises(SilicastError) as caught:
        Offload(weights=1.5)
    assert caught.value.field == "offload.weights"


def test_a_device_without_a_link_says_so() -> None:
    device = find_device("H100")
    machine = replace(rank().deployment.machine, device=replace(device, links={}))
    with pytest.raises(SilicastError) as caught:
        link_bytes_per_s(machine)
    assert caught.value.field == "host.link_gb_per_s"


def test_nothing_offloaded_changes_nothing() -> None:
    assert chunk_graph(rank(), 0, 2, Exchanges()) == chunk_graph(
        rank(Offload(update="device")), 0, 2
    )


def test_copies_are_of_whole_elements_of_each_rank() -> None:
    """Ten dense parameters over four ranks and seven of experts over three: three and three."""
    moves = HostMoves(
        Offload(0.25, optimizer=0.5, weights=1.0), kept=(800, 44), sharers=(2, 4), states=(4, 3)
    )

    def sizes(nodes: list[Node]) -> list[object]:
        return [dict(node.op.dims)["bytes"] for node in nodes]

    assert sizes(moves.gradients_down((10, 7), 32, "last")) == [(3 + 3) * 4 // 2]
    assert sizes(moves.weights_up((10, 7), "up")) == [(5 + 2) * 2]
    assert sizes(moves.activations_down(0, "last")) == sizes(moves.activations_up(0)) == [200]
    assert sizes(moves.activations_down(1, "last")) == [11]
    none = HostMoves(Offload())
    assert none.gradients_down((10, 7), 32, "last") == none.weights_up((10, 7), "up") == []
    assert none.activations_down(0, "last") == none.activations_up(0) == []
