"""One lowering, one timeline: a graph has the same bits on whatever way it comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import ProgramPass, predict_program
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.step.machine import Machine
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.prediction import Part
from silicast.hardware.catalog import find_device
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.frameworks.eager import Framework, PassShape, framework_graph
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.graphs.op_graph import read_op_graph, write_op_graph
from silicast.workload.models.lookup import find_model
from silicast.workload.training.backward import Training, training_graph
from silicast.workload.transformers.decoder import build_graph
from tests.sampling import examples

FEW = examples(15)
MACHINES = [
    Machine(find_device(device), find_engine(engine))
    for device, engine in (
        ("H100", "torch-eager"), ("A100-SXM-80GB", "torch-compile"), ("MI300X", "vllm"),
        ("EPYC 9654", "torch-eager"),
    )
]  # fmt: skip


def ops(draw: st.DrawFn) -> Op:
    size = st.integers(1, 4096)
    variant = Variant(draw(st.sampled_from(("bf16", "fp32"))))
    family = draw(st.sampled_from(("gemm", "softmax", "layernorm", "elementwise", "moved")))
    if family == "gemm":
        return Op.make("gemm", variant, m=draw(size), n=draw(size), k=draw(size))
    if family == "softmax":
        return Op.make("softmax", variant, rows=draw(size), cols=draw(size))
    if family == "layernorm":
        return Op.make("layernorm", variant, tokens=draw(size), hidden=draw(size), residual=0)
    if family == "elementwise":
        flagged = Variant(variant.dtype, flags=(("gelu", True),))
        return Op.make("elementwise", flagged, elements=draw(size), inputs=draw(st.integers(1, 2)))
    return Op.make("data_movement", variant, read_bytes=draw(size), written_bytes=draw(size))


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Nodes of unique names on one or two streams, in blocks that run several times."""
    streams, count, blocks = draw(st.integers(0, 1)), draw(st.integers(1, 3)), []
    for number in range(count):
        nodes: list[Node] = []
        for index in range(draw(st.integers(1, 5))):
            known = [node.name for node in nodes]
            inputs = (
                draw(st.lists(st.sampled_from(known), unique=True, max_size=2)) if known else []
            )
            nodes.append(
                Node(
                    f"n{number}_{index}", ops(draw), tuple(inputs), draw(st.integers(0, streams)),
                    draw(st.integers(1, 1 << 20)), draw(st.integers(0, 1 << 20)),
                )
            )  # fmt: skip
        name = f"block {number}" if count > 1 else "forward"  # what a file calls its only block
        blocks.append(Block(name, tuple(nodes), times=draw(st.integers(1, 4))))
    return Graph("drawn", tuple(blocks), parameter_bytes=1 << 21)


def in_mode(graph: Graph, mode: str) -> Graph:
    """With the backward pass that a scenario adds."""
    if mode == "inference":
        return graph
    return training_graph(graph, Training(loss=False, dropout=False))


modes = st.sampled_from(("inference", "training"))


def bits(times: StepTimes) -> list[Any]:
    """Everything of a step, exactly."""
    names = ("exposed_s", "hidden_s", "waits_s", "launches_s", "between_s", "between_hidden_s")
    return [getattr(times, name).tolist() for name in names] + [times.clock_hz]


@given(programs(), modes, st.sampled_from(MACHINES))
@FEW
def test_a_program_is_a_step_of_one_state(drawn: Graph, mode: str, machine: Machine) -> None:
    graph = in_mode(drawn, mode)
    program = predict_program(machine, graph)
    model = StepModel(machine, StageGraph(graph, machine))
    states = BatchStates.prefill([1])
    times = model.steps(states)
    hz = model.held_clock(times, states, 0)
    assert hz == program.clock_hz
    times = model.at_clock(times, states, hz, np.zeros(1, dtype=np.int64))
    assert bits(times) == bits(program.times)
    part = Breakdown(model, times, np.ones(1)).part("e2e", host="between_passes")
    assert part == program.total.part
    assert model.timeline(times, states, 0).end_s.tolist() == program.timeline.end_s.tolist()


def check_same(one: ProgramPass, other: ProgramPass) -> None:
    """Two predictions of one program."""
    assert bits(one.times) == bits(other.times)
    assert one.total == other.total
    assert one.total.latency_s == other.total.latency_s
    assert one.directions == other.directions
    assert one.memory == other.memory
    assert one.timeline.end_s.tolist() == other.timeline.end_s.tolist()


@given(graph=programs(), mode=modes, machine=st.sampled_from(MACHINES))
@FEW
def test_a_program_in_a_file_is_the_same_program(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, mode: str, machine: Machine
) -> None:
    path = tmp_path_factory.mktemp("graph") / "g.json"
    write_op_graph(graph, path)
    current, read = (in_mode(each, mode) for each in (graph, read_op_graph(path)))
    check_same(predict_program(machine, current), predict_program(machine, read))


