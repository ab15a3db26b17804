"""Two ways to ask for one thing have one answer: cheap pairs of each law of the benchmark."""

from __future__ import annotations

import pytest

import silicast
from benchmarks.agreeing_answers import LAWS, Law, disagreements
from silicast.composition.engines.engine import find_engine
from silicast.composition.passes.closed_loop import closed_loop
from silicast.composition.passes.deployment import Deployment
from silicast.hardware.catalog import device_from, find_device
from silicast.scenario.answer import Answer
from silicast.scenario.answers.inference.comparison import carrying
from silicast.workload.models.lookup import find_model

SLOW = frozenset(
    {
        "offered_and_answered",
        "twice_the_replicas",
        "cost_and_price",
        "capacity_served",
        "best_plan_pinned",
        "recommended_and_served",
        "swept_and_served",
        "served_everywhere",
        "capacity_everywhere",
        "clients_served",
        "fewest_served",
        "users_and_served",
    }
)
"""Laws whose pairs are simulated or searched for seconds."""


QUICK = [law for law in LAWS if law.__name__ not in SLOW]


@pytest.mark.parametrize("law", QUICK, ids=lambda law: law.__name__)
def test_both_ways_to_ask_agree(law: Law) -> None:
    for seed in (1, 500):
        assert not disagreements(law, seed)


@pytest.mark.full
@pytest.mark.parametrize("law", [law for law in LAWS if law not in QUICK])
def test_both_ways_to_ask_agree_where_it_takes_long(law: Law) -> None:
    for seed in range(3):
        assert not disagreements(law, seed)


def test_a_stated_number_that_is_the_same_changes_nothing() -> None:
    board = find_device("RTX 4090")
    size = board.dram.bandwidth_bytes_per_s / 1e9
    same = {"base": "RTX 4090", "memory": {"dram": {"bandwidth_gb_per_s": size}}}
    assert device_from(same) is board
    same["memory"] = {"dram": {"bandwidth_gb_per_s": 1.01 * size}}
    assert device_from(same).name == "RTX 4090 (changed)"


@pytest.mark.parametrize(("users", "replicas"), [(24, 1), (200, 1), (90, 2)])
def test_users_of_a_comparison_are_those_of_serve(users: int, replicas: int) -> None:
    """A closed form of them had a TTFT of 58 ms where requests wait 756 ms for one another."""
    lengths = {"input_len": 1024, "output_len": 128}
    tree = {"task": "inference", "model": "Llama-3.1-8B", "workload": {"batch": 1, **lengths}}
    speed = 20.0 if replicas == 1 else 60.0
    [candidate] = carrying(tree, ["H100"], users, speed)
    assert isinstance(candidate.reply, Answer)
    assert candidate.reply.why["users"]["replicas"] == replicas
    served = silicast.predict(
        task="serving",
        model="Llama-3.1-8B",
        device="H100",
        pools={"all": {"count": replicas}},
        workload={"arrival": {"kind": "closed", "concurrency": users}, **lengths},
    )
    assert served["tpot_mean_ms"].estimate <= 1e3 / speed
    for name in ("ttft_mean_ms", "tpot_mean_ms", "output_tokens_per_s"):
        assert candidate.reply.metrics[name] == served[name]


def test_the_closed_form_of_users_is_near_their_simulation() -> None:
    """Only how many replicas are tried first comes of it: it is no further than a tenth off."""
    where = Deployment.from_model(
        find_model("Llama-3.1-8B"), find_device("H100"), find_engine("vllm")
    )
    for users in (24, 200):
        simulated = silicast.predict(
            task="serving",
            model="Llama-3.1-8B",
            device="H100",
            workload={
                "arrival": {"kind": "closed", "concurrency": users},
                "input_len": 1024,
                "output_len": 128,
            },
        )["output_tokens_per_s"]
        closed = closed_loop(where, users, 1024, 128).tokens_per_s
        assert closed.estimate == pytest.approx(simulated.estimate, rel=0.1)
