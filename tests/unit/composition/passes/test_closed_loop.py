"""Few clients in a closed loop."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.closed_loop import closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.composition.step.states import BatchStates
from silicast.composition.step.step import StepModel
from silicast.hardware.catalog import find_device
from silicast.workload.models.lookup import find_model
from silicast.workload.transformers.plan import Plan


def deployment(engine: str = "vllm") -> Deployment:
    return Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine(engine)
    )


def test_one_client_sees_decode_steps_alone() -> None:
    where = deployment()
    result = closed_loop(where, 1, 1000, 100)
    state = BatchStates.decode([1050], np.array([1]))
    step_s = float(StepModel.from_deployment(where).steps(state).total_s[0])
    assert result.tpot_s.estimate == pytest.approx(step_s, rel=1e-3)
    assert result.stretch_s == 0.0


@pytest.mark.parametrize(("clients", "cached"), [(1, [8500]), (2, [5000, 12000])])
def test_clients_are_spread_evenly_over_an_output(clients: int, cached: list[int]) -> None:
    """In the middle of 14,000 tokens after 1,500; two of them a quarter from either end."""
    where = deployment()
    state = BatchStates.decode(cached, np.array([clients]))
    step_s = float(StepModel.from_deployment(where).steps(state).total_s[0])
    result = closed_loop(where, clients, 1500, 14000)
    assert result.decode.seconds == pytest.approx(step_s, rel=1e-3)
    assert result.tpot_s.estimate == pytest.approx(
        step_s + (clients - 1) * result.stretch_s / 13999, rel=2e-3
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_prompts_of_others_stretch_steps(engine: str) -> None:
    where = deployment(engine)
    short, long = (closed_loop(where, 4, prompt, 200) for prompt in (100, 6000))
    assert long.stretch_s > 10 * short.stretch_s > 0.0
    decode = long.decode.seconds
    share = long.tpot_s.estimate - decode
    assert 0.8 * 3 * long.stretch_s / 199 < share < 3 * long.stretch_s / 199
    more = closed_loop(where, 4, 6000, 2000)
    assert more.tpot_s.estimate - more.decode.seconds < 0.2 * share, "over more tokens"


def test_an_engine_that_does_not_mix_stops_for_the_whole_prefill() -> None:
    where = deployment("sglang")
    whole = StepModel.from_deployment(where).steps(BatchStates.prefill([2048])).total_s[0]
    assert closed_loop(where, 2, 2048, 64).stretch_s == pytest.approx(whole, rel=0.2)


def test_groups_of_data_parallel_attention_share_the_clients() -> None:
    def found(clients: int, groups: int) -> float:
        where = Deployment.from_model(
            find_model("DeepSeek-V3"), find_device("B200"), find_engine("trtllm"),
            plan=Plan(attention_dp=groups, ep=groups),
        )  # fmt: skip
        return closed_loop(where, clients, 1000, 500).decode.seconds

    assert found(8, 8) == found(1, 8) < found(16, 8)


def test_quantiles_enclose_the_estimate() -> None:
    tpot_s = closed_loop(deployment(), 4, 1000, 1000).tpot_s
    assert tpot_s.p05 <= tpot_s.estimate <= tpot_s.p95


@pytest.mark.parametrize(("clients", "output"), [(0, 10), (1, 1)])
def test_what_cannot_be_asked(clients: int, output: int) -> None:
    with pytest.raises(ValueError, match="client"):
        closed_loop(deployment(), clients, 10, output)


def test_no_more_requests_come_than_the_front_takes_in() -> None:
    """5 ms each: 200 a second, 400 clients have theirs in 2 s (Little), in most of it they wait."""
    where = Deployment.from_model(
        find_model("Llama-3.2-1B"), find_device("H100"), find_engine("vllm")
    )
    result = closed_loop(where, 400, 500, 20)
    assert result.tokens_per_s.estimate == pytest.approx(200.0 * 20)
    taken_s = result.first_s.estimate + 19 * result.tpot_s.estimate
    assert taken_s == pytest.approx(400 / 200.0)
    assert result.token_s == pytest.approx(taken_s / 20)
    few, more = (closed_loop(where, result.running + n, 500, 20) for n in (0, 1))
    assert few.running == result.running < 400
    assert few.tpot_s.estimate == pytest.approx(result.tpot_s.estimate)
    assert few.tokens_per_s.estimate <= 4000.0 * (1.0 + 1e-9)
    assert more.running == result.running


def test_prompts_of_many_clients_share_steps() -> None:
    """200 clients send 1.6 prompts a step of 128: a second one hides behind no memory traffic, so
    that each costs more than beside decoding alone, and their throughput keeps below what serial
    work allows. The lifetime obeys Little's law, with the prompts of all others in it.
    """
    where = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm")
    )
    few, many = (closed_loop(where, clients, 1024, 128) for clients in (2, 200))
    assert many.stretch_s > 1.15 * few.stretch_s
    lifetime_s = many.first_s.estimate + 127 * many.tpot_s.estimate
    assert many.tokens_per_s.estimate == pytest.approx(200 * 128 / lifetime_s)
    serial_s = many.stretch_s + 127 * many.decode.seconds / 200
    assert many.tokens_per_s.estimate * serial_s == pytest.approx(128, rel=0.01)
