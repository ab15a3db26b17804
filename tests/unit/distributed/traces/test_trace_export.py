"""Predicted passes as Chakra traces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silicast.composition.passes.framework_pass import predict_framework_pass
from silicast.composition.passes.program import ProgramPass
from silicast.core.errors import SilicastError
from silicast.distributed.traces.trace_export import chakra_of
from silicast.formats.chakra.calls import collectives_of
from silicast.formats.chakra.check import defects_of
from silicast.scenario.decode import decode
from silicast.scenario.resolving.deployments import deployment_of
from silicast.workload.frameworks.eager import Framework
from silicast.workload.training.backward import Training
from silicast.workload.transformers.plan import Plan


def predicted(plan: Plan) -> ProgramPass:
    scenario = decode({
        "task": "graph", "device": "h100", "model": "Llama-3.2-1B",
        "workload": {"batch": 1, "seq_len": 128},
    })  # fmt: skip
    deployment, _ = deployment_of(scenario)
    deployment = replace(deployment, plan=plan)
    return predict_framework_pass(deployment, 4, 128, Framework(training=Training()))


def test_gradients_are_summed_over_ranks_that_hold_the_same() -> None:
    """tp = 2 and dp = 2: neighbours share tensors, every second rank shares gradients."""
    made = chakra_of(predicted(Plan(tp=2, dp=2)))
    assert list(made.ranks) == [0, 1, 2, 3]
    assert made.groups == {
        "neighbours_2_0": (0, 1), "neighbours_2_1": (2, 3),
        "gradients_2_0": (0, 2), "gradients_2_1": (1, 3),
    }  # fmt: skip
    assert defects_of(made) == []
    sums = [call for call in collectives_of(made) if call.group == "gradients_2_1"]
    assert sums
    assert all(call.ranks == (1, 3) and len(call.members) == 2 for call in sums)


def test_a_collective_of_all_ranks_names_no_group() -> None:
    made = chakra_of(predicted(Plan(tp=2)))
    assert made.groups == {}
    calls = collectives_of(made)
    assert calls
    assert {call.ranks for call in calls} == {(0, 1)}


def test_each_operation_states_its_work_and_time() -> None:
    result = predicted(Plan())
    (current,) = chakra_of(result, name="p").ranks.values()
    assert len(current.nodes) == len(result.model.graph.executions.sequence)
    assert all(node.number("tensor_size") > 0 for node in current.nodes)
    products = [node for node in current.nodes if node.name.endswith(".gate_up")]
    assert products
    assert all(node.number("num_ops") > 0 for node in products)
    line = result.timeline
    total_us = sum(node.duration_us for node in current.nodes)
    busy_us = float((line.end_s - line.start_s).sum()) * 1e6
    assert abs(total_us - busy_us) <= 0.5 * len(current.nodes)


def test_pipeline_stages_are_refused() -> None:
    with pytest.raises(SilicastError, match="pipeline stages"):
        chakra_of(predicted(Plan(pp=2)))
