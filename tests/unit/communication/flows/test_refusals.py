"""What cannot run is refused, with what and where."""

from __future__ import annotations

import re

import numpy as np
import pytest

from silicast.communication.flows.groups import rounds_of
from silicast.communication.flows.job import Job, Round
from silicast.communication.flows.product import FabricDimension, ProductFabric
from silicast.communication.flows.simulation import simulate
from silicast.core.errors import SilicastError

PAIR = ProductFabric((FabricDimension("switch", 2, 1e9),))
ONE = (Round.from_messages([0], [1], 1.0),)


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "jobs: no job"),
        ([Job("a", (0, 1), ONE), Job("a", (0, 1), ONE)], "two jobs are called 'a'"),
        ([Job("a", (0, 2), ONE)], "jobs.a.ranks: rank 2 of a network of 2 (0 to 1)"),
        ([Job("a", (0, 0), ONE)], "jobs.a.ranks: rank 0 stands twice"),
        ([Job("a", (), ONE)], "jobs.a.ranks: a job without ranks"),
        (
            [Job("a", (0, 1), (Round.from_messages([0], [2], 1.0),))],
            "jobs.a.rounds.0.target: rank 2 of a job of 2 (0 to 1: the other end of its message",
        ),
        (
            [Job("a", (0, 1), (*ONE, Round.from_messages([0, 1], [1], [1.0, 1.0])))],
            "jobs.a.rounds.1: 2 senders, 1 receivers, 2 sizes (every message has one of each)",
        ),
        ([Job("a", (0, 1), (Round.from_messages([1], [1], 1.0),))],
        "jobs.a.rounds.0: rank 1 sends to itself"),
        ([Job("a", (0, 1), (Round.from_messages([0], [1], -1.0),))], "a message of -1 bytes"),
        ([Job("a", (0, 1), (Round.from_messages([0], [1], np.nan),))], "a message of nan bytes"),
        ([Job("a", (0, 1), (Round.from_messages([0], [1], 1.0, 0),))],
        "jobs.a.rounds.0.repeat: runs 0 times"),
        ([Job("a", (0, 1), ONE, -1.0)], "jobs.a.delay_s: starts at -1 s"),
        (
            [Job("a", (0, 1), ONE, after=("b",))],
            "jobs.a.after: waits for 'b', and no job is called so (jobs are a)",
        ),
        (
            [
                Job("a", (0, 1), ONE), Job("b", (0, 1), ONE, after=("a", "d")),
                Job("c", (0, 1), ONE, after=("b",)), Job("d", (0, 1), ONE, after=("c",)),
            ],
            "jobs wait in a circle: b -> d -> c -> b",
        ),
        ([Job("a", (0, 1), ONE, after=("a",))], "jobs wait in a circle: a -> a"),
    ],
)  # fmt: skip
def test_jobs_that_cannot_run(jobs: list[Job], said: str) -> None:
    with pytest.raises(SilicastError, match=re.escape(said)):
        simulate(PAIR, jobs)


def test_dimensions_that_are_none() -> None:
    for fields, remarks in (
        ({"bytes_per_s": 0.0}, "bandwidth of 0"),
        ({"size": 0}, "dimension.size"),
        ({"pod": 3}, "pods of 3 in a switch of 4"),
        ({"oversubscription": 0.0}, "oversubscription"),
        ({"latency_s": -1.0}, "latency"),
        ({"kind": "bus"}, "unknown kind of dimension 'bus'"),
    ):
        with pytest.raises(SilicastError, match=remarks):
            FabricDimension(**({"kind": "switch", "size": 4, "bytes_per_s": 1.0} | fields))  # type: ignore[arg-type]
    with pytest.raises(SilicastError, match="without dimensions"):
        ProductFabric(())
    with pytest.raises(SilicastError, match="at most"):
        ProductFabric((FabricDimension("switch", 2048, 1.0), FabricDimension("switch", 2048, 1.0)))


def test_collectives_without_rounds() -> None:
    for op, method, gpus, remarks in (
        ("all_reduce", "halving_doubling", 6, "a power of two"),
        ("all_to_all", "tree", 4, "all_to_all goes by direct"),
        ("sing", "ring", 4, "unknown operation"),
        ("all_reduce", "ring", 0, "at least 1"),
    ):
        with pytest.raises(SilicastError, match=remarks):
            rounds_of(op, method, gpus, 1.0)  # type: ignore[arg-type]
    assert rounds_of("all_reduce", "ring", 1, 1e6) == ()


def test_a_job_alone_takes_no_time() -> None:
    done = simulate(PAIR, [Job("a", (0,), (), 2.0), Job("b", (0, 1), ONE, 1.0, ("a",))])
    assert (done.jobs["a"].start_s, done.jobs["a"].end_s) == (2.0, 2.0)
    assert done.jobs["b"].start_s == 3.0
