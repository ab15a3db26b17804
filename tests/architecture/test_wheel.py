"""The package needs nothing of the checkout that it may lie in."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import ROOT, broken, imported_modules, tree_of

OUTSIDE = ("lab", "benchmarks", "tests")


def imports_from_outside(path: Path) -> Iterator[str]:
    for line, module in imported_modules(tree_of(path)):
        if module.partition(".")[0] in OUTSIDE:
            yield f"line {line}: {module} is not in the wheel"


def test_the_wheel_needs_none_of_it() -> None:
    assert broken(imports_from_outside) == []


def test_the_provider_of_suites_exists() -> None:
    """``silicast validate SUITE`` finds it by its name where there is a checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module = project["tool"]["silicast"]["scorecard"].replace(".", "/")
    assert (ROOT / f"{module}.py").is_file()
