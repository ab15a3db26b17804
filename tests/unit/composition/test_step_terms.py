"""Every term of a step, a static batch and its memory, each by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from silicast.composition import clock as clock_module
from silicast.composition.deployment import Deployment
from silicast.composition.engine import find_engine
from silicast.composition.memory import static_batch_memory
from silicast.composition.states import BatchStates
from silicast.composition.static_batch import predict_static_batch
from silicast.composition.step import StepModel
from silicast.core.prediction import ErrorFactors, Part, Quantity
from silicast.hardware.catalog import find_device
from silicast.hardware.cluster import Network, cluster_of
from silicast.hardware.host import Host
from silicast.kernels.engine_kernels import EngineKernels
from silicast.kernels.physics import load_physics
from silicast.kernels.power import Activity
from silicast.workload.counting import activation_bytes
from silicast.workload.models import find_model
from silicast.workload.plan import Plan


def deployment(engine: str = "vllm", device: str = "H100", **plan: Any) -> Deployment:
    return Deployment(
        find_model("Llama-3.1-8B"), find_device(device), find_engine(engine), plan=Plan(**plan)
    )


def decode(*lengths: int, step: int = 1) -> BatchStates:
    return BatchStates.decode(lengths, np.array([step]))


def variants(model: StepModel, family: str) -> set[object]:
    return {placed.op.variant for placed in model.placed if placed.op.family == family}


def test_attention_leaves_cache_update_and_rotation_to_their_own_nodes() -> None:
    model = StepModel(deployment("trtllm", "B200"))
    for family in ("attention_prefill", "attention_decode"):
        (variant,) = variants(model, family)
        assert variant.flag("append", default=True) is False  # type: ignore[attr-defined]
        assert variant.flag("rope", default=True) is False  # type: ignore[attr-defined]


def test_prefill_and_decode_take_their_own_libraries() -> None:
    libraries = {"attention_prefill": "fa2", "attention_decode": "flashinfer", "moe": "triton"}
    kernels = EngineKernels({"default": libraries})
    engine = msgspec.structs.replace(find_engine("vllm"), kernels=kernels)
    model = StepModel(replace(deployment(), engine=engine))
    assert {v.library for v in variants(model, "attention_prefill")} == {"fa2"}  # type: ignore[attr-defined]
    assert {v.library for v in variants(model, "attention_decode")} == {"flashinfer"}  # type: ignore[attr-defined]


def test_weights_are_read_from_memory() -> None:
    model = StepModel(deployment())
    assert {v.cache for v in variants(model, "gemm")} == {"cold"}  # type: ignore[attr-defined]
    assert {v.cache for v in variants(model, "attention_decode")} == {"cold"}  # type: ignore[attr-defined]


def test_dispatch_is_exposed_where_it_outlasts_the_device() -> None:
    model = StepModel(deployment("torch-eager"))
    short, long = model.steps(decode(10)), model.steps(BatchStates.prefill([8192]))
    assert short.dispatch_s[0] > 0
    for times in (short, long):
        exposed = max(0.0, times.dispatch_s[0] - times.device_s[0])
        assert times.dispatch_exposed_s[0] == exposed
        assert times.total_s[0] == times.device_s[0] + exposed + times.host_s[0]
    assert long.dispatch_exposed_s[0] == 0.0
    quick = StepModel(replace(deployment("torch-eager"), host=Host("fast", 2.0)))
    assert quick.steps(decode(10)).dispatch_s[0] == pytest.approx(short.dispatch_s[0] / 2)


def test_launches_are_those_of_the_pass() -> None:
    model = StepModel(deployment("torch-eager"))
    kernels = sum(p.count for p in model.placed if p.op.family != "attention_prefill")
    expected = kernels * find_engine("torch-eager").host.dispatch_us * 1e-6
    assert model.steps(decode(10)).dispatch_s[0] == pytest.approx(expected)


def test_stages_of_different_nodes_talk_over_the_network() -> None:
    usual = deployment(tp=8, pp=2)
    slow = cluster_of(usual.device, inter_node=Network("slow", 1e9))
    fast, over_slow = (
        StepModel(d).steps(BatchStates.prefill([4096])).total_s[0]
        for d in (usual, replace(usual, cluster=slow))
    )
    sent = 2 * 4096 * 4096 * 2 / 8  # hidden states and residual, an eighth a rank
    assert over_slow - fast > 0.5 * sent / 1e9
    inside = StepModel(deployment(tp=4, pp=2)).steps(BatchStates.prefill([4096])).total_s[0]
    within = replace(deployment(tp=4, pp=2), cluster=slow)
    assert StepModel(within).steps(BatchStates.prefill([4096])).total_s[0] == inside


def test_a_domain_larger_than_a_node_joins_its_devices() -> None:
    rack = StepModel(deployment(device="GB200", tp=8))
    small = cluster_of(rack.deployment.device, gpus_per_node=4, intra_node="pcie")
    split = StepModel(replace(rack.deployment, cluster=small))
    states = BatchStates.prefill([8192])
    assert rack.steps(states).total_s[0] < 0.9 * split.steps(states).total_s[0]


def test_power_state_counts_matrix_work_and_memory_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Activity] = []

    def law(device: object, activity: Activity) -> np.ndarray:
        del device
        seen.append(activity)
        return np.array([1e12])

    monkeypatch.setattr(clock_module, "sustained_clock", law)
    model = StepModel(deployment())
    times = model.steps(BatchStates.prefill([8192]).then(decode(*[500] * 4)))
    model.held_clock(times, 0)
    model.held_clock(times, 1)
    prefill, step = seen
    (prefill_tensor,), (prefill_dram,) = prefill.tensor, prefill.dram  # type: ignore[misc]
    assert prefill_tensor > 0.4 > prefill_dram
    (step_tensor,), (step_dram,) = step.tensor, step.dram  # type: ignore[misc]
    assert step_dram > 0.5 > step_tensor


def test_error_of_a_step_holds_kernels_host_and_composition() -> None:
    model = StepModel(deployment())
    times = model.steps(decode(*[500] * 4))
    whole = model.error(times, np.ones(1))
    host_s = float(times.host_s[0] + times.dispatch_exposed_s[0])
    share = host_s / float(times.total_s[0])
    assert whole.loadings["host"] == pytest.approx(share * find_engine("vllm").host.log_sd)
    assert whole.causes["composition"] == constants("serving.composition_log_sd")
    assert whole.causes["shapes:gemm"] > 0.0
    assert whole.independent == pytest.approx(math.hypot(*whole.causes.values()))
    slow = replace(times, host_s=times.host_s + float(times.total_s[0]))
    assert model.error(slow, np.ones(1)).loadings["host"] > whole.loadings["host"]


def constants(name: str) -> float:
    """A spread of composition."""
    return load_physics("uncertainty").default[name]


def test_decode_step_is_the_middle_one_at_its_own_clock() -> None:
    found = predict_static_batch(deployment(), [4096] * 16, 22)
    model = StepModel(deployment())
    middle = model.steps(decode(*[4096] * 16, step=11), found.clock_hz[1]).total_s[0]
    assert found.decode_step is not None
    assert found.decode_step.seconds == pytest.approx(middle, rel=1e-9)
    assert found.clock_hz[0] < found.clock_hz[1]


def test_error_of_the_total_weighs_prefill_and_decode_by_their_time() -> None:
    found = predict_static_batch(deployment(), [4096] * 16, 22)
    prefill, steps = found.total.part.children
    model = StepModel(deployment())
    states = BatchStates.decode([4096] * 16, np.arange(1, 22))
    decode_error = model.error(model.steps(states, found.clock_hz[1]), np.ones(21))
    expected = ErrorFactors.of_sum(
        [(prefill.exposed_ps, found.prefill.error), (steps.exposed_ps, decode_error)]
    )
    assert found.total.error.log_sd == pytest.approx(expected.log_sd, rel=1e-6)


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
    found = predict_static_batch(deployment(), [1000], 10)
    gb = found.memory_gb
    rough = (found.memory.activations + found.memory.framework) / 1e9
    assert gb.p95 - gb.estimate == pytest.approx(0.5 * rough)
    assert gb.estimate - gb.p05 == pytest.approx(0.3 * rough)


def test_a_group_adds_bounds_and_hidden_time() -> None:
    group = Part.group("g", (Part("a", 5, 1, 2), Part("b", 7, 3, 4)))
    assert (group.exposed_ps, group.hidden_ps, group.bound_ps) == (12, 4, 6)


def test_an_estimate_below_its_bound_is_raised_to_it() -> None:
    assert Quantity.around(1.0, 0.1, bound=2.0).estimate == 2.0
