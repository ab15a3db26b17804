"""An engine's front takes one request after the other."""

import dataclasses

import numpy as np

from silicast.composition.engines.engine import find_engine
from silicast.composition.engines.engine_options import with_options
from silicast.composition.passes.deployment import Deployment
from silicast.hardware.catalog import find_device
from silicast.serving.simulation.deploy import replica_spec
from silicast.serving.simulation.event_loop import ReplicaSpec, Simulation
from silicast.serving.traffic.requests import Requests
from silicast.workload.models.lookup import find_model

MS = 1_000_000


def spec(**options: int) -> ReplicaSpec:
    engine = with_options(find_engine("vllm"), options)
    return replica_spec(
        Deployment.from_model(find_model("Llama-3.2-1B"), find_device("H100"), engine)
    )


def test_requests_sent_at_once_reach_the_scheduler_one_by_one() -> None:
    one = dataclasses.replace(spec(), front_ns=3 * MS, front_token_ns=1000)
    records = Simulation(Requests.closed(4, [1000] * 4, [2] * 4), [one]).run()
    assert records.arrived_ns.tolist() == [4 * MS, 8 * MS, 12 * MS, 16 * MS]
    assert (records.scheduled_ns >= records.arrived_ns).all()


def test_each_replica_has_a_front() -> None:
    one = dataclasses.replace(spec(), front_ns=3 * MS, front_token_ns=0)
    records = Simulation(Requests.closed(4, [10] * 4, [2] * 4), [one, one]).run()
    assert np.sort(records.arrived_ns).tolist() == [3 * MS, 3 * MS, 6 * MS, 6 * MS]


def test_an_idle_front_keeps_nobody_waiting() -> None:
    one = dataclasses.replace(spec(), front_ns=3 * MS, front_token_ns=0)
    arrival = np.array([0, 10 * MS])
    records = Simulation(Requests.from_arrays(arrival, np.full(2, 10), np.full(2, 2)), [one]).run()
    assert records.arrived_ns.tolist() == [3 * MS, 13 * MS]


def test_limits_of_an_engine_are_options() -> None:
    limits = spec(max_num_batched_tokens=512, max_num_seqs=3).limits
    assert (limits.step_tokens, limits.sequences) == (512, 3)
