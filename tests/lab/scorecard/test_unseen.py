"""Boards left out with their twins: what is predicted inside, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lab.scorecard.suite import EVIDENCE, Scored
from lab.scorecard.suites.unseen import KNOWN, unseen
from silicast.hardware.catalog import find_device
from silicast.kernels.physics.constants import load_physics

BOARDS = ("H20", "A100", "H100", "P4", "A100")
FACTS: dict[str, Callable[[str], bool]] = {
    "gemm": lambda board: load_physics("gemm").is_measured(find_device(board).architecture),
    "learned": lambda _: EVIDENCE.get().learned,
    "board": lambda _: "P4" in load_physics("ranges").architectures,
}


def facts(_: Path, __: int | None, on: Callable[[str], bool]) -> Iterator[Scored]:
    """As estimates, 2 where a fact of a board holds and 1 where not."""
    boards = [board for board in BOARDS if on(board)]
    for name, holds in FACTS.items():
        estimate = np.array([1.0 + holds(board) for board in boards])
        yield Scored(
            name, np.arange(1.0, 1.0 + len(boards)), estimate, estimate, estimate,
            groups={"device": np.array(boards)},
        )  # fmt: skip


def test_each_architecture_is_unknown_where_it_is_scored_and_known_beside_it() -> None:
    table = {scored.metric: scored for scored in unseen(facts, Path(), None)}
    assert list(table) == list(FACTS)
    for name in ("gemm", "learned"):
        assert table[name].estimate.tolist() == [1.0] * len(BOARDS)
        assert table[name].baselines[KNOWN].tolist() == [2.0] * len(BOARDS)


def test_constants_of_a_board_by_name_are_gone_with_its_architecture_only() -> None:
    assert "P4" in load_physics("ranges").architectures
    scored = {each.metric: each for each in unseen(facts, Path(), None)}["board"]
    current = scored.groups["architecture"] == find_device("P4").architecture
    assert current.sum() == 1
    assert scored.estimate[current].tolist() == [1.0]
    assert set(scored.estimate[~current].tolist()) == {2.0}


def test_boards_have_their_names_of_the_catalog_and_keep_their_rows() -> None:
    scored = next(unseen(facts, Path(), None))
    assert sorted(scored.groups["device"].tolist()) == sorted(find_device(b).name for b in BOARDS)
    assert sorted(scored.measured.tolist()) != [1.0] * len(BOARDS)
