"""Every script of benchmarks/ and lab/ can be imported without measured data."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

OPTIONAL = {"cosmic_ray", "torch", "matplotlib"}


SCRIPTS = sorted(
    f"{folder}.{path.stem}"
    for folder in ("benchmarks", "lab")
    for path in (ROOT / folder).glob("*.py")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SILICAST_DATA", str(tmp_path / "absent"))
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
