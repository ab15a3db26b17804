"""Each example runs and prints what is recorded beside it (`make record` rewrites the records)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_example_prints_what_is_recorded(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    recorded = script.with_suffix(".out").read_text(encoding="utf-8")
    assert capsys.readouterr().out == recorded


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
