"""Times of some states of a batch are those of a batch of these states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_lowering import COLLECTIVES
from silicast.composition.engines.engine_release import UnmeasuredTable
from silicast.composition.engines.engine_versions import as_of
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.node_times import FEW_COLUMNS, rows_summed
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepTimes, step_model
from silicast.composition.step.timer import longer
from silicast.core.calibration import FORMAT, Calibration, Offset, Scope
from silicast.hardware.catalog import find_device
from silicast.kernels.implementation import KernelTimes
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.energy import cores_w
from silicast.kernels.products.gemm import Gemm
from silicast.learning.calibration import Calibrator
from silicast.learning.tiers import Evidence
from silicast.workload.graphs.op import Op, OpBatch
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

TABLES = ("exposed_s", "hidden_s", "waits_s", "launches_s", "between_s", "between_hidden_s")
NODES = ("time_s", "bound_s", "independent", "core_j", "memory_j", "dram_bytes", "tiers")


@pytest.mark.parametrize("rows", [[0], [1, 4], [0, 2, 3]])
def test_some_states_have_the_times_of_a_batch_of_them(rows: list[int]) -> None:
    deployment = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm")
    )
    model = step_model(deployment)
    states = BatchStates.prefill([700, 90]).then(
        BatchStates.decode([700, 90], np.array([1, 7, 300, 301]))
    )
    index = np.array(rows)
    some, alone = model.steps(states).of_states(index), model.steps(states.chosen(index))
    for name in TABLES:
        assert np.array_equal(getattr(some, name), getattr(alone, name))
        assert getattr(some, name).flags.c_contiguous  # sums over states keep their order
    for name in NODES:
        assert np.array_equal(getattr(some.nodes, name), getattr(alone.nodes, name))
    assert [some.nodes.limits(row) for row in range(len(rows))] == [
        alone.nodes.limits(row) for row in range(len(rows))
    ]
    assert np.array_equal(some.nodes.above_static_j, alone.nodes.above_static_j)
    slow_hz, every = 0.7 * some.clock_hz, np.arange(len(rows))
    slow, expected = (
        model.at_clock(times, states.chosen(index), slow_hz, every) for times in (some, alone)
    )
    assert np.array_equal(slow.exposed_s, expected.exposed_s)
    assert (slow.total_s > some.total_s).all()


@pytest.mark.parametrize("clocked", [False, True])
def test_a_collective_draws_the_power_of_the_cores_that_it_keeps_busy(clocked: bool) -> None:
    """0.15 of the cores, for as long as it takes; their power goes with the clock."""
    deployment = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm"), plan=Plan(tp=4)
    )
    model = step_model(deployment)
    states = BatchStates.decode([700] * 8, np.array([1, 301]))
    times = model.steps(states)
    device = deployment.device
    if clocked:
        slow_hz = 0.7 * times.clock_hz
        times = model.at_clock(times, states, slow_hz, np.arange(2))
        device = device.at_clock(slow_hz)
    sums = [at for at, node in enumerate(model.graph.nodes) if node.op.family == "all_reduce"]
    assert sums
    share = load_physics("composition").default["collective_cores"]
    spent = times.nodes.time_s[sums] * share * cores_w(device)
    np.testing.assert_allclose(times.nodes.above_static_j[sums], spent, rtol=1e-12)
    assert 0.0 < cores_w(find_device("H100").at_clock(1e9)) < cores_w(find_device("H100"))


def test_kernels_of_older_libraries_take_longer_at_every_clock_and_collectives_do_not() -> None:
    old = as_of(find_engine("vllm"), "0.3.3")
    assert old.taken_as.factor("hopper") > 1.0
    plain = structs.replace(old, taken_as=UnmeasuredTable())
    states, seconds = BatchStates.decode([700] * 8, np.array([1, 301])), {}
    for name, engine in (("old", old), ("plain", plain)):
        model = step_model(
            Deployment.from_model(
                find_model("Llama-3.1-8B"), find_device("H100"), engine, plan=Plan(tp=2)
            )
        )
        times = model.steps(states)
        slow = model.at_clock(times, states, 0.7 * times.clock_hz, np.arange(2))
        seconds[name] = np.stack([times.nodes.time_s, slow.nodes.time_s])
        families = [node.op.family for node in model.graph.nodes]
        fused = [node.saves for node in model.graph.nodes]
    for at, family in enumerate(families):
        if not fused[at]:
            factor = 1.0 if family in COLLECTIVES else old.taken_as.factor("hopper")
            expected = factor * seconds["plain"][:, at]
            np.testing.assert_allclose(seconds["old"][:, at], expected, rtol=1e-9, err_msg=family)


def test_what_a_user_measured_is_not_taken_as_slower_by_the_release() -> None:
    """Products measured by the user: the factor that remains is to the power of what their
    calibration leaves open, nothing where it weighs 1; of other kernels it is whole.
    """
    old = as_of(find_engine("vllm"), "0.3.3")
    measured = Calibration(FORMAT, Scope("H100"), [Offset("gemm", 0.2, 0.03, 50)])
    evidence = Evidence(calibrators=(Calibrator(measured),))
    states, seconds, weights = BatchStates.decode([700] * 8, np.array([1])), {}, {}
    for engine in (old, structs.replace(old, taken_as=UnmeasuredTable())):
        model = step_model(
            Deployment.from_model(
                find_model("Llama-3.1-8B"), find_device("H100"), engine, evidence=evidence
            )
        )
        nodes = model.steps(states).nodes
        seconds[engine is not old] = nodes.time_s[:, 0]
        for call in nodes.calls:
            assert isinstance(call.times, KernelTimes)
            if call.times.calibrated is not None:
                weights[call.group.family] = call.times.calibrated
    assert list(weights) == ["gemm"]
    assert (weights["gemm"] == 1.0).all()
    for at, node in enumerate(model.graph.nodes):
        if not node.saves:
            factor = 1.0 if node.op.family == "gemm" else 1.38
            assert seconds[False][at] == pytest.approx(factor * seconds[True][at], rel=1e-9)


def test_a_calibration_that_weighs_half_leaves_half_of_the_factor() -> None:
    ops = [Op.make("gemm", m=8, n=4096, k=size) for size in (1024, 2048, 4096)]
    times = Gemm().times(OpBatch.from_ops(ops), find_device("H100"))
    known = structs.replace(times, calibrated=np.array([0.0, 0.5, 1.0]))
    expected = [1.38, math.sqrt(1.38), 1.0]
    for each in (known, structs.replace(times, scaled=known.calibrated)):
        after = longer(each, 1.38)
        for name in ("estimate_s", "p05_s", "p95_s"):
            assert getattr(after, name) / getattr(times, name) == pytest.approx(expected)


def test_states_of_states_lie_side_by_side_as_alone() -> None:
    deployment = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm")
    )
    model = step_model(deployment)
    times = model.steps(BatchStates.decode([700, 90], np.arange(1, 13)))
    four = [times.of_states(first + np.arange(4)) for first in (0, 3, 8)]
    pairs = [each.of_states(np.array([1, 3])) for each in four]
    other = model.steps(BatchStates.decode([5], np.array([1, 2])))
    every = times.of_states(np.arange(times.total_s.shape[-1]))
    for several in (four, pairs, [*pairs, other], [every, times], [times, every]):
        exposed = StepTimes.side_by_side(several, lambda each: each.exposed_s)
        assert np.array_equal(exposed, np.array([each.exposed_s for each in several]))
        assert exposed.flags.c_contiguous
        tiers = StepTimes.side_by_side(several, lambda each: each.nodes.tiers)
        assert np.array_equal(tiers, np.array([each.nodes.tiers for each in several]))
    assert np.array_equal(pairs[1].exposed_s, times.exposed_s[:, [4, 6]])
    with pytest.raises(AttributeError):
        _ = pairs[0].no_such_table


def test_rows_are_summed_in_their_order_however_many_columns() -> None:
    table = np.random.default_rng(3).lognormal(0.0, 9.0, (40, FEW_COLUMNS + 1))
    whole = rows_summed(table)
    for part in (table[:, :1], table[:, :FEW_COLUMNS]):
        assert np.array_equal(rows_summed(part), whole[: part.shape[1]])
    assert np.array_equal(whole, np.cumsum(table, axis=0)[-1])
