"""Two ways to ask for one thing have one answer: cheap pairs of each law of the benchmark."""

from __future__ import annotations

import pytest

import silicast
from benchmarks.agreeing_answers import LAWS, Law, disagreements
from silicast.hardware.catalog import device_from, find_device
from silicast.scenario.answer import Answer
from silicast.scenario.answers.inference.comparison import carrying

SLOW = frozenset(
    {
        "offered_and_answered",
        "twice_the_replicas",
        "cost_and_price",
        "capacity_served",
        "best_plan_pinned",
        "recommended_and_served",
        "swept_and_served",
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


@pytest.mark.parametrize("users", [24, 200])
def test_the_closed_form_of_users_agrees_with_their_simulation(users: int) -> None:
    """Each throughput lies within the other's interval; at 200 users the server is near the most
    that it answers, and what prompts of one step cost decides.
    """
    lengths = {"input_len": 1024, "output_len": 128}
    tree = {"task": "inference", "model": "Llama-3.1-8B", "workload": {"batch": 1, **lengths}}
    [candidate] = carrying(tree, ["H100"], users, 5.0)
    assert isinstance(candidate.reply, Answer)
    closed = candidate.reply.metrics["output_tokens_per_s"]
    simulated = silicast.predict(
        task="serving",
        model="Llama-3.1-8B",
        device="H100",
        workload={"arrival": {"kind": "closed", "concurrency": users}, **lengths},
    )["output_tokens_per_s"]
    assert closed.p05 <= simulated.estimate <= closed.p95
    assert simulated.p05 <= closed.estimate <= simulated.p95
    assert closed.estimate == pytest.approx(simulated.estimate, rel=0.1)
