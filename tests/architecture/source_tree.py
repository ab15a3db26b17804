"""The package's source files and their imports, parsed once for all architecture tests."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "silicast"

LAYERS = (
    "core",
    "hardware",
    "formats",
    "workload",
    "kernels",
    "learning",
    "communication",
    "composition",
    "distributed",
    "tuning",
    "serving",
    "workflow",
    "accelerator",
    "exploration",
    "scenario",
    "runner",
    "measurement",
    "validation",
    "report",
    "app",
)
"""Packages in the order in which they may see each other: only ones before themselves."""


@cache
def source_files() -> tuple[Path, ...]:
    """Every Python file of the package, sorted."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree."""
    return tuple(ast.walk(tree_of(path)))


def broken(rule: Callable[[Path], Iterator[str]], files: Iterable[Path] = ()) -> list[str]:
    """What breaks a rule, a line each: the file and what the rule says of it.

    Args:
        rule: a file of the package -> what is wrong in it.
        files: those it holds for; () = all of the package.
    """
    return [
        f"{path.relative_to(PACKAGE)}: {what}"
        for path in files or source_files()
        for what in rule(path)
    ]


def layer_of(path: Path) -> str:
    """The layer that a file of the package belongs to; "" for the package's own front."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@cache
def imported_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """All modules that a file imports anywhere in it, with the line.

    >>> imported_modules(ast.parse("import a.b\\nfrom c import d"))
    [(1, 'a.b'), (2, 'c'), (2, 'c.d')]
    """
    imported_modules: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported_modules.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            imported_modules.append((node.lineno, module))
            imported_modules.extend((node.lineno, f"{module}.{alias.name}") for alias in node.names)
    return imported_modules


def layer_violations(layer: str, tree: ast.Module) -> list[str]:
    """Imports of a layer that ``layer`` must not see, as "line: module"."""
    position = LAYERS.index(layer)
    wrong: list[str] = []
    for line, module in imported_modules(tree):
        parts = module.split(".")
        if parts[0] != "silicast" or len(parts) < 2:
            continue
        target = parts[1]
        if target in LAYERS and LAYERS.index(target) > position:
            wrong.append(f"line {line}: {layer} imports silicast.{target}")
    return wrong
