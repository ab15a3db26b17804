"""Every benchmark can be imported, without measured data, as long as its libraries are there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

OPTIONAL = {"torch", "matplotlib"}


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py")))
def test_it_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SILICAST_DATA", str(tmp_path / "absent"))
    try:
        import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
