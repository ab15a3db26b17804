"""Syntax trees whose locals have numbers for names: trees that differ in these names are equal."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def numbered_locals(tree: ast.Module) -> ast.Module:
    """``tree`` itself, changed: locals of its functions are called ``%0``, ``%1``, ... in the order
    of their first use.

    Names that a caller or another statement may use stay: parameters, inner functions and classes,
    imports, names of patterns, and what is declared global or nonlocal.

    >>> a, b = (ast.parse(f"def f(n):\\n  {x} = n + 1\\n  return [{y} * {x} for {y} in (1, 2)]")
    ...         for x, y in (("row", "side"), ("other", "x")))
    >>> ast.dump(numbered_locals(a)) == ast.dump(numbered_locals(b))
    True
    """
    _Numbered().visit(tree)
    return tree


class _Numbered(ast.NodeTransformer):
    """Renames from the outside in; ``_names`` holds for each open scope what its names become."""

    def __init__(self) -> None:
        self._names: list[dict[str, str]] = []
        self._count = 0

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = next((names[node.id] for names in self._names[::-1] if node.id in names), node.id)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if node.name is not None and self._names:
            node.name = self._names[-1].get(node.name, node.name)
        return self.generic_visit(node)

    def visit(self, node: ast.AST) -> ast.AST:
        """A node with new names; one that opens a scope within it."""
        if isinstance(node, _SCOPES):
            return self._scope(node)
        if isinstance(node, _COMPREHENSIONS):
            return self._comprehension(node)
        return super().visit(node)  # type: ignore[no-any-return]

    def _comprehension(self, node: Comprehension) -> ast.AST:
        first = node.generators[0]
        source, first.iter = first.iter, ast.Constant(None)
        self.visit(source)  # it is evaluated outside of the comprehension's scope
        targets = (name for g in node.generators for name in _stored(g.target))
        self._names.append(self._numbers(targets))
        self.generic_visit(node)
        self._names.pop()
        first.iter = source
        return node

    def _scope(self, node: Scope) -> ast.AST:
        outside = [*getattr(node, "decorator_list", ()), *getattr(node, "bases", ())]
        if isinstance(node, ast.ClassDef):
            names = {name: name for statement in node.body for name in _stored(statement)}
        else:
            arguments = node.args
            outside += [*arguments.defaults, *filter(None, arguments.kw_defaults)]
            parameters = [x.arg for x in ast.walk(arguments) if isinstance(x, ast.arg)]
            body: Sequence[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
            stored = [name for statement in body for name in _stored(statement)]
            fixed = {*parameters, *_bound_otherwise(body)}
            names = self._numbers(name for name in stored if name not in fixed)
            names |= {name: name for name in fixed}
        for part in outside:
            self.visit(part)
        self._names.append(names)
        for statement in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(statement)
        self._names.pop()
        return node

    def _numbers(self, names: Iterable[str]) -> dict[str, str]:
        numbers: dict[str, str] = {}
        for name in names:
            if name not in numbers:
                numbers[name] = f"%{self._count}"
                self._count += 1
        return numbers


def _stored(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds in its own scope, in their order."""
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    if isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.name
    for child in ast.iter_child_nodes(node):
        if isinstance(node, _COMPREHENSIONS) and isinstance(child, ast.comprehension):
            for part in (child.iter, *child.ifs):
                yield from _stored(part)
        else:
            yield from _stored(child)


def _bound_otherwise(body: Sequence[ast.AST]) -> Iterator[str]:
    """Names that are bound as inner functions, imports or patterns, and shared or global ones."""
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest
