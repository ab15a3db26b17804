"""Fronts against brute force; searches that are cut off, go on, and beat drawing at random."""

from __future__ import annotations

from pathlib import Path
from typing import final

import numpy as np
import pytest

from silicast.core.dominance import front
from silicast.core.errors import SilicastError
from silicast.core.numerics import I64
from silicast.exploration.gaussian_process import expected_gain
from silicast.exploration.history import DesignOutcome, MetricObjective
from silicast.exploration.pareto import dominated, empty_boxes, hypervolume, ranks
from silicast.exploration.problem import METHODS, Evaluation, SearchProblem
from silicast.exploration.search import search
from silicast.exploration.space import Parameter, Space
from tests.sampling import seeds

METHOD_NAMES = tuple(METHODS.all())


@final
class Bowls(Evaluation):
    """Two distances that cannot both be small, and a corner without designs."""

    def __init__(self, space: Space, stop_after: int | None = None) -> None:
        self.space, self.stop_after, self.asked = space, stop_after, 0

    def outcome(self, design: I64) -> DesignOutcome:
        if self.asked == self.stop_after:
            raise KeyboardInterrupt
        self.asked += 1
        x = self.space.coordinates(design[None])[0]
        if x[0] + x[1] > 1.8:
            return DesignOutcome(cause="corner")
        remaining = float(((x[2:] - 0.3) ** 2).sum())
        first, second = 0.01 + x[0] ** 2 + remaining, 0.01 + (x[0] - 1) ** 2 + x[1] + remaining
        return DesignOutcome({"a": float(first), "b": float(second)})


def bowls(stop_after: int | None = None, levels: int = 9) -> SearchProblem:
    parameters = tuple(
        Parameter(name, tuple(range(levels)), when={} if name != "z" else {"y": (0, 1, 2, 3)})
        for name in "wxyz"
    )
    space = Space(parameters, ({"w": (3,), "x": (0, 1)},))
    objectives = (MetricObjective("a", reference=2.0), MetricObjective("b", reference=4.0))
    return SearchProblem(space, objectives, Bowls(space, stop_after), "bowls")


@pytest.mark.parametrize("seed", seeds(20))
def test_front_ranks_and_volume_agree_with_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    objectives = int(rng.integers(1, 5))
    values = rng.integers(0, 6, (int(rng.integers(1, 40)), objectives)).astype(float)
    beaten = np.zeros(len(values), dtype=bool)
    for index, value in enumerate(values):
        beaten[index] = any(bool((o <= value).all() and (o < value).any()) for o in values)
    assert (dominated(values) == beaten).all()
    remaining = values[front(values)]
    assert {tuple(v) for v in remaining} == {tuple(v) for v in values[~beaten]}
    assert len(remaining) == len({tuple(v) for v in remaining})
    assert ((ranks(values) == 0) == ~beaten).all()
    # Cells of a grid of whole numbers, counted.
    reference = 7.0 + np.arange(objectives, dtype=np.float64)
    cells = np.stack(np.meshgrid(*map(np.arange, reference), indexing="ij"), -1)
    covered = np.all(values <= cells.reshape(-1, objectives)[:, None], axis=2).max(axis=1)
    assert hypervolume(values, reference) == covered.sum()


@pytest.mark.parametrize("seed", range(10))
def test_boxes_are_what_the_front_leaves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    objectives = int(rng.integers(1, 4))
    values = rng.random((int(rng.integers(0, 12)), objectives))
    reference = 1.0 + np.arange(objectives, dtype=np.float64)
    low, high = empty_boxes(values, reference)
    volume = np.prod(high - np.maximum(low, -1.0), axis=1).sum()
    assert volume + hypervolume(values, reference) == pytest.approx(np.prod(reference + 1.0))
    # Of a design that is known exactly, the gain is what its point adds.
    point = rng.random(objectives)
    gain = expected_gain(point[None], np.full((1, objectives), 1e-9), low, high)[0]
    with_it = hypervolume(np.vstack([values, point]), reference)
    assert gain == pytest.approx(with_it - hypervolume(values, reference), abs=1e-6)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_no_design_is_tried_twice_and_all_are_in_the_end(method: str) -> None:
    problem = bowls(levels=4)
    state = search(problem, method, 10_000, seed=3)
    assert state.is_complete
    assert sorted(state.history.codes) == problem.space.listed.tolist()
    assert set(state.history.infeasible) == {"forbidden combination", "corner"}
    exhaustive = search(problem, "exhaustive", 10_000)
    assert state.history.hypervolume == exhaustive.history.hypervolume


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("cut", [1, 36])
def test_a_search_that_was_cut_off_ends_with_the_same_bytes(
    method: str, cut: int, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    search(bowls(), method, 64, seed=5, file=whole)
    state = search(bowls(stop_after=cut), method, 64, seed=5, file=part)
    assert state.interrupted
    assert b'"front"' in part.read_bytes()
    search(bowls(), method, 50, seed=5, file=part, resume=True)
    search(bowls(), method, 64, seed=5, file=part, resume=True)
    assert part.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("method", ["evolutionary", "bayesian"])
def test_searching_beats_drawing_at_random(method: str) -> None:
    volumes = {
        name: np.median(
            [search(bowls(), name, 128, seed=seed).history.hypervolume for seed in range(3)]
        )
        for name in (method, "random")
    }
    assert volumes[method] > volumes["random"]


def test_another_seed_tries_other_designs() -> None:
    codes: list[I64] = [search(bowls(), "random", 40, seed=s).history.codes for s in (1, 2)]
    assert (codes[0] != codes[1]).any()


def test_a_file_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    search(bowls(), "random", 10, seed=1, file=path)
    with pytest.raises(SilicastError, match="the file is there already"):
        search(bowls(), "random", 10, seed=1, file=path)
    for method, seed, remarks in (("evolutionary", 1, "method random"), ("random", 2, "seed 1")):
        with pytest.raises(SilicastError, match=remarks):
            search(bowls(), method, 10, seed=seed, file=path, resume=True)
    other = SearchProblem(bowls().space, bowls().objectives, bowls().evaluation, "others")
    with pytest.raises(SilicastError, match="identity bowls"):
        search(other, "random", 10, seed=1, file=path, resume=True)
    path.write_text('{"identity": "bowls", "method": "random", "seed": 1, "tried": [{"code": -4}]}')
    with pytest.raises(SilicastError, match="a design that the space has not"):
        search(bowls(), "random", 10, seed=1, file=path, resume=True)
    path.write_text("{")
    with pytest.raises(SilicastError, match="not valid JSON"):
        search(bowls(), "random", 10, seed=1, file=path, resume=True)
    with pytest.raises(SilicastError, match="unknown method"):
        search(bowls(), "best", 10)
    with pytest.raises(SilicastError, match="1 or more"):
        search(bowls(), "random", 0)
    with pytest.raises(SilicastError, match="seed: expected 0 or more, found -1"):
        search(bowls(), "random", 10, seed=-1)
    with pytest.raises(SilicastError, match="resume: there is no file to go on with"):
        search(bowls(), "random", 10, resume=True)
