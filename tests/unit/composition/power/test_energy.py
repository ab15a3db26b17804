"""Energy of whole work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.power.energy import work_energy
from silicast.composition.step.machine import Machine
from silicast.core.prediction import Quantity
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.energy import energies
from silicast.workload.graphs.op import Variant
from silicast.workload.models.lookup import find_model

VLLM = find_engine("vllm")
H100 = Machine(find_device("h100"), VLLM)


@given(
    seconds=st.floats(1e-6, 1e6),
    share=st.floats(0.0, 2.0),
    low=st.floats(0.3, 1.0),
    high=st.floats(1.0, 3.0),
    devices=st.integers(1, 64),
    name=st.sampled_from(("h100", "a100", "l40s", "mi300x")),
)
def test_power_stays_between_idle_and_the_limit(
    seconds: float, share: float, low: float, high: float, devices: int, name: str
) -> None:
    machine = Machine(find_device(name), VLLM)
    time_s = Quantity(seconds, seconds * low, seconds * high)
    limit = machine.device.power_cap_w or 0.0
    result = work_energy(machine, time_s, share * limit * seconds, devices)
    assert result is not None
    idle = energies(machine.device, "gemm", Variant("fp32")).static_w
    for one in (result.energy_j, result.power_w):
        assert one.p05 <= one.estimate <= one.p95
    assert idle * (1 - 1e-9) <= result.power_w.p05
    assert result.power_w.p95 <= limit
    watts, joules = result.power_w.estimate, result.energy_j.estimate
    assert joules == pytest.approx(watts * seconds * devices)
    assert result.energy_j.p95 <= limit * time_s.p95 * devices * (1 + 1e-9)
    assert result.energy_j.p05 >= idle * time_s.p05 * devices * (1 - 1e-9)


@given(seconds=st.floats(1e-6, 1e3), share=st.floats(0.0, 20.0))
def test_a_design_takes_what_its_actions_take_however_quick(seconds: float, share: float) -> None:
    machine = Machine(find_device("simba-like"), VLLM)
    limit, idle = machine.device.power_cap_w, machine.device.idle_power_w or 0.0
    assert limit is not None
    actions_j = share * limit * seconds
    result = work_energy(machine, Quantity.exact(seconds), actions_j, 1)
    if result is None:  # nothing is drawn
        assert idle == actions_j == 0.0
        return
    assert result.power_w.estimate <= limit * (1 + 1e-9)
    least_s = actions_j / (limit - idle)
    expected = actions_j + idle * max(seconds, least_s)
    assert result.energy_j.estimate == pytest.approx(expected)


def test_no_model_no_energy() -> None:
    tpu = Machine(find_device("tpu-v5e"), VLLM)
    assert work_energy(tpu, Quantity.exact(1.0), 1.0, 1) is None


def test_a_batch_takes_what_its_steps_take() -> None:
    """Static power over the whole time, and more with each token."""
    current = Deployment.from_model(find_model("Llama-3.1-8B"), find_device("h100"), VLLM)
    idle = energies(current.device, "gemm", Variant("fp32")).static_w
    joules = []
    for output in (1, 16, 64, 200):
        static_batch = predict_static_batch(current, [512] * 4, output)
        energy = work_energy(
            current.machine, static_batch.total.latency_s, static_batch.kernels_j(), 1
        )
        assert energy is not None
        joules.append(energy.energy_j.estimate)
        assert joules[-1] > idle * static_batch.total.seconds
    assert joules == sorted(joules)
    each = (joules[2] - joules[1]) / 48, (joules[3] - joules[2]) / 136
    assert each[1] == pytest.approx(each[0], rel=0.05)
