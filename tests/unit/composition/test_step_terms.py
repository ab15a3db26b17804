"""Every term of a step, a static batch and its memory, each by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.memory.memory import static_batch_memory
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel, StepTimes
from silicast.composition.timeline.breakdown import Breakdown
from silicast.core.prediction import ErrorFactors, Part, Quantity
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Network, cluster_of
from silicast.hardware.host import Host
from silicast.kernels.engine_kernels import EngineKernels
from silicast.kernels.physics.constants import load_physics
from silicast.workload.graphs.op import Variant
from silicast.workload.models.counting import activation_bytes
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def deployment(engine: str = "vllm", device: str = "H100", **plan: Any) -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device(device), find_engine(engine), plan=Plan(**plan)
    )


def decode(*lengths: int, step: int = 1) -> BatchStates:
    return BatchStates.decode(lengths, np.array([step]))


def on(where: Deployment, **machine: Any) -> Deployment:
    """The deployment on a machine of which some fields differ."""
    return replace(where, machine=replace(where.machine, **machine))


def variants(model: StepModel, family: str) -> set[Variant]:
    return {node.op.variant for node in model.graph.nodes if node.op.family == family}


def test_attention_leaves_cache_update_and_rotation_to_their_own_nodes() -> None:
    model = StepModel.from_deployment(deployment("trtllm", "B200"))
    for family in ("attention_prefill", "attention_decode"):
        (variant,) = variants(model, family)
        assert variant.flag("append", default=True) is False
        assert variant.flag("rope", default=True) is False


def test_prefill_and_decode_take_their_own_libraries() -> None:
    libraries = {"attention_prefill": "fa2", "attention_decode": "flashinfer", "moe": "triton"}
    kernels = EngineKernels({"default": libraries})
    engine = msgspec.structs.replace(find_engine("vllm"), kernels=kernels)
    model = StepModel.from_deployment(on(deployment(), engine=engine))
    assert {v.library for v in variants(model, "attention_prefill")} == {"fa2"}
    assert {v.library for v in variants(model, "attention_decode")} == {"flashinfer"}


def test_weights_are_read_from_memory() -> None:
    model = StepModel.from_deployment(deployment())
    assert {v.cache for v in variants(model, "gemm")} == {"cold"}
    assert {v.cache for v in variants(model, "attention_decode")} == {"cold"}


EAGER = find_engine("torch-eager").host
LAUNCH_S = (EAGER.dispatch_us + EAGER.between_us) * 1e-6
"""Of one kernel: Python before it, and the call that launches it."""


def queued_s(model: StepModel, times: StepTimes, absent: str, launch_s: float) -> float:
    """Time of a pass whose kernels are launched one by one, execution by execution.

    Args:
        absent: the family that does not run in it, and is not launched.
    """
    issue, end = 0.0, 0.0
    for position in model.graph.executions.order.tolist():
        node = model.graph.nodes[position]
        if node.op.family != absent:
            issue += launch_s
            end = max(end, issue) + float(times.exposed_s[position, 0]) / node.count
    return end


def test_a_pass_waits_for_its_launches_as_a_queue_does() -> None:
    model = StepModel.from_deployment(deployment("torch-eager"))
    short, long = model.steps(decode(10)), model.steps(BatchStates.prefill([8192]))
    for times, absent in ((short, "attention_prefill"), (long, "attention_decode")):
        queued = queued_s(model, times, absent, LAUNCH_S)
        assert times.device_s[0] + times.waited_s[0] == pytest.approx(queued, rel=1e-9)
        assert times.total_s[0] == times.device_s[0] + times.waited_s[0] + times.between_s[0]
        launches = float(times.launches_s[:, 0].sum())
        assert max(launches, times.device_s[0]) < queued < launches + times.device_s[0]
    # the host runs ahead once it has launched what precedes the first long kernel
    assert LAUNCH_S <= long.waited_s[0] < 0.01 * long.device_s[0]


@pytest.mark.parametrize("factor", [0.1, 2.0])
def test_a_faster_host_launches_faster(factor: float) -> None:
    usual, other = (
        StepModel.from_deployment(on(deployment("torch-eager"), host=host))
        for host in (Host(), Host("other", factor))
    )
    times, changed = (model.steps(decode(10)) for model in (usual, other))
    assert changed.device_s[0] == times.device_s[0]
    launches = times.launches_s[:, 0].sum() / factor
    assert changed.launches_s[:, 0].sum() == pytest.approx(launches)
    queued = queued_s(other, changed, "attention_prefill", LAUNCH_S / factor)
    assert changed.device_s[0] + changed.waited_s[0] == pytest.approx(queued, rel=1e-9)
    assert (changed.waited_s[0] > times.waited_s[0]) == (factor < 1.0)


def test_launches_are_those_of_the_pass() -> None:
    model = StepModel.from_deployment(deployment("torch-eager"))
    kernels = sum(n.count for n in model.graph.nodes if n.op.family != "attention_prefill")
    launches = model.steps(decode(10)).launches_s[:, 0]
    assert launches.sum() == pytest.approx(kernels * LAUNCH_S)
    assert launches[1:].tolist() == [0.0, 0.0], "all of them forward"


def test_stages_of_different_nodes_talk_over_the_network() -> None:
    usual = deployment(tp=8, pp=2)
    slow = cluster_of(usual.device, inter_node=Network("slow", 1e9))
    fast, over_slow = (
        StepModel.from_deployment(d).steps(BatchStates.prefill([4096])).total_s[0]
        for d in (usual, on(usual, cluster=slow))
    )
    sent = 2 * 4096 * 4096 * 2 / 8  # hidden states and residual, an eighth a rank
    assert over_slow - fast > 0.5 * sent / 1e9
    inside = (
        StepModel.from_deployment(deployment(tp=4, pp=2))
        .steps(BatchStates.prefill([4096]))
        .total_s[0]
    )
    within = on(deployment(tp=4, pp=2), cluster=slow)
    assert StepModel.from_deployment(within).steps(BatchStates.prefill([4096])).total_s[0] == inside


def test_a_domain_larger_than_a_node_joins_its_devices() -> None:
    usual = deployment(device="GB200", tp=8)
    small = cluster_of(usual.device, gpus_per_node=4, intra_node="pcie")
    rack, split = (StepModel.from_deployment(each) for each in (usual, on(usual, cluster=small)))
    states = BatchStates.prefill([8192])
    assert rack.steps(states).total_s[0] < 0.9 * split.steps(states).total_s[0]


def test_power_state_counts_matrix_work_and_memory_traffic() -> None:
    model = StepModel.from_deployment(deployment())
    times = model.steps(BatchStates.prefill([8192]).then(decode(*[500] * 4)))
    work = model.work(times, np.arange(2))
    assert work.core_j[0] > 3 * work.memory_j[0]
    assert work.core_j[1] < work.memory_j[1]
    assert work.dynamic_j[0] == 0.0
    watts = (work.core_j[0] + work.memory_j[0]) / work.seconds[0]
    assert work.seconds[0] == times.total_s[0]
    assert 300.0 < watts < 1000.0


def error(model: StepModel, times: StepTimes) -> ErrorFactors:
    """Of the sum of all states."""
    return model.uncertainty.factors(Breakdown(model, times, np.ones(len(times.total_s))).sum())


def test_error_of_a_step_holds_kernels_host_and_composition() -> None:
    model = StepModel.from_deployment(deployment())
    times = model.steps(decode(*[500] * 4))
    whole = error(model, times)
    host_s = float(times.between_s[0] + times.waited_s[0])
    share = host_s / float(times.total_s[0])
    assert whole.loadings["host"] == pytest.approx(share * find_engine("vllm").host.log_sd)
    assert whole.causes["composition"] == constants("serving.composition_log_sd")
    assert whole.causes["shapes:gemm"] > 0.0
    assert whole.independent == pytest.approx(math.hypot(*whole.causes.values()))
    slow = replace(times, between_s=times.between_s + float(times.total_s[0]))
    assert error(model, slow).loadings["host"] > whole.loadings["host"]


def constants(name: str) -> float:
    """A spread of composition."""
    return load_physics("uncertainty").default[name]


def test_decode_step_is_the_middle_one_at_its_own_clock() -> None:
    static_batch = predict_static_batch(deployment(), [4096] * 16, 22)
    model = StepModel.from_deployment(deployment())
    middle = model.steps(decode(*[4096] * 16, step=11), static_batch.clock_hz[1]).total_s[0]
    assert static_batch.decode_step is not None
    assert static_batch.decode_step.seconds == pytest.approx(middle, rel=1e-9)
    assert static_batch.clock_hz[0] < static_batch.clock_hz[1]


def test_error_of_the_total_weighs_prefill_and_decode_by_their_time() -> None:
    static_batch = predict_static_batch(deployment(), [4096] * 16, 22)
    prefill, steps = static_batch.total.part.children
    model = StepModel.from_deployment(deployment())
    states = BatchStates.decode([4096] * 16, np.arange(1, 22))
    decode_error = error(model, model.steps(states, static_batch.clock_hz[1]))
    expected = ErrorFactors.of_sum(
        [(prefill.exposed_ps, static_batch.prefill.error), (steps.exposed_ps, decode_error)]
    )
    assert static_batch.total.error.log_sd == pytest.approx(expected.log_sd, rel=1e-6)


def test_stages_share_a_bound_no_larger_than_the_slowest_of_them() -> None:
    whole = predict_static_batch(deployment(), [2048] * 8, 1).prefill
    staged = predict_static_batch(deployment(pp=2), [2048] * 8, 1).prefill
    assert 0.45 * whole.bound_seconds < staged.bound_seconds < 0.6 * whole.bound_seconds


def test_memory_counts_pages_activations_framework_and_what_is_usable() -> None:
    target = deployment()
    memory = static_batch_memory(target, [10, 20], 7)
    engine = target.engine.memory
    page = engine.page_tokens
    tokens = (-(-17 // page) + -(-27 // page)) * page
    assert memory.kv_cache == tokens * 131_072
    precision = target.model.default_precision
    assert memory.activations == activation_bytes(target.model, Plan(), precision, 30, 2)
    assert memory.framework == engine.framework_gb * 1e9
    assert memory.total == (
        memory.weights + memory.kv_cache + memory.activations + memory.framework
    )
    assert memory.usable == round(target.device.dram.capacity_bytes * engine.usable_fraction)
    assert memory.usable < target.device.dram.capacity_bytes


def test_memory_is_known_to_its_rough_parts() -> None:
    static_batch = predict_static_batch(deployment(), [1000], 10)
    gb = static_batch.memory_gb
    rough = (static_batch.memory.activations + static_batch.memory.framework) / 1e9
    assert gb.p95 - gb.estimate == pytest.approx(0.5 * rough)
    assert gb.estimate - gb.p05 == pytest.approx(0.3 * rough)


def test_a_group_adds_bounds_and_hidden_time() -> None:
    group = Part.group("g", (Part("a", 5, 1, 2), Part("b", 7, 3, 4)))
    assert (group.exposed_ps, group.hidden_ps, group.bound_ps) == (12, 4, 6)


def test_an_estimate_below_its_bound_is_raised_to_it() -> None:
    assert Quantity.around(1.0, 0.1, bound=2.0).estimate == 2.0
