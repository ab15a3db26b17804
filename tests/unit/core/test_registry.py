"""Classes that modules register by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from silicast.core.errors import SilicastError
from silicast.core.registry import Named, Registry

MODULE = """
from shapes_of_test.known import KNOWN

@KNOWN.register
class Shape:
    name = "{0}"
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Named]:
    package = tmp_path / "shapes_of_test"
    package.mkdir()
    files = {
        "__init__": "", "_private": "raise RuntimeError",
        "known": "from silicast.core.registry import Registry\n"
                 "KNOWN = Registry('shapes_of_test', 'shape', 'shapes')",
        "square": MODULE.format("square"), "circle": MODULE.format("circle"),
    }  # fmt: skip
    for name, text in files.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("shapes_of_test")]:
        monkeypatch.delitem(sys.modules, name)
    from shapes_of_test.known import KNOWN  # type: ignore[import-not-found]

    registry: Registry[Named] = KNOWN
    return registry


def test_every_module_that_is_not_private_registers_its_class(known: Registry[Named]) -> None:
    assert list(known.all()) == ["circle", "square"]
    assert known.named("square") is known.all()["square"]


def test_an_unknown_name_lists_those_that_are_known(known: Registry[Named]) -> None:
    with pytest.raises(SilicastError) as refused:
        known.named("cube")
    assert refused.value.kind == "unknown_name"
    assert str(refused.value) == "shapes: unknown shape 'cube' (one of circle, square)"


def test_two_of_one_name_are_a_defect(known: Registry[Named]) -> None:
    class Other:
        name: ClassVar[str] = "circle"

    known.all()
    with pytest.raises(ValueError, match="two of kind shape are named 'circle'"):
        known.register(Other)
