"""Names in the source are nouns of the field: what a ratchet counts may only become fewer."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.architecture.source_tree import nodes_of, source_files, tree_of

AT_MOST = {
    "found": 9, "place": 16, "places": 8, "said": 17, "of": 42, "own": 35, "kept": 22,
    "rest": 0, "asked": 3,
}  # fmt: skip
"""Names that say nothing of what they hold -> how often they still stand. Only lower these."""
BOUND_AT_MOST = {
    "current": 11, "remaining": 58, "remark": 50, "items": 16, "stated": 84, "known": 92,
    "given": 14, "requested": 43, "what": 31, "one": 54, "some": 3, "each": 783, "result": 314,
}  # fmt: skip
"""Names that are right in few places -> how often one is given to something. Only lower these:
"remaining" is what is left of something, "current" the present one in a loop, "remark" one sentence
to the user, "stated" what the user states, "given" what is handed in; else name the thing.
"""
SHARED_CLASSES_AT_MOST = 2
"""Classes of the package whose name another one has too."""
SKIPPED_AT_MOST = 172
"""Statements that are kept from the formatter, as hand-laid tables are."""


def names_in(tree: ast.AST) -> Counter[str]:
    """How often each name stands in a tree: variables, parameters, attributes, definitions.

    >>> names_in(ast.parse("def f(found): return found.rest"))["found"]
    2
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            counts[node.id] += 1
        elif isinstance(node, ast.arg):
            counts[node.arg] += 1
        elif isinstance(node, ast.Attribute):
            counts[node.attr] += 1
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            counts[node.name] += 1
    return counts


def bound_in(tree: ast.AST) -> Counter[str]:
    """How often each name is given to something: assigned, looped over, a parameter, defined.

    >>> bound_in(ast.parse("for each in some.items(): each = 1"))
    Counter({'each': 2})
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += 1
        elif isinstance(node, ast.arg):
            counts[node.arg] += 1
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            counts[node.name] += 1
    return counts


@pytest.mark.parametrize(
    ("count", "limits"), [(names_in, AT_MOST), (bound_in, BOUND_AT_MOST)], ids=["stand", "bound"]
)
def test_names_say_what_they_hold(
    count: Callable[[ast.AST], Counter[str]], limits: Mapping[str, int]
) -> None:
    counts: Counter[str] = Counter()
    for path in source_files():
        counts.update(count(tree_of(path)))
    grown = {name: counts[name] for name, most in limits.items() if counts[name] > most}
    assert not grown, f"name the thing instead (row, position, message, table, ...): {grown}"


def test_classes_have_names_of_their_own() -> None:
    classes = Counter(
        node.name
        for path in source_files()
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    )
    assert sum(count for count in classes.values() if count > 1) <= SHARED_CLASSES_AT_MOST


def test_the_formatter_decides() -> None:
    texts = (path.read_text(encoding="utf-8") for path in source_files())
    assert sum(text.count("# fmt: skip") for text in texts) <= SKIPPED_AT_MOST
