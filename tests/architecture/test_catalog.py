"""Data files of the catalog say where their numbers are from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from silicast.kernels.physics.constants import load_physics
from tests.architecture.source_tree import PACKAGE, ROOT

PHYSICS = sorted((PACKAGE / "catalog" / "physics").glob("*.json"))


def test_there_are_constants() -> None:
    assert PHYSICS


@pytest.mark.parametrize("path", PHYSICS, ids=lambda p: p.stem)
def test_constants_carry_a_full_card(path: Path) -> None:
    physics = load_physics(path.stem)
    card = physics.card
    assert card.data, "names no data"
    assert card.split, "does not say which rows were fitted on"
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", card.date)
    assert physics.default, "has no constants for an unknown architecture"
    script = re.search(r"lab[/.](\w+)", card.command)
    assert script, f"{card.command!r} is no script of this repository"
    assert (ROOT / "lab" / f"{script.group(1)}.py").is_file(), card.command


@pytest.mark.parametrize("path", PHYSICS, ids=lambda p: p.stem)
def test_stand_ins_exist(path: Path) -> None:
    physics = load_physics(path.stem)
    for architecture, stand_in in physics.fallback.items():
        assert architecture not in physics.architectures, f"{architecture} has its own"
        assert stand_in in {"", *physics.architectures}, "neither measured nor the default"
