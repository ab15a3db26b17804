"""Every module is reached from a command or the Python interface, and every public name is used."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.architecture.source_tree import PACKAGE, ROOT, source_files, tree_of

ROOTS = ("silicast", "silicast.__main__")
"""The public Python interface, and the commands."""
BATTERIES = ("silicast.kernels.check",)
"""What a new kernel of one's own must pass."""
SIMULATORS = tuple(
    f"silicast.composition.simulators.{name}" for name in ("infer_time", "dynamo", "llm_d")
)
"""Forms of a step predictor, which the reference of the Python interface documents: simulators of
engines call or read them."""
COUNTED_BY_TESTS = {"silicast.workload.models.counting.graph_flops"}
"""What closed forms are held against."""
OFFERED_BY, OFFERED_BY_BASE = ("register", "command"), {"Importer"}
NAME = re.compile(r"silicast(\.\w+)+(:\w+)?")
WORD = re.compile(r"[A-Za-z_]\w*")
LISTS, REGISTRY = "iter_modules", "Registry"
"""What imports every module of a folder, and what does so for the classes that they register."""


def name_of(path: Path) -> str:
    """The dotted name of a module's file."""
    parts = ["silicast", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    """All modules of the package, folders too, by their names."""
    return {name_of(path): path for path in source_files()}


def inside(folder: str) -> list[str]:
    """Modules of a folder that is a package."""
    return [
        name
        for name in modules()
        if name.rpartition(".")[0] == folder and not name.rpartition(".")[2].startswith("_")
    ]


def is_folder(name: str) -> bool:
    return modules()[name].name == "__init__.py"


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads, and docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node
        yield from executed(node)


def registers(path: Path) -> bool:
    """Whether a module makes itself known, or holds what its file is named after."""
    for node in tree_of(path).body:
        decorators = getattr(node, "decorator_list", [])
        if any("register" in ast.dump(each) for each in decorators):
            return True
        targets = [each.id for each in getattr(node, "targets", []) if isinstance(each, ast.Name)]
        if path.stem in (getattr(node, "name", ""), *targets):
            return True
    return False


def imports_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in modules() else node.module


def named_in(text: str) -> Iterator[str]:
    """The module that a whole text names."""
    position = text.partition(":")[0]
    if NAME.fullmatch(text) and position in modules():
        yield position


def filled_in(text: ast.JoinedStr) -> Iterator[str]:
    """Modules that a text names when words are put in where it is open."""
    pieces = [each.value if isinstance(each, ast.Constant) else None for each in text.values]
    if str(pieces[0] or "").startswith("silicast."):
        pattern = "".join(r"\w+" if each is None else re.escape(str(each)) for each in pieces)
        module = pattern.partition(":")[0]
        yield from (name for name in modules() if re.fullmatch(module, name))


def reached_by(name: str) -> Iterator[str]:
    """Modules that one imports, at any time, or names."""
    nodes = list(executed(tree_of(modules()[name])))
    items = [each for node in nodes for each in imports_of(node) if each in modules()]
    words = {getattr(node, "id", getattr(node, "attr", "")) for node in nodes}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            items += named_in(node.value)
        elif isinstance(node, ast.JoinedStr):
            items += [each for each in filled_in(node) if registers(modules()[each])]
    yield from items
    for folder in {*items, name}:
        if words & {LISTS, REGISTRY} and is_folder(folder):
            yield from (n for n in inside(folder) if LISTS in words or registers(modules()[n]))


def texts_of(value: Any) -> Iterator[str]:
    """All texts of a table."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)


def named_by_the_catalog() -> set[str]:
    return {
        name
        for path in (PACKAGE / "catalog").glob("*.toml")
        for text in texts_of(tomllib.loads(path.read_text(encoding="utf-8")))
        for name in named_in(text)
    }


def unreached() -> list[str]:
    """Modules that nothing a user does leads to."""
    waiting = [*ROOTS, *BATTERIES, *SIMULATORS, *named_by_the_catalog()]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += reached_by(name)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    return sorted(modules().keys() - reached)


def test_every_module_is_reached() -> None:
    assert unreached() == [], "delete it, or let a command, the API or the catalog lead to it"


def offered(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether a function or class is known by its decorator or base rather than by its name."""
    bases = {ast.unparse(each) for each in getattr(node, "bases", ())}
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    return bool(bases & OFFERED_BY_BASE) or any(word in decorators for word in OFFERED_BY)


def public_names(path: Path) -> Iterator[str]:
    """What a module offers others by name; what registers itself is offered otherwise."""
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if not offered(node):
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def words_used() -> Counter[str]:
    """How often each word stands in code and documentation; tests do not count."""
    folders = (PACKAGE, ROOT / "lab", ROOT / "benchmarks", ROOT / "examples", ROOT / "docs")
    files = [
        path
        for folder in folders
        for ending in ("*.py", "*.md", "*.ipynb", "*.toml")
        for path in folder.rglob(ending)
        if folder.name != "docs" or path.parent.name != "accuracy"
    ]
    return Counter(
        word for path in files for word in WORD.findall(path.read_text(encoding="utf-8"))
    )


def unused() -> list[str]:
    """Public names of modules that stand nowhere but where they are defined."""
    used = words_used()
    distinct = {
        f"{name_of(path)}.{name}"
        for path in source_files()
        for name in public_names(path)
        if not name.startswith("_") and used[name] < 2
    }
    return sorted(distinct - COUNTED_BY_TESTS)


def test_every_public_name_is_used() -> None:
    assert unused() == [], "delete it, or use it; tests alone do not count"
