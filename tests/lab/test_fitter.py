"""From rows to a file of constants, and to those of architectures left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab import fitting
from lab.fitter import Body, Fitter
from lab.scorecard.held_out import Body as HeldOut
from silicast.kernels.physics.constants import Physics

Rows = Mapping[str, list[float]]


class Means(Fitter[Rows]):
    """Each architecture's mean."""

    group = "means"
    data = ("rows",)
    split = "none"

    def rows(self, data: Path) -> Rows:
        return {"ada": [1.0, 2.0], "hopper": [4.00004]}

    def fit(self, rows: Rows) -> Body:
        table = {name: {"x": sum(values) / len(values)} for name, values in rows.items()}
        return fitting.body({"x": 2.0}, table, {"pascal": "ada"})

    def scores(self, rows: Rows, body: Body) -> Mapping[str, Any]:
        return {"rows": sum(map(len, rows.values()))}


class Transferred(Means):
    """Hopper alone can be left out."""

    def without(self, rows: Rows, architecture: str, body: Body) -> Body | None:
        if architecture != "hopper":
            return None
        return self.fit({name: row for name, row in rows.items() if name != architecture})


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("SILICAST_DATA", str(tmp_path))
    monkeypatch.setattr(fitting, "PHYSICS", tmp_path / "physics")
    monkeypatch.setattr(fitting, "HELD_OUT", tmp_path / "held_out")
    return tmp_path / "physics" / "means.json", tmp_path / "held_out" / "means.json"


def test_constants_are_written_as_the_package_reads_them(paths: tuple[Path, Path]) -> None:
    Means().run()
    result = msgspec.json.decode(paths[0].read_bytes(), type=Physics)
    assert result.architectures == {"ada": {"x": 1.5}, "hopper": {"x": 4.0}}
    assert result.fallback == {"pascal": "ada"}
    assert result.card.command == "python -m lab.test_fitter"
    assert (result.card.scores, result.card.date) == ({"rows": 3}, ""), "the runner dates it"
    assert not paths[1].exists()


def test_what_cannot_be_left_out_is_not(paths: tuple[Path, Path]) -> None:
    Transferred().run()
    result = msgspec.json.decode(paths[1].read_bytes(), type=dict[str, HeldOut])
    assert {name: body.architectures for name, body in result.items()} == {
        "hopper": {"ada": {"x": 1.5}}
    }


def test_a_physics_is_written_as_its_body_is(tmp_path: Path) -> None:
    about = fitting.card("c", ["d"], "s", notes="n")
    fitting.write(tmp_path / "one.json", fitting.physics(about, {"x": 1e-6}))
    result = msgspec.json.decode((tmp_path / "one.json").read_bytes(), type=Physics)
    assert (result.default, result.card.notes) == ({"x": 1e-6}, "n")
