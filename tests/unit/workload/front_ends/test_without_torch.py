"""Files of other formats than PyTorch's are read where PyTorch is not installed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import silicast

SOURCE = Path(silicast.__file__).parent.parent


def imported_at_once(module: str) -> set[str]:
    """Modules that importing one imports, theirs too; those in functions come later."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = SOURCE.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.exists():
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.Import):
                    waiting += [each.name for each in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    waiting += [node.module, *(f"{node.module}.{x.name}" for x in node.names)]
    return seen


@pytest.mark.parametrize("reader", ["onnx_graph", "tflite_graph", "open_graph"])
def test_readers_do_not_import_torch(reader: str) -> None:
    seen = imported_at_once(f"silicast.workload.front_ends.{reader}")
    assert "silicast.core.errors" in seen
    assert not {name for name in seen if name.partition(".")[0] == "torch"}


def test_the_reader_of_programs_of_pytorch_does() -> None:
    assert "torch" in imported_at_once("silicast.workload.front_ends.exported")
