"""Host time of engine steps, each term by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.host_time import PHYSICS, HostWork, host_work_s
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.core.errors import SilicastError
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.graph import Block, Direction, Graph, Node
from silicast.workload.graphs.op import HOST_WAITS, Op, Variant
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def deployment(
    engine: str = "vllm", options: dict[str, Any] | None = None, **plan: Any
) -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.1-8B"),
        find_device("H100"),
        with_options(find_engine(engine), options or {}),
        plan=Plan(**plan),
    )


def model(engine: str = "vllm", options: dict[str, Any] | None = None, **plan: Any) -> StepModel:
    return StepModel.from_deployment(deployment(engine, options, **plan))


def launched_s(times: StepTimes) -> float:
    return float(times.launches_s[:, 0].sum())


def decode(count: int) -> BatchStates:
    return BatchStates.decode([100] * count, np.array([1]))


def test_work_is_constant_requests_and_transport() -> None:
    off = {"async_scheduling": False}
    host = find_engine("vllm").host
    one, four = (model(options=off).steps(decode(n)).between_s[0] for n in (1, 4))
    spread = model(options=off, tp=2).steps(decode(1)).between_s[0]
    assert one == pytest.approx((host.gap_us + host.step_us + host.request_us) * 1e-6)
    assert four - one == pytest.approx(3 * host.request_us * 1e-6)
    assert spread - one == pytest.approx(host.transport_us * 1e-6)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_workers_called_one_by_one_cost_each_device_beyond_the_first(devices: int) -> None:
    host = msgspec.structs.replace(
        find_engine("vllm").host, step_us=100.0, request_us=10.0, token_us=1.0,
        transport_us=50.0, rank_us=7.0, nodes_us=0.0,
    )  # fmt: skip
    engine = msgspec.structs.replace(find_engine("vllm"), host=host)
    machine = Machine(find_device("H100"), engine, Host("fast", 2.0))
    alone = 100.0 + 10.0 * 3 + 1.0 * 20
    assert host_work_s(machine, 3.0, 20.0, 1) == pytest.approx(alone / 2e6)
    spread = alone + 50.0 + 7.0 * (devices - 1)
    assert host_work_s(machine, 3.0, 20.0, devices) == pytest.approx(spread / 2e6)
    staged = alone + 50.0 + 7.0 * (devices - 1)
    assert host_work_s(machine, 3.0, 20.0, 2 * devices, 2) == pytest.approx(staged / 2e6)


@pytest.mark.parametrize(("devices", "crosses"), [(1, False), (8, False), (9, True), (16, True)])
def test_workers_on_other_hosts_cost_a_step_more(devices: int, crosses: bool) -> None:
    engine = find_engine("vllm")
    remote = msgspec.structs.replace(
        engine, host=msgspec.structs.replace(engine.host, nodes_us=9.0)
    )
    local = msgspec.structs.replace(engine, host=msgspec.structs.replace(engine.host, nodes_us=0.0))
    seconds = [
        host_work_s(Machine(find_device("H100"), each, Host("fast", 2.0)), 3.0, 20.0, devices)
        for each in (remote, local)
    ]
    assert seconds[0] - seconds[1] == pytest.approx(9e-6 / 2.0 if crosses else 0.0, abs=1e-12)


def test_asynchronous_work_hides_beside_the_device() -> None:
    host = find_engine("vllm").host
    times = model().steps(decode(4))
    assert times.between_s[0] == pytest.approx(host.gap_us * 1e-6)
    assert times.between_hidden_s[0] == pytest.approx((host.step_us + 4 * host.request_us) * 1e-6)
    usual = deployment()
    machine = replace(usual.machine, host=Host("slow", 0.01))
    slow = StepModel.from_deployment(replace(usual, machine=machine)).steps(decode(4))
    work = (host.step_us + 4 * host.request_us) * 1e-4
    assert slow.between_s[0] == pytest.approx(host.gap_us * 1e-4 + work - slow.device_s[0])
    assert slow.total_s[0] == pytest.approx(host.gap_us * 1e-4 + work), "the host sets the pace"


def test_version_0_does_all_its_work_between_two_steps() -> None:
    old, new = (model(engine).steps(decode(8)).between_s[0] for engine in ("vllm-v0", "vllm"))
    host = find_engine("vllm-v0").host
    assert old == pytest.approx((host.step_us + 8 * host.request_us) * 1e-6)
    assert new < old


def test_a_pass_in_pieces_launches_attention_and_pieces() -> None:
    host, layers = find_engine("vllm").host, 32
    prefill = model()
    small, large = (launched_s(prefill.steps(BatchStates.prefill([n]))) for n in (512, 513))
    attention = 2 * layers * host.dispatch_us  # it and what writes the cache
    assert small == pytest.approx((attention + (layers + 1) * host.piece_us) * 1e-6)
    kernels = sum(n.count for n in prefill.graph.nodes if n.op.family != "attention_decode")
    assert large == pytest.approx(kernels * host.dispatch_us * 1e-6), "launched one by one"
    assert large > small, "no graph was captured for so many tokens"


def framework(**host: Any) -> Machine:
    """An H100 under a framework with some host constants of its own, on a host twice as fast."""
    engine = find_engine("torch-eager")
    table = msgspec.structs.replace(engine.host, **host)
    return Machine(
        find_device("H100"), msgspec.structs.replace(engine, host=table), Host("fast", 2.0)
    )


def moved(name: str, *, read: bool = False, direction: Direction = "forward") -> Block:
    """A block of one kernel that runs for milliseconds, whose result the host may read."""
    variant = Variant(flags=((HOST_WAITS, True),) if read else ())
    op = Op.make("data_movement", variant, read_bytes=1 << 33, written_bytes=1 << 33)
    return Block(name, (Node(name, op),), direction=direction)


def idle_us(machine: Machine, *blocks: Block) -> list[float]:
    """Before each kernel, the time in which the device waits for the host."""
    timeline = predict_program(machine, Graph("blocks", blocks)).timeline
    waits: list[float] = (timeline.waited_s * 1e6).tolist()
    return waits


def test_a_launch_is_a_call_and_what_python_does_before_it() -> None:
    machine = framework(dispatch_us=6.0, between_us=10.0, backward_us=4.0)
    forward, backward = moved("a"), moved("b", direction="backward")
    launches = machine_launches(machine, forward, backward)
    assert launches == pytest.approx([8.0, 2.0]), "backward runs without Python"
    alike = framework(dispatch_us=6.0, between_us=10.0, backward_us=0.0)
    assert machine_launches(alike, forward, backward) == pytest.approx([8.0, 8.0])


def test_a_collective_costs_more_and_a_named_host_takes_longer() -> None:
    sums = Op.make("all_reduce", bytes=1 << 20, gpus=8, stride=1)
    blocks = moved("a"), Block("b", (Node("b", sums),))
    plain = framework(dispatch_us=6.0, between_us=10.0, collective_us=100.0)
    assert machine_launches(plain, *blocks) == pytest.approx([8.0, 58.0])
    slower = framework(
        dispatch_us=6.0, between_us=10.0, collective_us=100.0, slower_on={"fast": 1.5, "other": 9.0}
    )
    assert machine_launches(slower, *blocks) == pytest.approx([12.0, 87.0])


def machine_launches(machine: Machine, *blocks: Block) -> list[float]:
    """Host time of each launch, microseconds."""
    program = predict_program(machine, Graph("blocks", blocks))
    by_direction = program.times.launches_s[:, 0]
    assert by_direction.sum() == pytest.approx(program.timeline.launch_s.sum())
    launches: list[float] = (program.timeline.launch_s * 1e6).tolist()
    return launches


def test_the_host_goes_on_a_round_trip_behind_a_result_that_it_reads() -> None:
    blocks = (moved("a"), moved("b", read=True), moved("c"), moved("d"))
    usual = framework(dispatch_us=6.0, between_us=10.0)
    trip = load_physics(PHYSICS).default["round_trip_us"]
    assert idle_us(usual, *blocks) == pytest.approx([8.0, 0.0, trip / 2.0, 0.0], abs=1e-6)
    current = framework(dispatch_us=6.0, between_us=10.0, round_trip_us=60.0)
    assert idle_us(current, *blocks) == pytest.approx([8.0, 0.0, 30.0, 0.0], abs=1e-6)
    slow = framework(dispatch_us=90.0, between_us=10.0, round_trip_us=60.0)
    assert idle_us(slow, *blocks) == pytest.approx([50.0, 0.0, 50.0, 0.0], abs=1e-6)


@given(
    ran=st.floats(1e-6, 1.0), work=st.floats(0.0, 1.0), gap=st.floats(0.0, 1e-3),
    asynchronous=st.booleans(),
)  # fmt: skip
def test_laws_of_work_between_passes(
    ran: float, work: float, gap: float, asynchronous: bool
) -> None:
    host, pass_s = HostWork(np.array([work]), gap, asynchronous), np.array([ran])
    total = float((pass_s + host.waited_s(pass_s))[0])
    expected = ran + gap + (max(work - ran, 0.0) if asynchronous else work)
    assert total == pytest.approx(expected)
    assert max(ran, work) + gap - 1e-12 <= total <= ran + work + gap + 1e-12
    both = host.waited_s(pass_s) + host.hidden_s(pass_s)
    assert float(both[0]) == pytest.approx(work + gap)


@pytest.mark.parametrize(
    ("options", "field", "hint"),
    [
        ({"async_sheduling": True}, "engine.options.async_sheduling", "async_scheduling"),
        ({"cuda_graph": "some"}, "engine.options.cuda_graph", ""),
        ({"overlap": "yes"}, "engine.options.overlap", ""),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(SilicastError) as caught:
        with_options(find_engine("vllm"), options)
    assert caught.value.field == field
    assert hint in caught.value.hint


def test_options_change_how_a_step_is_launched() -> None:
    full, pieces, off = (
        launched_s(model(options={"cuda_graph": mode}).steps(decode(4)))
        for mode in ("full", "piecewise", "off")
    )
    assert 0.0 == full < pieces < off
    assert launched_s(model(options={"cuda_graph": False}).steps(decode(4))) == off


def test_an_engine_without_graphs_launches_from_python() -> None:
    """vLLM's compiled layers launch a kernel in 6 us, its Python as SGLang's in 40."""
    host = find_engine("vllm").host
    eager = with_options(find_engine("vllm"), {"cuda_graph": "off"}).host
    assert (host.dispatch_us, host.eager_us, eager.dispatch_us) == (6, 40, 40)
    assert with_options(find_engine("sglang"), {"cuda_graph": "off"}).host.dispatch_us == 40
    runs = model(options={"cuda_graph": "off"})
    kernels = sum(node.count for node in runs.graph.nodes if "prefill" not in node.op.family)
    assert launched_s(runs.steps(decode(1))) == pytest.approx(kernels * 40e-6)


def test_calls_that_launch_several_kernels() -> None:
    """SGLang quantises for each FP8 product, puts keys of latent attention together in two
    kernels beside attention, and quantises for experts.
    """
    where = Deployment.from_model(
        find_model("DeepSeek-R1"), find_device("B200"), find_engine("sglang"), plan=Plan(tp=8)
    )
    graph = StepModel.from_deployment(where).graph
    layer = {
        node.name: launches
        for node, launches in zip(graph.nodes, graph.launches, strict=True)
        if node.block == "layer_moe" and launches > 1
    }
    products = ("qkv_a", "q_b", "kv_b", "o", "shared_gate_up", "shared_down")
    assert layer == dict.fromkeys(products, 2.0) | {"mla_prefill": 3.0, "experts": 2.0}
