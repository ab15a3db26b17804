"""House rules that a reader or reviewer would otherwise have to watch for."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGE, ROOT, layer_of, source_files, tree_of

MAX_LINES = 600
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "yaml", "dill", "joblib"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
TEXT_SUFFIXES = {".py", ".toml", ".json", ".md", ".txt", ".cfg", ".rst", ".jsonl", ""}

every_file = pytest.mark.parametrize(
    "path", source_files(), ids=lambda p: str(p.relative_to(PACKAGE))
)


@every_file
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@every_file
def test_names_say_what_is_inside(path: Path) -> None:
    assert path.stem not in VAGUE_NAMES
    assert not path.stem.startswith("base_")


@every_file
def test_nothing_runs_code_from_data(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] not in FORBIDDEN_MODULES, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, f"line {node.lineno}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant), f"line {node.value.lineno}"
            assert node.value.value is False, f"line {node.value.lineno}"


@every_file
def test_only_the_application_prints_and_exits(path: Path) -> None:
    if layer_of(path) == "app" or path.name == "__main__.py":
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"print", "input", "exit", "quit"}, f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            assert name not in {"sys.exit", "sys.argv", "os._exit"}, f"line {node.lineno}"


@every_file
def test_the_application_does_no_arithmetic(path: Path) -> None:
    """Sums, products and unit conversions belong below the application."""
    if layer_of(path) != "app":
        return
    arithmetic = (ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.Mod, ast.Sub)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.BinOp | ast.AugAssign):
            assert not isinstance(node.op, arithmetic), f"line {node.lineno}: {ast.unparse(node)}"


@every_file
def test_public_names_are_documented(path: Path) -> None:
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module says nothing about itself"
    for node in _public_definitions(tree):
        assert ast.get_docstring(node), f"line {node.lineno}: {node.name} has no docstring"


def _public_definitions(tree: ast.Module | ast.ClassDef) -> list[ast.FunctionDef | ast.ClassDef]:
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
                continue
            found.append(node)
            if isinstance(node, ast.ClassDef):
                found.extend(_public_definitions(node))
    return found


@every_file
def test_dataclasses_are_frozen(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator)
            if text.startswith("dataclass"):
                assert "frozen=True" in text, f"line {node.lineno}: {node.name} can be changed"


def test_importing_the_package_is_light() -> None:
    """numpy costs 80 ms: it is loaded when a prediction is asked for, not before."""
    code = (
        "import sys, silicast; "
        "print(sorted({'numpy', 'rich', 'cyclopts', 'pyarrow', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_names_a_place_on_a_machine() -> None:
    pattern = re.compile(r"(?<![\w./$}-])/(?:work|home|root|Users)/\w")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked_files()
        if path.suffix in TEXT_SUFFIXES
        for number, line in enumerate(_lines(path), start=1)
        if pattern.search(line)
    ]
    assert wrong == []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []


def _tracked_files() -> list[Path]:
    """Files under version control; in an unpacked archive, all that are not hidden or built."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        files = [ROOT / name for name in done.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [
            Path(folder) / name
            for folder, _, names in os.walk(ROOT)
            for name in names
            if not re.search(r"/(\.|build|_build)", folder.removeprefix(str(ROOT)))
        ]
    return [path for path in files if path.is_file()]
