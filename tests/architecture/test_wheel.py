"""What the wheel leaves out is imported by nothing that it holds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source_tree import PACKAGE, ROOT, broken, imported_modules, tree_of


@cache
def left_out() -> frozenset[Path]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    return frozenset(ROOT / name for name in wheel["exclude"])


def is_left_out(path: Path) -> bool:
    return not left_out().isdisjoint((path, *path.parents))


def test_what_is_left_out_exists() -> None:
    assert all(path.exists() for path in left_out())
    assert is_left_out(PACKAGE / "validation/scorecard/suites/gemm.py")
    assert is_left_out(PACKAGE / "validation/scorecard/held_out/gemm.json")
    assert not is_left_out(PACKAGE / "validation/measured.py")


def imports_what_is_left_out(path: Path) -> Iterator[str]:
    if is_left_out(path):
        return
    for line, module in imported_modules(tree_of(path)):
        place = PACKAGE.parent.joinpath(*module.split("."))
        if is_left_out(place) or is_left_out(place.with_suffix(".py")):
            yield f"line {line}: {module} is not in the wheel"


def test_the_wheel_needs_none_of_it() -> None:
    assert broken(imports_what_is_left_out) == []


def test_the_provider_of_suites_exists_and_is_left_out() -> None:
    """``silicast validate SUITE`` finds it by name where there is a checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module = project["tool"]["silicast"]["scorecard"].replace(".", "/")
    path = next(p for p in (ROOT / f"{module}.py", ROOT / "src" / f"{module}.py") if p.is_file())
    assert is_left_out(path) or not path.is_relative_to(PACKAGE)
