"""Devices that run operations in the thread that calls them: nothing of the host is hidden."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from silicast.composition.engines.engine import Engine, find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import predict_program
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.composition.timeline.breakdown import Breakdown
from silicast.composition.timeline.timeline import Launches, Timeline, one_stream
from silicast.composition.timeline.trace_events import trace_program
from silicast.hardware.catalog import find_device
from silicast.scenario.decode import decode
from silicast.scenario.run import run
from silicast.workload.frameworks.eager import Framework
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.nodes import phase_of
from silicast.workload.graphs.op import Op, Variant
from silicast.workload.models.lookup import find_model

CPU = "EPYC 9654"


def engine_with(between_us: float, dispatch_us: float = 5.0) -> Engine:
    engine = find_engine("torch-eager")
    host = msgspec.structs.replace(
        engine.host, between_us=between_us, dispatch_us=dispatch_us, step_us=0.0
    )
    return msgspec.structs.replace(engine, host=host)


def machine(between_us: float = 3.0, dispatch_us: float = 5.0) -> Machine:
    return Machine(find_device(CPU), engine_with(between_us, dispatch_us))


def chain(count: int, *, stream: int = 0) -> Graph:
    op = Op.make("gemm", Variant("fp32"), m=64, n=256, k=256)
    nodes = [
        Node(f"g{i}", op, (f"g{i - 1}",) if i else (), stream * (i % 2), 4 * 64 * 256)
        for i in range(count)
    ]
    return Graph("chain", (Block("forward", tuple(nodes)),))


def test_a_pass_is_its_operations_and_what_python_does_between_them() -> None:
    program = predict_program(machine(3.0), chain(10))
    kernel = float(program.times.nodes.time_s[0, 0])
    assert program.timeline.total_s == pytest.approx(10 * (kernel + 3e-6), rel=1e-9)
    assert program.timeline.idle_s == pytest.approx(30e-6, rel=1e-6)


def test_long_operations_hide_nothing_of_the_host() -> None:
    quick, slow = (predict_program(machine(us), chain(10)) for us in (1.0, 1001.0))
    gained = slow.total.seconds - quick.total.seconds
    assert gained == pytest.approx(10 * 1e-3, rel=1e-6)
    host = next(part for part in slow.total.part.children if part.name == "host")
    assert host.hidden_ps == 0
    assert host.exposed_ps == pytest.approx(10 * 1001e6, rel=1e-6)
    parts = slow.total.part.children
    assert sum(part.exposed_ps for part in parts) == slow.total.part.exposed_ps


def test_launch_times_of_a_queue_change_nothing() -> None:
    one, other = (predict_program(machine(3.0, us), chain(10)) for us in (5.0, 500.0))
    assert one.total == other.total


def test_without_a_constant_of_its_own_a_launch_stands_in() -> None:
    assert machine(0.0, 7.0).between_s == 7e-6


def test_streams_run_one_after_the_other() -> None:
    both, one = (predict_program(machine(), chain(8, stream=n)) for n in (1, 0))
    assert both.total.seconds == pytest.approx(one.total.seconds, rel=1e-9)


def test_a_faster_host_takes_less_between_operations() -> None:
    fast = replace(machine(4.0), host=replace(machine().host, factor=2.0))
    assert fast.between_s == pytest.approx(2e-6)


def test_there_is_no_context_and_no_caching_allocator() -> None:
    memory = predict_program(machine(), chain(4)).memory
    assert memory.framework == round(find_engine("torch-eager").memory.process_gb * 1e9)
    assert memory.fragmentation == 0
    gpu = Machine(find_device("H100"), engine_with(3.0))
    on_gpu = predict_program(gpu, chain(4)).memory
    assert on_gpu.framework == round(find_engine("torch-eager").memory.framework_gb * 1e9)
    assert on_gpu.fragmentation > 0


def test_results_written_in_place_and_views_take_nothing() -> None:
    """A program of a front end has no node for a view; a node that writes in place has no bytes."""
    op = Op.make("elementwise", Variant("fp32", flags=(("relu", True),)), elements=4096, inputs=1)
    made = Node("a", op, (), 0, 16384, source="aten.relu.default")
    over = Node("b", op, ("a",), 0, 0, source="aten.relu_.default")
    one, both = (
        predict_program(machine(), Graph("g", (Block("forward", nodes),)))
        for nodes in ((made,), (made, over))
    )
    assert both.memory.activations == one.memory.activations
    assert both.total.seconds > one.total.seconds


def test_a_trace_shows_python_between_operations_and_never_over_them() -> None:
    program = predict_program(machine(3.0), chain(5))
    drawn = trace_program(program)
    before = [s for s in drawn.slices if s.name.startswith("before ")]
    kernels = [s for s in drawn.slices if "family" in s.args]
    kernels.sort(key=lambda s: s.start_ps)
    assert len(before) == len(kernels) == 5
    for wait, kernel in zip(before, kernels, strict=True):
        assert wait.end_ps <= kernel.start_ps
        assert wait.end_ps - wait.start_ps == pytest.approx(3e6, abs=2)


@pytest.mark.parametrize("prefill", [False, True])
def test_a_step_of_a_model_adds_up_likewise(prefill: bool) -> None:
    deployment = Deployment.from_model(find_model("GPT-2"), find_device(CPU), engine_with(3.0))
    model = StepModel.from_deployment(deployment)
    states = BatchStates.prefill([64]) if prefill else BatchStates.decode([64], np.array([1]))
    times = model.steps(states)
    phase = "decode" if prefill else "prefill"
    launches = sum(n.count for n in model.graph.nodes if phase_of(n.op) != phase)
    assert times.waited_s[0] == pytest.approx(launches * 3e-6)
    assert times.launches_s[:, 0].sum() == pytest.approx(launches * 3e-6)
    assert times.total_s[0] == pytest.approx(
        times.device_s[0] + launches * 3e-6 + times.between_s[0]
    )
    part = Breakdown(model, times, np.ones(1)).part("step")
    assert part.exposed_ps == pytest.approx(times.total_s[0] * 1e12, rel=1e-6)
    assert all(child.hidden_ps == 0 for child in part.children if child.name == "host")


def test_a_pass_of_a_model_waits_for_python() -> None:
    model, device = find_model("GPT-2"), find_device(CPU)
    quick, slow = (
        predict_framework_pass(
            Deployment.from_model(model, device, engine_with(us)), 1, 32, Framework()
        )
        for us in (1.0, 101.0)
    )
    launches = sum(node.count for node in quick.model.graph.nodes)
    gained = slow.directions["forward"].seconds - quick.directions["forward"].seconds
    assert gained == pytest.approx(launches * 100e-6, rel=1e-6)


def test_graphs_are_said_to_change_nothing(tmp_path: Path) -> None:
    node = {"name": "g", "op": "gemm", "dims": {"m": 64, "n": 256, "k": 256}, "dtype": "fp32"}
    tmp_path.joinpath("g.json").write_text(json.dumps({"format": 1, "nodes": [node]}))
    plain = {"task": "graph", "device": CPU, "workload": {"graph": "g.json"}}
    graph = {"name": "torch-eager", "options": {"cuda_graph": "full"}}
    eager, replayed = (
        run(decode({**plain, "engine": engine}, folder=tmp_path))
        for engine in ("torch-eager", graph)
    )
    assert replayed.metrics == eager.metrics
    assert any("nothing to capture" in line for line in replayed.warnings)
    assert not any("nothing to capture" in line for line in eager.warnings)
    on_gpu = run(decode({**plain, "device": "h100", "engine": graph}, folder=tmp_path))
    assert not any("nothing to capture" in line for line in on_gpu.warnings)


def called(*seconds: float) -> Timeline:
    none = np.zeros(len(seconds), dtype=bool)
    return one_stream(np.array(seconds), Launches(np.full(len(seconds), 1e-6), none, in_line=True))


def test_nothing_runs_before_the_first_operation_is_called() -> None:
    line = called(1e-9, 5.0, 1e-9)
    assert (line.start_s >= np.concatenate(([0.0], line.end_s[:-1]))).all()
    assert line.exposed_s.sum() + line.idle_s == pytest.approx(line.total_s)
    assert line.idle_s == pytest.approx(3e-6)
    assert line.launch_s.tolist() == [1e-6] * 3


def test_an_empty_program_takes_no_time() -> None:
    assert called().total_s == 0.0
