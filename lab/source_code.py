"""A hash of the code that decides what a script finds: its own and what it imports."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from lab.local_names import numbered_locals
from lab.reads import without_sources
from silicast.core.catalog import CATALOG
from silicast.core.decode import read_toml

ROOT = Path(__file__).parents[1]
DECIDES = ("lab", "silicast.kernels", "silicast.communication", "silicast.learning")
"""Packages whose code is hashed: models, their training, and which rows are read and held out."""

READ_BY: Mapping[str, tuple[str, ...]] = {
    "silicast.kernels.products.candidate_tables": ("tuning/tiles.toml", "tuning/grids.toml"),
    "silicast.kernels.physics.device_rates": ("core_limits.toml",),
}
"""Tables of the catalog that are part of a module: they decide as its code does."""


def code_hash(modules: Iterable[str]) -> str:
    """Sixteen hex digits over the syntax trees of modules and of all that they import.

    Comments, docstrings, layout, names of locals and names of files that only moved lines do not
    count. Imports inside functions are not followed. Tables of :data:`READ_BY` count, but for their
    sources.

    >>> code_hash(["lab.source_code"]) == code_hash(["lab.source_code"])
    True
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(_closure(modules)):
        digest.update(name.encode() + b"\0" + _normalised(name).encode() + b"\0")
        for table in READ_BY.get(name, ()):
            digest.update(_content(table) + b"\0")
    return digest.hexdigest()


def modules_hash(modules: Iterable[str]) -> str:
    """The same over the syntax trees of these modules alone; one that is gone counts as empty."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(modules):
        content = _normalised(name) if _path(name) else ""
        digest.update(name.encode() + b"\0" + content.encode() + b"\0")
    return digest.hexdigest()


def _closure(modules: Iterable[str]) -> set[str]:
    """Modules and what they import, directly or not, within :data:`DECIDES`."""
    closure: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in closure and name.startswith(DECIDES):
            closure.add(name)
            waiting += _imports(name)
    return closure


@cache
def _content(table: str) -> bytes:
    """The values of a table of the catalog, without what they are from."""
    return json.dumps(without_sources(read_toml(CATALOG / table)), sort_keys=True).encode()


@cache
def _path(module: str) -> Path | None:
    """The file of a module of this repository."""
    stem = module.replace(".", "/")
    indices = (
        ROOT / "src" / f"{stem}.py",
        ROOT / f"{stem}.py",
        ROOT / "src" / stem / "__init__.py",
    )
    return next((position for position in indices if position.is_file()), None)


@cache
def _tree(module: str) -> ast.Module:
    path = _path(module)
    assert path is not None
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Modules of this repository that a module imports when it is loaded."""
    named: set[str] = set()
    for node in _tree(module).body:
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(sorted(name for name in named if _path(name) is not None))


@cache
def _normalised(module: str) -> str:
    """The syntax tree of a module as text, without docstrings and names of locals."""
    tree = ast.parse(ast.unparse(_tree(module)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [statement for statement in body if not _is_text(statement)]  # type: ignore[attr-defined]
    return ast.dump(numbered_locals(tree))


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, of whatever it follows."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
