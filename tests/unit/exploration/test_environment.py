"""The space as an environment of gymnasium; its own check is asked where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs gymnasium: pip install 'silicast[design]'")

from silicast.core.errors import SilicastError
from silicast.exploration.environment import DesignEnvironment
from silicast.exploration.history import MetricObjective
from silicast.exploration.pareto import hypervolume
from silicast.exploration.problem import SearchProblem
from tests.property.test_search_laws import bowls


def test_gymnasium_finds_nothing_wrong() -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(DesignEnvironment(bowls()), skip_render_check=True)


def test_rewards_sum_to_what_the_front_encloses() -> None:
    environment = DesignEnvironment(bowls(), steps=40)
    environment.reset(seed=1)
    environment.action_space.seed(1)
    total, ended, values, seen = 0.0, False, [], []
    while not ended:
        action = environment.action_space.sample()
        observed, reward, _, ended, info = environment.step(action)
        assert reward >= 0
        total += reward
        seen.append(observed[-1])
        if not info["cause"]:
            values.append([info["metrics"]["a"], info["metrics"]["b"]])
    assert total == pytest.approx(hypervolume(np.array(values), np.array([2.0, 4.0])) / 8.0)
    assert 0 < sum(seen) < 40
    again = environment.step(action)
    assert again[1] == 0


def test_a_reward_needs_references() -> None:
    problem = bowls()
    without = SearchProblem(problem.space, (MetricObjective("a"),), problem.evaluation, "x")
    with pytest.raises(SilicastError, match="needs a reference"):
        DesignEnvironment(without)
