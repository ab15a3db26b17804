"""Constants of architectures that are held out, and what stays inside the block that uses them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from lab.scorecard import held_out as module
from lab.scorecard.held_out import groups, held_out, unknown_architecture, unmeasured
from silicast.core.errors import SilicastError
from silicast.kernels.physics.constants import NO_CONSTANTS, has_physics, load_physics, replaced

Inside = Callable[[str], AbstractContextManager[None]]


def test_there_are_groups() -> None:
    assert {"gemm", "attention_decode", "moe", "energy"} <= set(groups())


@pytest.mark.parametrize("group", groups())
def test_no_architecture_has_constants_of_its_own(group: str) -> None:
    bodies = held_out(group)
    assert bodies
    for architecture, body in bodies.items():
        assert architecture not in body.architectures
        assert architecture not in body.fallback.values()


def test_all_groups_forget_the_architecture_inside_and_know_it_after() -> None:
    measured = [g for g in groups() if load_physics(g).is_measured("hopper")]
    assert "gemm" in measured
    with unmeasured("hopper"):
        for group in measured:
            assert not load_physics(group).is_measured("hopper") or "hopper" not in held_out(group)
    assert all(load_physics(group).is_measured("hopper") for group in measured)


def test_a_second_architecture_is_taken_out_as_well() -> None:
    with unmeasured("hopper", also="ada"):
        assert not load_physics("gemm").is_measured("ada")
    assert load_physics("gemm").is_measured("ada")


@pytest.mark.parametrize("inside", [unmeasured, unknown_architecture])
def test_a_group_without_constants_gets_none_held_out(inside: Inside) -> None:
    with replaced({"moe": NO_CONSTANTS}):
        assert not has_physics("moe")
        assert "moe" not in groups()
        with inside("hopper"):
            assert load_physics("moe") is NO_CONSTANTS
            assert not load_physics("gemm").is_measured("hopper")
    assert "moe" in groups()


def test_own_constants_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"default": {}, "architectures": {"hopper": {"x": 1.0}}}
    (tmp_path / "some.json").write_bytes(msgspec.json.encode({"hopper": body}))
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    with pytest.raises(SilicastError, match="hold some of its own"):
        held_out("some")
