"""The recipes of ``examples/workflows`` are scenarios that answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from silicast.core.plain_data import read_scenario_file
from silicast.scenario.answer import Answer
from silicast.scenario.answers.workflow.stage_work import StageContext, work_of
from silicast.scenario.decode import load
from silicast.scenario.run import reply_to
from silicast.scenario.workloads import WorkflowWorkload

RECIPES = sorted((Path(__file__).parents[5] / "examples" / "workflows").glob("*.toml"))


def test_there_are_fourteen() -> None:
    assert len(RECIPES) == 14


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_stage_of_a_recipe_has_a_work(path: Path) -> None:
    scenario = load(path)
    assert isinstance(scenario.workload, WorkflowWorkload)
    for name, table in scenario.workload.stages.items():
        if table.work != "train":  # a whole training step is composed for it
            assert work_of(StageContext(scenario, name, table)) is not None


@pytest.mark.full
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_answers(path: Path) -> None:
    reply = reply_to(read_scenario_file(path), folder=path.parent)
    assert isinstance(reply, Answer), reply
    assert sum(reply.why["coverage"]["time_share"].values()) == pytest.approx(1.0, abs=1e-4)