@given(graph=programs(), mode=modes)
@FEW
def test_a_scenario_answers_what_its_program_takes(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, mode: str
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    write_op_graph(graph, folder / "g.json")
    answer = asked(folder, {"graph": "g.json", "mode": mode}, device="H100")
    program = predict_program(MACHINES[0], in_mode(graph, mode))
    assert answer["e2e_ms"].estimate == program.total.latency_s.times(1e3).estimate
    assert answer["forward_ms"].p95 == program.directions["forward"].latency_s.times(1e3).p95


def asked(folder: Path, work: dict[str, Any], **fields: Any) -> Mapping[str, Any]:
    return run(decode({"task": "graph", "workload": work, **fields}, folder=folder)).metrics


DECODERS = ("GPT-2", "Llama-3.2-1B", "Phi-2", "Mixtral-8x7B")


@given(
    st.sampled_from(DECODERS), st.sampled_from(("H100", "MI300X", "EPYC 9654")),
    st.integers(1, 8), st.integers(1, 600), st.booleans(),
)  # fmt: skip
@FEW
def test_the_prefill_of_a_framework_is_its_graph_as_a_program(
    name: str, device: str, batch: int, prompt: int, compiled: bool
) -> None:
    engine, framework = ("torch-compile" if compiled else "torch-eager"), Framework(compiled)
    where = Deployment.from_model(find_model(name), find_device(device), find_engine(engine))
    static_batch = predict_static_batch(where, [prompt] * batch, 1, framework)
    shape = PassShape(batch, prompt, generates=True)
    graph = build_graph(where.model, where.plan, where.precision, where.policy)
    graph = framework_graph(graph, where.model, shape, framework, where.precision.hidden)
    program = predict_program(where.machine, graph)
    assert static_batch.clock_hz[0] == program.clock_hz
    assert bits(static_batch.steps[0].times(0)) == bits(program.times)
    assert blocks(static_batch.prefill.part) == blocks(program.total.part)
    assert static_batch.prefill.part.exposed_ps == program.total.part.exposed_ps
    assert static_batch.prefill.seconds == program.total.seconds
    assert static_batch.total.part.exposed_ps == program.total.part.exposed_ps


def blocks(part: Part) -> list[Part]:
    """Parts on the device; that of the host has names of its own."""
    return [child for child in part.children if child.kind != "host"]


@given(
    st.sampled_from(DECODERS), st.integers(1, 8), st.integers(1, 300),
    st.sampled_from((None, Training(dropout=False))),
)  # fmt: skip
@FEW
def test_a_pass_of_a_framework_is_its_graph_as_a_program(
    name: str, batch: int, length: int, training: Training | None
) -> None:
    where = Deployment.from_model(find_model(name), find_device("H100"), find_engine("torch-eager"))
    framework = Framework(training=training)
    framework_pass = predict_framework_pass(where, batch, length, framework)
    graph = build_graph(where.model, where.plan, where.precision, where.policy)
    shape = PassShape(batch, length)
    graph = framework_graph(graph, where.model, shape, framework, where.precision.hidden)
    check_program(framework_pass, predict_program(where.machine, graph))


def check_program(program_pass: ProgramPass, program: ProgramPass) -> None:
    """A pass of a model and its graph: but for what is only known of a model."""
    assert bits(program_pass.times) == bits(program.times)
    assert program_pass.clock_hz == program.clock_hz
    assert program_pass.total.part == program.total.part
    assert replace(program_pass, weights=0).memory == program.memory, "a program counts a tied head"
    for way, half in program_pass.directions.items():
        assert half.part == program.directions[way].part


@given(
    st.sampled_from(DECODERS), st.integers(1, 5), st.integers(1, 200), st.integers(2, 30),
    st.data(),
)  # fmt: skip
@FEW
def test_a_decode_step_of_a_framework_is_its_graph_as_a_program(
    name: str, batch: int, prompt: int, output: int, data: st.DataObject
) -> None:
    where = Deployment.from_model(find_model(name), find_device("H100"), find_engine("torch-eager"))
    framework = Framework()
    step = predict_static_batch(where, [prompt] * batch, output, framework).steps[1]
    row = data.draw(st.integers(0, output - 2))
    shape = PassShape(batch, 1, prompt + row + 1, generates=True)
    graph = build_graph(where.model, where.plan, where.precision, where.policy)
    graph = framework_graph(graph, where.model, shape, framework, where.precision.hidden)
    times = StepModel(where.machine, StageGraph(graph, where.machine)).steps(
        BatchStates.prefill([1])
    )
    for item in ("exposed_s", "hidden_s", "waits_s", "launches_s"):
        assert getattr(step.at_boost, item)[:, row].tolist() == getattr(times, item)[:, 0].tolist()
