"""Engines, libraries and releases are data: code of the models does not name them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from silicast.core.compiled import names_of
from silicast.workload.libraries.catalog import ANY
from tests.architecture.source_tree import broken, layer_of, nodes_of, source_files, tree_of

MODELS = ("kernels", "communication", "composition", "scenario")
"""Packages that look up in the catalog what an engine or library does."""
WORDS = ("eager", "compile", "transformers", "huggingface")
"""Aliases of engines that are words of the language as well."""
RELEASE = re.compile(r"v?\d+\.\d+(\.\d+)*(rc\d+|\.post\d+)?")
WHAT_TO_DO = (
    "state it in a file of catalog/engines or catalog/libraries, and look it up "
    "(docs/how-to/add-a-library.md)"
)

MODEL_FILES = [path for path in source_files() if layer_of(path) in MODELS]


def words_of(text: str) -> tuple[str, ...]:
    """The words of an identifier or a text, in lower case.

    >>> words_of("FlashMlaTiles.of"), words_of("torch_compile")
    (('flash', 'mla', 'tiles', 'of'), ('torch', 'compile'))
    """
    return tuple(part.casefold() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+[0-9]*", text))


@cache
def names() -> frozenset[tuple[str, ...]]:
    """Names and aliases of all engines and libraries, in words."""
    distinct = {
        words_of(alias)
        for folder in ("engines", "libraries")
        for name, aliases in names_of(folder).values()
        if name != ANY
        for alias in (name, *aliases)
    }
    return frozenset(distinct - {(word,) for word in WORDS})


@cache
def named_in(text: str) -> str:
    """The engine or library that a text names; "" = none.

    >>> named_in("TRTLLM_LIMIT"), named_in("limit of vllm's own"), named_in("entries")
    ('trtllm', 'vllm', '')
    """
    words = words_of(text)
    spelled = (*words, "")
    for known in names():
        for start in range(len(spelled) - len(known)):
            if spelled[start : start + len(known)] == known:
                return " ".join(known)
    return ""


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the texts that stand alone as statements."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(node.value) for node in statements if isinstance(node.value, ast.Constant)}


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Identifiers and string literals of a file with their lines; no docstrings."""
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            yield from ((line, each) for each in (node.value,) if isinstance(each, str))
        for field in ("id", "attr", "arg", "name", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield line, value


def names_an_engine(path: Path) -> Iterator[str]:
    if named_in(path.stem):
        yield f"rename the file: {WHAT_TO_DO}"
    for line, text in texts(tree_of(path)):
        result = named_in(text)
        if result:
            yield f"line {line}: {text[:60]!r} names {result!r}: {WHAT_TO_DO}"


def test_no_engine_or_library_is_named() -> None:
    assert broken(names_an_engine, MODEL_FILES) == []


def compares_a_release(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        where = f"line {getattr(node, 'lineno', 1)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if RELEASE.fullmatch(node.value):
                yield f"{where}: a release: {WHAT_TO_DO}"
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, (ast.Attribute, ast.Name)) and "version" in words_of(
                    side.attr if isinstance(side, ast.Attribute) else side.id
                ):
                    yield f"{where}: a release is compared: {WHAT_TO_DO}"


def test_no_release_is_named_or_compared() -> None:
    assert broken(compares_a_release, MODEL_FILES) == []


@pytest.mark.parametrize(
    "code",
    [
        "LIMIT = {'vllm': 3}",
        "def of_sglang(): pass",
        "style = f'flashinfer_{phase}'",
        "from silicast.kernels.triton_tiles import TILES",
        "TensorRtLlm = 1",
        "hint = 'megatron or fsdp train them'",
    ],
)
def test_a_name_in_code_is_found(code: str) -> None:
    assert any(named_in(text) for _, text in texts(ast.parse(code)))
    documented = f'def f():\n    """As vllm and sglang do."""\n    # {code}\n'
    assert not any(named_in(text) for _, text in texts(ast.parse(documented)))
