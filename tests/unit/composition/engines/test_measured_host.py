"""Engines with measured host constants, and whole models under a calibration of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from silicast.composition.engines.engine import Engine, find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.engines.measured_host import with_measured_host
from silicast.composition.passes.deployment import Deployment
from silicast.composition.passes.static_batch import predict_static_batch
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.core.calibrated import CollectiveCurve, HostConstant
from silicast.core.calibration import FORMAT, Calibration, Offset, Scope
from silicast.hardware.catalog import find_device
from silicast.hardware.host import Host
from silicast.learning.calibration import Calibrator
from silicast.learning.tiers import Evidence, WholeModels
from silicast.workload.frameworks.eager import Framework
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan

EAGER = find_engine("torch-eager")
H100 = find_device("H100")


def constant(name: str, value: float, engine: str = "torch-eager", sd: float = 0.1) -> HostConstant:
    return HostConstant(name, value, sd, 3, engine=engine)


def measured(engine: Engine, *constants: HostConstant, stated: Host | None = None) -> Engine:
    return with_measured_host(engine, constants, Host("mine", 2.0), stated).engine


def test_nothing_measured_changes_nothing() -> None:
    assert measured(EAGER) == EAGER
    assert measured(EAGER, constant("dispatch_us", 12.0, "vllm")) == EAGER
    assert measured(EAGER, constant("launch_us", 12.0)) == EAGER


def test_a_measured_launch_takes_the_place_of_the_files() -> None:
    host = measured(EAGER, constant("dispatch_us", 16.0)).host
    assert (host.dispatch_us, host.step_us) == (16.0, EAGER.host.step_us)
    assert host.backward_us == pytest.approx(EAGER.host.backward_us * 16.0 / EAGER.host.dispatch_us)
    assert host.launch_log_sd == pytest.approx(0.1)
    assert host.log_sd == EAGER.host.log_sd


def test_of_the_engine_goes_before_of_any() -> None:
    both = (constant("round_trip_us", 9.0, ""), constant("round_trip_us", 5.0))
    assert measured(EAGER, *both).host.round_trip_us == 5.0
    assert measured(EAGER, both[0]).host.round_trip_us == 9.0


def test_another_host_is_reached_by_speed_factors() -> None:
    reference = measured(EAGER, constant("step_us", 40.0), stated=Host("other", 4.0))
    assert reference.host.step_us == 80.0  # of a host of speed 1, which composition divides by 4


def test_a_graph_is_launched_only_where_one_is_replayed() -> None:
    replayed = with_options(EAGER, {"cuda_graph": "full"})
    graph = constant("graph_launch_us", 11.0, "")
    assert measured(EAGER, graph).host == EAGER.host
    assert measured(replayed, graph).host.step_us == 11.0
    assert measured(replayed, graph).host.log_sd == pytest.approx(0.1)


def deployment(evidence: Evidence = Evidence(), engine: str = "vllm", tp: int = 2) -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.1-8B"), H100, find_engine(engine), Plan(tp=tp), evidence=evidence
    )


def everything() -> Evidence:
    """A calibration of kernels, collectives and whole models."""
    curve = CollectiveCurve(
        "all_reduce", "vllm", "graph", 2, 1, [1 << 10, 1 << 26], [0.2, 0.3], 0.05, 8
    )
    offsets = [Offset("gemm", 0.2, 0.04, 60), Offset("attention_decode", -0.1, 0.04, 60)]
    made = Calibration(FORMAT, Scope(H100.name), offsets, collectives=[curve])
    return Evidence(calibrators=(Calibrator(made),), whole=WholeModels(0.08, 0.02))


def states() -> BatchStates:
    lengths = np.array([3, 700, 90], dtype=np.int64)
    return BatchStates.prefill(lengths.tolist()).then(
        BatchStates.decode(lengths.tolist(), np.array([1, 50, 900], dtype=np.int64))
    )


def under(table: Deployment, engine: Engine) -> Deployment:
    """The deployment under another engine."""
    return replace(table, machine=replace(table.machine, engine=engine))


@pytest.mark.parametrize("engine", ["vllm", "torch-eager"])
def test_calibrated_steps_are_slower_and_the_same_alone_and_in_a_batch(engine: str) -> None:
    result = deployment(everything(), engine)
    dispatch = constant("dispatch_us", 19.0, engine)
    result = under(result, measured(result.engine, dispatch, constant("step_us", 90.0, engine)))
    model = StepModel.from_deployment(result)
    full = model.steps(states())
    for row in range(len(states())):
        alone = model.steps(states().chosen(np.array([row])))
        assert alone.total_s[0] == full.total_s[row]
    plain = StepModel.from_deployment(deployment(engine=engine)).steps(states())
    assert np.all(full.total_s > plain.total_s)


def test_kernels_of_whole_models_take_the_factor_and_say_so() -> None:
    plain = predict_static_batch(deployment(tp=1), [512] * 8, 16)
    factor = Evidence(whole=WholeModels(0.1, 0.02))
    static_batch = predict_static_batch(deployment(factor, tp=1), [512] * 8, 16)
    ratio = static_batch.prefill.seconds / plain.prefill.seconds
    assert 1.05 < ratio < 1.12  # the clock that is held may be a little higher
    assert static_batch.total.tier == "calibrated"
    assert plain.total.tier != "calibrated"
    assert static_batch.prefill.error.causes["composition"] == 0.02


def test_a_measured_host_narrows_the_interval_of_a_pass_of_launches() -> None:
    small = replace(deployment(engine="torch-eager", tp=1), model=find_model("GPT-2"))
    same = measured(small.engine, constant("dispatch_us", small.engine.host.dispatch_us))
    plain = predict_static_batch(small, [16], 16, Framework()).total
    narrow = predict_static_batch(under(small, same), [16], 16, Framework()).total
    assert narrow.seconds == plain.seconds
    assert narrow.error.loadings["host"] < 0.5 * plain.error.loadings["host"]
