"""Every notebook runs from its first cell to its last, without Jupyter."""

from __future__ import annotations

import ast
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from silicast.core.errors import SilicastError

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[str]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    return ["".join(c["source"]) for c in content["cells"] if c["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell and returns the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    names: dict[str, Any] = {}
    for source in cells(path):
        try:
            value = run_cell(source, names)
        except SilicastError as error:
            if "matplotlib" not in str(error):
                raise
            warnings.warn(f"{path.name}: not drawn, matplotlib is missing", stacklevel=1)
            continue
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().startswith("<table>")
        if hasattr(value, "_repr_svg_"):
            assert "<svg" in value._repr_svg_()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in content["cells"])
