"""House rules that a reader or reviewer would otherwise have to watch for."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, broken, layer_of, nodes_of, tree_of

MAX_LINES = 600
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
YAML_NAMES = {"parse", "SafeLoader", "YAMLError"}
"""What of PyYAML may be named: events of its safe parser; nothing that builds objects."""
TEXT_SUFFIXES = {".py", ".toml", ".json", ".md", ".txt", ".cfg", ".rst", ".jsonl", ""}
EMPTY_DOCSTRING = re.compile(
    r"See :\w+:`[^`]+`\.|As given\.|(Of|That of|Those of) (\w+ ){0,3}\w+\."
)
"""Docstrings of which a reader who does not know the code learns nothing."""


def is_long(path: Path) -> Iterator[str]:
    count = len(path.read_text(encoding="utf-8").splitlines())
    if count > MAX_LINES:
        yield f"{count} lines; at most {MAX_LINES}"


def is_named_vaguely(path: Path) -> Iterator[str]:
    if path.stem in VAGUE_NAMES or path.stem.startswith("base_"):
        yield "the name does not say what is inside"


def runs_code_from_data(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: {node.func.id}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for name in names if isinstance(node, ast.Import) else [node.module or ""]:
                if name.split(".")[0] in FORBIDDEN_MODULES:
                    yield f"line {node.lineno}: {name}"
                if name.startswith("yaml") and isinstance(node, ast.ImportFrom):
                    yield f"line {node.lineno}: from {name}"
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "yaml":
            if node.attr not in YAML_NAMES:
                yield f"line {node.lineno}: yaml.{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            is_denied = isinstance(node.value, ast.Constant) and node.value.value is False
            if not is_denied:
                yield f"line {node.value.lineno}: allow_pickle"


def prints_or_exits(path: Path) -> Iterator[str]:
    """Only the application does."""
    if layer_of(path) == "app" or path.name == "__main__.py":
        return
    for node in nodes_of(path):
        name = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
        if name in {"print", "input", "exit", "quit", "sys.exit", "sys.argv", "os._exit"}:
            yield f"line {node.lineno}: {name}"  # type: ignore[attr-defined]


def calculates_in_the_application(path: Path) -> Iterator[str]:
    """Sums, products and unit conversions belong below the application."""
    if layer_of(path) != "app":
        return
    arithmetic = (ast.Mult, ast.Div, ast.FloorDiv, ast.Pow, ast.Mod, ast.Sub)
    for node in nodes_of(path):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, arithmetic):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def lacks_docstrings(path: Path) -> Iterator[str]:
    tree = tree_of(path)
    if not ast.get_docstring(tree):
        yield "the module says nothing about itself"
    for node in _public_definitions(tree):
        if not ast.get_docstring(node):
            yield f"line {node.lineno}: {node.name} has no docstring"


def has_empty_docstrings(path: Path) -> Iterator[str]:
    """Docstrings that only point elsewhere, or are no sentence of their own."""
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node) or ""
            if EMPTY_DOCSTRING.fullmatch(text):
                yield f"line {node.lineno}: {node.name}: {text!r} says nothing: write it or drop it"


def _public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Public functions and classes of a module; methods may do without a docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def has_dataclasses_that_change(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator)
            if text.startswith("dataclass") and "frozen=True" not in text:
                yield f"line {node.lineno}: {node.name} is not frozen"


def words_what_the_decoder_refuses(path: Path) -> Iterator[str]:
    """``core.decode`` catches the errors of msgspec; nobody else words them a second time."""
    if path.name in {"decode.py", "refusal.py"} and layer_of(path) == "core":
        return
    for node in nodes_of(path):
        named = [node.attr] if isinstance(node, ast.Attribute) else []
        named += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        for name in {"ValidationError", "MsgspecError"} & set(named):
            yield f"line {node.lineno}: {name}"  # type: ignore[attr-defined]


def has_a_strict_table_of_its_own(path: Path) -> Iterator[str]:
    """``core.decode.Strict`` is the base of every table that refuses unknown fields."""
    if path.name == "decode.py" and layer_of(path) == "core":
        return
    for node in nodes_of(path):
        if isinstance(node, ast.keyword) and node.arg == "forbid_unknown_fields":
            yield f"line {node.value.lineno}: {node.arg}"


def shares_a_value_between_objects(path: Path) -> Iterator[str]:
    """A list or table in the body of a class is one for all of its objects, but in a table of
    msgspec (with ``frozen=True`` in its head), which copies it.
    """
    for node in nodes_of(path):
        if not isinstance(node, ast.ClassDef) or any(k.arg == "frozen" for k in node.keywords):
            continue
        for each in node.body:
            if (
                isinstance(each, ast.Assign | ast.AnnAssign)
                and isinstance(each.value, ast.List | ast.Dict | ast.Set)
                and not re.search(r"ClassVar|Final", ast.unparse(each))
            ):
                yield f"line {each.lineno}: {ast.unparse(each)[:60]}"


OPENERS = {
    "core/files.py": "the opener",
    "core/growing.py": "writes",
    "measurement/records/store.py": "locks what it appends to",
    "measurement/machine/cpu_facts.py": "asks the system",
    "measurement/sweeps/runtime.py": "asks the system",
    "runner/lines.py": "reads pipes and standard input too",
    "app/console.py": "has the null device for a closed stream",
    "app/server/assets/__init__.py": "reads what is packed with it",
}
"""Files that open others by themselves -> why they may."""
READERS = {"read_bytes", "read_text", "open", "fromfile", "memmap", "ZipFile"}
WRITES = re.compile(r"^'[wax]")


def opens_files_by_itself(path: Path) -> Iterator[str]:
    """``core.files`` is the one opener: what a user names is a regular file of bounded size. What
    the package ships, named by a constant, may be read as it is.
    """
    if path.parts[-3:] and any(path.as_posix().endswith(f"/{name}") for name in OPENERS):
        return
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"line {node.lineno}: open"
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in READERS:
            continue
        target = ast.unparse(node.func.value)
        mode = ast.unparse(node.args[0]) if node.args else ""
        shipped = re.match(r"\(?[A-Z_]{3,}\b", target) is not None
        is_class = re.match(r"[A-Z]\w*[a-z]", target) is not None or target in {"cls", "archive"}
        bounded = re.match(r"gzip|zipfile", target) and mode in {"packed", "stream"}
        if not (shipped or is_class or bounded or WRITES.match(mode)):
            yield f"line {node.lineno}: {ast.unparse(node.func)}: use core.files"


RULES: dict[Callable[[Path], Iterator[str]], str] = {
    is_long: "\n" * MAX_LINES + "\n",
    is_named_vaguely: "",
    runs_code_from_data: "import pickle\neval('1')\nload(allow_pickle=True)\nyaml.full_load('1')",
    prints_or_exits: "import sys\nprint(sys.argv)",
    calculates_in_the_application: "total = price * count",
    lacks_docstrings: "def public(): pass",
    has_empty_docstrings: "def _cost():\n    'Of that.'",
    has_dataclasses_that_change: "@dataclass\nclass Point: pass",
    words_what_the_decoder_refuses: "try: pass\nexcept msgspec.ValidationError: pass",
    has_a_strict_table_of_its_own: "class A(Struct, forbid_unknown_fields=True): pass",
    opens_files_by_itself: "content = path.read_bytes()",
    shares_a_value_between_objects: "class A:\n    names = []",
}
"""What no file is or does -> a file that does."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: getattr(rule, "__name__", ""))
def test_no_file(rule: Callable[[Path], Iterator[str]]) -> None:
    assert broken(rule) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: getattr(rule, "__name__", ""))
def test_a_file_is_found_that(
    rule: Callable[[Path], Iterator[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.architecture.source_tree.PACKAGE", tmp_path)
    folder = "app" if rule is calculates_in_the_application else "kernels"
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "utils.py"
    path.write_text(RULES[rule], encoding="utf-8")
    assert broken(rule, [path])


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
