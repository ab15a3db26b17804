"""What a graph of stages must satisfy, and what chance does to its jobs."""

from __future__ import annotations

import numpy as np
import pytest

from silicast.core.errors import SilicastError
from silicast.workflow.jobs import JOIN, expanded
from silicast.workflow.stages import StageLoop, WorkflowGraph, WorkflowStage


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ([WorkflowStage("a", ("b",)), WorkflowStage("b", ("a",))], "wait for each other"),
        ([WorkflowStage("a", ("x",))], "no other stage"),
        ([WorkflowStage("a", loop=StageLoop("a", 1.0))], "without a way out"),
        ([WorkflowStage("a", loop=StageLoop("a", 0.9999999))], "turns are expected"),
        ([WorkflowStage("a"), WorkflowStage("b", loop=StageLoop("a", 0.5))], "does not come after"),
        (
            [WorkflowStage("a", branch="x", probability=0.5), WorkflowStage("b", branch="x")],
            "sum to 1.5",
        ),
    ],
)
def test_what_cannot_run_is_refused(stages: list[WorkflowStage], words: str) -> None:
    with pytest.raises(SilicastError, match=words) as caught:
        WorkflowGraph(tuple(stages))
    assert caught.value.field.startswith("stages")


def test_a_branch_takes_one_way_and_skips_what_follows_the_other() -> None:
    graph = WorkflowGraph(
        (
            WorkflowStage("ask"),
            WorkflowStage("small", ("ask",), probability=0.7, branch="size"),
            WorkflowStage("large", ("ask",), probability=0.3, branch="size"),
            WorkflowStage("check", ("large",)),
            WorkflowStage("reply", ("small", "check")),
        )
    )
    jobs = expanded(graph, 4000, 2)
    counts = np.bincount(jobs.stage, minlength=5)
    assert counts[1] + counts[2] == 4000
    assert counts[2] == counts[3]
    assert counts[4] == 4000
    assert counts[2] / 4000 == pytest.approx(0.3, abs=0.03)


def test_an_optional_stage_lets_what_follows_it_go_on() -> None:
    graph = WorkflowGraph(
        (
            WorkflowStage("a"),
            WorkflowStage("b", ("a",), probability=0.0),
            WorkflowStage("c", ("b",)),
        )
    )
    jobs = expanded(graph, 10)
    assert np.bincount(jobs.stage, minlength=3).tolist() == [10, 0, 10]


def test_a_cascade_goes_on_only_from_models_that_were_asked() -> None:
    """By hand: 0.4 of all reach the second model, 0.4 x 0.5 the third, all the end."""
    graph = WorkflowGraph(
        (
            WorkflowStage("small"),
            WorkflowStage("large", ("small",), probability=0.4, escalates=True),
            WorkflowStage("largest", ("large",), probability=0.5, escalates=True),
            WorkflowStage("reply", ("largest",)),
        )
    )
    jobs = expanded(graph, 8000, 5)
    counts = np.bincount(jobs.stage, minlength=4)
    assert counts[0] == counts[3] == 8000
    assert counts[1] / 8000 == pytest.approx(0.4, abs=0.02)
    assert counts[2] / 8000 == pytest.approx(0.2, abs=0.02)
    asked = set(jobs.item[jobs.stage == 1].tolist())
    assert asked.issuperset(jobs.item[jobs.stage == 2].tolist())


def test_turns_of_a_loop_have_their_mean_and_their_limit() -> None:
    graph = WorkflowGraph(
        (WorkflowStage("think"), WorkflowStage("act", ("think",), loop=StageLoop("think", 0.75, 9)))
    )
    jobs = expanded(graph, 4000, 4)
    counts = np.bincount(jobs.stage, minlength=2)
    loop = graph["act"].loop
    assert loop is not None
    assert counts[0] == counts[1]
    assert counts[0] / 4000 == pytest.approx(loop.expected_turns, rel=0.03)
    assert jobs.visit.max() == 8


def test_many_copies_join_in_one_place() -> None:
    """Three copies and then two: five edges by a join, not six."""
    graph = WorkflowGraph((WorkflowStage("a", copies=3), WorkflowStage("b", ("a",), copies=2)))
    jobs = expanded(graph, 1)
    assert (jobs.stage == JOIN).sum() == 1
    assert sum(jobs.waits) == 5


def test_more_jobs_than_are_simulated_are_refused_before_they_are_made() -> None:
    graph = WorkflowGraph((WorkflowStage("a", copies=1000, repeat=1000),))
    with pytest.raises(SilicastError, match="1e\\+06 jobs each") as caught:
        expanded(graph, 3)
    assert caught.value.kind == "limit"


def test_the_same_seed_takes_the_same_way() -> None:
    graph = WorkflowGraph((WorkflowStage("a", probability=0.5),))
    assert expanded(graph, 50, 1).item.tolist() == expanded(graph, 50, 1).item.tolist()
    assert expanded(graph, 50, 1).item.tolist() != expanded(graph, 50, 2).item.tolist()
