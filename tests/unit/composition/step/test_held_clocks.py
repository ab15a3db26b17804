"""Clocks of many states, and calls that are cut for some of them."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.machine import Machine
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.power import top_hz
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

PROMPTS = ((64,), (512, 300), (4096,) * 3, (2048,) * 8, (7,), (900,) * 16)


@pytest.fixture(scope="module")
def model() -> StepModel:
    config = find_model("Llama-3.1-8B")
    machine = Machine(find_device("H100"), find_engine("vllm"), power_w=500.0)
    return StepModel.from_deployment(Deployment(machine, config, Plan(), config.default_precision))


@pytest.fixture(scope="module")
def states() -> BatchStates:
    return BatchStates.joined([BatchStates.prefill(prompts) for prompts in PROMPTS])


def test_clocks_of_many_states_are_those_of_each_alone(
    model: StepModel, states: BatchStates
) -> None:
    together = model.held_clocks(model.steps(states), states, np.arange(len(PROMPTS)))
    alone = []
    for prompts in PROMPTS:
        state = BatchStates.prefill(prompts)
        alone.append(model.held_clock(model.steps(state), state, 0))
    assert together.tolist() == alone
    assert len(set(alone)) > 3  # searches that part, whose rows differ from clock to clock


def test_some_states_of_a_part_are_slowed_as_all_of_it(
    model: StepModel, states: BatchStates
) -> None:
    part = np.array([1, 3, 5])
    nodes, chosen = model.steps(states).nodes.of_states(part), states.chosen(part)
    device = model.machine.boosted_device
    slow = device.at_clock(0.7 * top_hz(device))
    whole = model.timer.at_clock(nodes, chosen, slow, np.arange(3)).time_s
    for wanted in ([2], [0, 1], [0, 1, 2], [1]):
        some = model.timer.at_clock(nodes, chosen, slow, np.array(wanted)).time_s
        assert some[:, wanted].tolist() == whole[:, wanted].tolist()
    assert (whole > nodes.time_s).any()


def test_another_part_has_calls_of_its_own(model: StepModel, states: BatchStates) -> None:
    times = model.steps(states)
    parts = [times.nodes.of_states(np.array(rows)) for rows in ([0, 1], [2, 3])]
    each = [[grid.rows.tolist() for grid, _ in part.grids_of(np.arange(2))] for part in parts]
    device = model.machine.boosted_device.at_clock(1.2e9)
    seconds = [
        model.timer.at_clock(part, states.chosen(np.array(rows)), device, np.arange(2)).time_s
        for part, rows in zip(parts, ([0, 1], [2, 3]), strict=True)
    ]
    assert each[0] == each[1]  # the same calls, of other sizes
    assert (seconds[0] != seconds[1]).any(axis=0).all()
