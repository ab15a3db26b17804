"""Laws of steps: the closed form is the timeline, stages add up, and traces end with the total."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import ProgramPass
from silicast.composition.passes.static_batch import batch_steps, predict_static_batch
from silicast.composition.step.executions import DIRECTIONS
from silicast.composition.step.stage_graph import StageGraph
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes, step_model
from silicast.composition.timeline.trace_events import (
    PredictedTimeline,
    trace_program,
    trace_static_batch,
)
from silicast.core.prediction import to_picoseconds
from silicast.hardware.catalog import find_device
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.lookup import find_model
from silicast.workload.models.precision import Precision
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan
from tests.sampling import examples
from tests.stages import stage_s

FEW = examples(20)

SERVED: list[tuple[str, str, str, dict[str, int]]] = [
    ("Llama-3.1-8B", "H100", "vllm", {"pp": 3}),
    ("Llama-3.1-70B", "H100", "vllm", {"tp": 4, "pp": 2}),
    ("Llama-3.1-8B", "MI300X", "sglang", {"tp": 2}),
    ("Llama-3.1-8B", "A100-SXM-80GB", "torch-eager", {"pp": 2}),
    ("DeepSeek-V3", "B200", "sglang", {"tp": 8}),
    ("DeepSeek-V3", "B200", "trtllm", {"attention_dp": 8, "ep": 8}),
    ("Qwen3-30B-A3B", "H100", "sglang", {"tp": 2, "attention_dp": 2, "pp": 4}),
    ("gpt-oss-20b", "H100", "vllm", {"tp": 2}),
    ("GPT-2", "EPYC 9654", "torch-eager", {}),
]
"""Model, device, engine and degrees; of serving graphs."""


def deployment(model: str, device: str, engine: str, plan: dict[str, int]) -> Deployment:
    return Deployment.from_model(
        find_model(model), find_device(device), find_engine(engine), plan=Plan(**plan)
    )


served = st.sampled_from(SERVED)


@st.composite
def batches(draw: st.DrawFn) -> BatchStates:
    """A few states: prefill, decode, or both at once."""
    new, total, firsts, cached, seconds = [], [], [0], [], [0]
    lengths = st.lists(st.integers(1, 3000), max_size=3)
    for _ in range(draw(st.integers(1, 3))):
        prefill, decode = draw(lengths), draw(lengths)
        if not prefill and not decode:
            decode = [draw(st.integers(1, 3000))] * draw(st.integers(1, 600))
        new += prefill
        total += [each + draw(st.integers(0, 500)) for each in prefill]
        cached += decode
        firsts.append(len(new))
        seconds.append(len(cached))
    sizes = (np.array(each, dtype=np.int64) for each in (new, total, firsts, cached, seconds))
    return BatchStates(*sizes)


def check_times(graph: StageGraph, times: StepTimes) -> None:
    """Terms of a step add up, in all and over its pipeline stages."""
    exposed, hidden = times.exposed_s, times.hidden_s
    assert (exposed >= 0.0).all()
    assert (hidden >= 0.0).all()
    assert (times.waits_s >= 0.0).all()
    if not graph.has_streams:
        alone = times.nodes.time_s * graph.counts[:, None]
        np.testing.assert_allclose(exposed + hidden, alone, rtol=1e-9)
    total = exposed.sum(axis=0) + times.waits_s.sum(axis=0) + times.between_s
    np.testing.assert_allclose(times.total_s, total, rtol=1e-12)
    whole = np.zeros_like(times.device_s)
    for direction in DIRECTIONS:
        work, sends = stage_s(times, graph, direction)
        assert work.shape == sends.shape == (graph.stages, len(times.device_s))
        assert (sends <= work).all()
        whole += work.sum(axis=0)
    np.testing.assert_allclose(whole, times.device_s, rtol=1e-12)


def check_timeline(model: StepModel, times: StepTimes, states: BatchStates) -> None:
    """What the nodes expose and what the device waits for is the end of the timeline."""
    check_times(model.graph, times)
    for row in range(len(states)):
        line = model.timeline(times, states, row)
        total = times.exposed_s[:, row].sum() + times.waits_s[:, row].sum()
        assert line.total_s == pytest.approx(total, rel=1e-9)
        assert line.waited_s.sum() == pytest.approx(times.waited_s[row], rel=1e-9, abs=1e-15)
        assert line.exposed_s.sum() == pytest.approx(times.device_s[row], rel=1e-9)


@given(served, batches())
@FEW
def test_steps_of_a_batch_are_their_timelines(
    case: tuple[str, str, str, dict[str, int]], states: BatchStates
) -> None:
    model = step_model(deployment(*case))
    times = model.steps(states)
    check_timeline(model, times, states)
    slow = model.at_clock(times, states, 0.7 * times.clock_hz, np.arange(len(states)))
    check_timeline(model, slow, states)


@given(served, batches())
@FEW
def test_a_state_has_the_same_bits_alone_and_in_a_batch(
    case: tuple[str, str, str, dict[str, int]], states: BatchStates
) -> None:
    model = step_model(deployment(*case))
    times = model.steps(states)
    for row in range(len(states)):
        one = model.steps(states.chosen(np.array([row])))
        for name in ("exposed_s", "hidden_s", "waits_s", "launches_s"):
            assert (getattr(one, name)[:, 0] == getattr(times, name)[:, row]).all(), name
        assert one.total_s[0] == times.total_s[row]


@dataclass(frozen=True)
class Asked:
    """A pass of a framework."""

    model: str
    plan: Plan
    device: str
    framework: Framework
    batch: int
    length: int

    def predicted(self) -> ProgramPass:
        engine = find_engine("torch-compile" if self.framework.compiled else "torch-eager")
        where = Deployment.from_model(
            find_model(self.model),
            find_device(self.device),
            engine,
            self.plan,
            Precision.from_formats(recipe="bf16"),
        )
        return predict_framework_pass(where, self.batch, self.length, self.framework)


TRAINS: list[tuple[str, dict[str, int], str]] = [
    ("GPT-2", {}, "A100-SXM-80GB"),
    ("GPT-2", {"dp": 4}, "A100-SXM-80GB"),
    ("GPT-2", {"dp": 2, "pp": 3}, "H100"),
    ("GPT-2", {"dp": 8}, "EPYC 9654"),
    ("bert_large", {"dp": 2}, "H100"),
    ("Llama-3.2-1B", {"dp": 2, "pp": 2, "tp": 2}, "H100"),
    ("switchxl4", {}, "A100-SXM-80GB"),
]
"""Model, degrees and device of passes of a framework."""


@st.composite
def passes(draw: st.DrawFn) -> Asked:
    model, plan, device = draw(st.sampled_from(TRAINS))
    training = draw(st.sampled_from((None, Training(), Training(recompute="full"))))
    framework = Framework(
        compiled=draw(st.booleans()),
        attention=draw(st.sampled_from(("math", "fused"))),
        training=training,
    )
    batch, length = draw(st.integers(1, 8)), draw(st.sampled_from((64, 384)))
    return Asked(model, Plan(**plan), device, framework, batch, length)


@given(passes())
@FEW
def test_passes_of_frameworks_are_their_timelines(asked: Asked) -> None:
    result = asked.predicted()
    check_timeline(result.model, result.times, result.states)
    total = float(result.times.total_s[0])
    assert result.total.part.exposed_ps == pytest.approx(total * 1e12, rel=1e-9, abs=1e3)
    halves = sum(half.part.exposed_ps for half in result.directions.values())
    between = to_picoseconds(float(result.times.between_s[0]))
    assert halves + between == pytest.approx(result.total.part.exposed_ps, abs=4)


def check_trace(drawn: PredictedTimeline, total_ps: int) -> None:
    """Slices end with what was predicted, and lie behind or inside each other on every track."""
    assert drawn.total_ps == total_ps
    assert max(each.end_ps for each in drawn.slices) == total_ps
    assert min(each.start_ps for each in drawn.slices) >= 0
    assert all(each.start_ps <= each.end_ps for each in drawn.slices)
    tracks: dict[Any, list[tuple[int, int]]] = {}
    for each in drawn.slices:
        tracks.setdefault(each.track, []).append((each.start_ps, each.end_ps))
    for track, item in tracks.items():
        open_until: list[int] = []
        for start, end in sorted(item, key=lambda pair: (pair[0], -pair[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (track, start, end)
            open_until.append(end)


COLLECTIVES_ON_TWO_STREAMS = Asked(
    "Llama-3.2-1B",
    Plan(tp=2, pp=2, dp=2),
    "H100",
    Framework(training=Training(recompute="full")),
    batch=8,
    length=384,
)


@given(passes())
@example(COLLECTIVES_ON_TWO_STREAMS)
@FEW
def test_the_trace_of_a_pass_ends_with_its_total(asked: Asked) -> None:
    result = asked.predicted()
    drawn = trace_program(result)
    check_trace(drawn, result.total.part.exposed_ps)
    kernels = [each for each in drawn.slices if "family" in each.args]
    ran = result.times.nodes.time_s[result.model.graph.executions.order, 0] > 0.0
    assert len(kernels) == ran.sum()
    last = max(each.end_ps for each in kernels)
    between = to_picoseconds(float(result.times.between_s[0]))
    rounded = len(result.model.graph.nodes)  # each part of the total is whole picoseconds
    assert last + between == pytest.approx(result.total.part.exposed_ps, abs=rounded)


@given(
    served, st.lists(st.integers(1, 2000), min_size=1, max_size=4), st.integers(1, 40),
    st.integers(0, 5),
)  # fmt: skip
@FEW
def test_the_trace_of_a_batch_is_the_sum_of_its_steps(
    case: tuple[str, str, str, dict[str, int]], lengths: list[int], output: int, steps: int
) -> None:
    where = deployment(*case)
    framework = Framework() if where.engine.kind == "framework" else None
    check_batch(where, lengths, output, steps, framework)


@given(
    st.sampled_from((("GPT-2", "H100"), ("T5-Small", "A100-SXM-80GB"), ("Mixtral-8x7B", "H200"))),
    st.sampled_from(("torch-eager", "torch-compile")),
    st.lists(st.integers(1, 300), min_size=1, max_size=3), st.integers(1, 20),
    st.sampled_from(("math", "fused")),
)  # fmt: skip
@FEW
def test_the_trace_of_a_batch_under_a_framework_is_the_sum_of_its_steps(
    case: tuple[str, str], engine: str, lengths: list[int], output: int, attention: Any
) -> None:
    where = deployment(*case, engine, {})
    framework = Framework(compiled=where.engine.compiles, attention=attention)
    check_batch(where, lengths, output, 2, framework)
    for phase in batch_steps(where, lengths, output, framework):
        check_timeline(phase.model, phase.at_boost, phase.states)


def check_batch(
    where: Deployment, lengths: list[int], output: int, steps: int, framework: Framework | None
) -> None:
    drawn = trace_static_batch(where, lengths, output, steps, framework)
    static_batch = predict_static_batch(where, lengths, output, framework)
    _, decode = batch_steps(where, lengths, output, framework)
    shown = min(steps, output - 1)
    hz = static_batch.clock_hz[1]
    times = decode.model.at_clock(decode.at_boost, decode.states, hz, decode.rows)
    each = [to_picoseconds(float(times.total_s[row])) for row in decode.rows[:shown].tolist()]
    assert len(each) == shown, "so few steps are evaluated one by one"
    check_trace(drawn, static_batch.prefill.part.exposed_ps + sum(each))


@given(
    st.sampled_from(("GPT-2", "Llama-3.2-1B", "gemma-2-2b-it")), st.integers(2, 6),
    st.sampled_from((1, 2, 4)), st.booleans(), st.sampled_from(("torch-eager", "sglang")),
)  # fmt: skip
@FEW
def test_pipelines_run_forward_and_backward_and_send_once_a_cut(
    name: str, stages: int, tp: int, trains: bool, engine: str
) -> None:
    plan = Plan(pp=stages, tp=tp if name != "GPT-2" else 1)
    where = Deployment.from_model(find_model(name), find_device("H100"), find_engine(engine), plan)
    training = Training() if trains else None
    framework_pass = predict_framework_pass(
        where, 2, 64, Framework(attention="fused", training=training)
    )
    graph = framework_pass.model.graph
    order = [graph.nodes[position] for position in graph.executions.order.tolist()]
    owner = {
        layer: stage
        for stage, (first, last) in enumerate(where.policy.stages(where.model.layers, plan))
        for layer in range(first, last)
    }
    for direction, way in (("forward", 1), ("backward", -1)):
        ran = [node for node in order if node.direction == direction]
        assert bool(ran) is (direction == "forward" or trains)
        if not ran:
            continue
        assert [node.stage for node in ran] == sorted((node.stage for node in ran), key=way.__mul__)
        senders = range(stages - 1) if way == 1 else range(1, stages)
        sent = Counter((node.stage, node.name) for node in ran if node.sends)
        names = {name for _, name in sent}
        assert names
        assert sent == {(stage, name): 1 for stage in senders for name in names}
        outside = {node.block: node.stage for node in ran if not node.sends}
        ends = "" if way == 1 else "_backward"
        assert (outside["embedding" + ends], outside["head" + ends]) == (0, stages - 1)
        work, sends = stage_s(framework_pass.times, graph, direction)
        assert (work[:, 0] > 0.0).all()
        assert [bool(each > 0.0) for each in sends[:, 0]] == [n in senders for n in range(stages)]
        assert crossed(graph, direction, way) == crossed(graph, "forward", 1)
    runs = Counter((each.block.direction, each.repeat, graph.nodes[each.kernel].stage)
                   for each in graph.executions.sequence if each.block.layers)  # fmt: skip
    assert {(layer, stage) for _, layer, stage in runs} == set(owner.items())


def crossed(graph: StageGraph, direction: str, way: int) -> set[int]:
    """Cuts between nodes of the cluster, by the stage before each."""
    return {
        node.stage if way == 1 else node.stage - 1
        for node in graph.nodes
        if node.crosses and node.direction == direction
    }
