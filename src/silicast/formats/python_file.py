"""What functions of a Python file build, read from its syntax: nothing is imported or run.

A function's result is a tree: a call is a table of its keywords with the name of what is called at
:data:`CALLED`, and ``result.part.field = value`` sets a field of it. Literals, constants of the
file, sums of them, and functions of the file without arguments are followed; any other value is
:class:`Unread`.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

from silicast.core.errors import SilicastError, over_limit

CALLED, GIVEN = "()", "(*)"
"""Where a table of a call has the name of what is called, and arguments without names."""
MOST_NODES = 200_000
MOST_INLINED, MOST_CALLS = 16, 10_000
_SUMS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_COMPARES: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
_SILENT = (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass, ast.FunctionDef, ast.AnnAssign)
"""Statements that set nothing."""
_KINDS = {"str": str, "int": int, "bool": bool, "list": list, "dict": dict}
MOST_NUMBER = 1 << 62
STARTS = ("pretrain", "finetune")
"""Functions of libraries that start the run that their first argument describes."""


@final
@dataclass(frozen=True)
class Unread:
    """A value that is known when the file runs; ``text`` is its beginning."""

    text: str
    line: int = 0

    def __str__(self) -> str:
        return f"`{self.text}`"


@final
@dataclass(frozen=True)
class Setter:
    """A function that sets one field of a tree to a whole number, and returns the tree.

    Attributes:
        package: that it is imported from.
        arguments: names of the tree and of the number, in the order in which they are given.
        field: dotted.
    """

    package: str
    arguments: tuple[str, str]
    field: str


@final
@dataclass(frozen=True)
class Built:
    """What a function returns.

    Attributes:
        tree: see this module.
        unread: statements that were not followed, with their lines.
        blocked: branches and loops that set something, each with the names that it sets.
    """

    tree: dict[str, Any]
    unread: list[str] = field(default_factory=list)
    blocked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)


@final
class PythonFile:
    """Functions and constants of a file.

    Args:
        setters: imported functions by name that set a field.
        begins: functions of a library by name -> the tree that they return, as far as it is known.

    Raises:
        SilicastError: no Python, or too much of it.
    """

    def __init__(
        self,
        text: str,
        file: str = "",
        setters: Mapping[str, Setter] = MappingProxyType({}),
        begins: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        self.file, self.setters, self.begins = file, setters, begins
        try:
            module = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", 0) or 0
            raise SilicastError(
                "is no Python that can be read", file=file, field=f"line {line}"
            ) from None
        if sum(1 for _ in ast.walk(module)) > MOST_NODES:
            raise over_limit("holds too much", file=file)
        self.functions = {
            node.name: node for node in module.body if isinstance(node, ast.FunctionDef)
        }
        self.imports = [node for node in module.body if isinstance(node, ast.ImportFrom)]
        self.aliases = {
            alias.asname: alias.name
            for node in self.imports
            for alias in node.names
            if alias.asname
        }
        self.origins = dict(_origins(module))
        self.module = module
        self.constants: dict[str, Any] = {}
        self.inlined = 0
        reader = _Body(self, {})
        try:
            for node in module.body:
                if isinstance(node, ast.Assign | ast.AnnAssign):
                    reader.statement(node)
        except RecursionError:
            raise over_limit("is nested too deeply", file=file) from None
        self.constants = reader.names
        started = (reader.value(call) for call in map(_started, _at_top(module)) if call)
        self.started = next((tree for tree in started if isinstance(tree, dict)), None)

    def called(self) -> frozenset[str]:
        """Names of all that is called, dotted."""
        calls = (node for node in ast.walk(self.module) if isinstance(node, ast.Call))
        return frozenset(_dotted(node.func) for node in calls)

    def builders(self) -> tuple[str, ...]:
        """Functions that can be called without arguments and return something, or start it."""
        return tuple(
            name
            for name, node in self.functions.items()
            if not name.startswith("_")
            and _is_free(node)
            and any(
                (isinstance(inner, ast.Return) and inner.value) or _started(inner)
                for inner in ast.walk(node)
            )
        )

    def setter(self, name: str) -> Setter | None:
        """The setter that is called by a dotted name; None of anything else."""
        first, dot, remaining = name.partition(".")
        origin = self.origins.get(first)
        package, _, function = f"{origin}{dot}{remaining}".rpartition(".")
        setter = self.setters.get(function)
        if origin is None or setter is None or first in self.functions:
            return None
        return setter if f"{package}.".startswith(f"{setter.package}.") else None

    def built(self, name: str, depth: int = 0) -> Built:
        """What a function returns; a tree without fields where it returns something else.

        Raises:
            SilicastError: kind "limit": it is nested too deeply, or calls too many others.
        """
        try:
            return self._built(name, depth)
        except RecursionError:
            raise over_limit("is nested too deeply", name, file=self.file) from None

    def _built(self, name: str, depth: int) -> Built:
        self.inlined += 1
        if self.inlined > MOST_CALLS:
            raise over_limit("calls too many functions", name, file=self.file)
        node = self.functions[name]
        names = dict(self.constants)
        arguments = [*node.args.posonlyargs, *node.args.args]
        defaults = node.args.defaults
        reader = _Body(self, names, depth)
        for argument, default in zip(
            arguments[len(arguments) - len(defaults) :], defaults, strict=True
        ):
            names[argument.arg] = reader.value(default)
        for argument, item in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            names[argument.arg] = None if item is None else reader.value(item)
        for statement in node.body:
            if reader.statement(statement):
                break
        result = reader.result
        return Built(result if isinstance(result, dict) else {}, reader.unread, reader.blocked)


@final
class _Body:
    """Statements one after the other."""

    def __init__(self, file: PythonFile, names: dict[str, Any], depth: int = 0) -> None:
        self.file, self.names, self.depth = file, names, depth
        self.unread: list[str] = []
        self.blocked: list[tuple[str, tuple[str, ...]]] = []
        self.result: Any = None

    def statement(self, node: ast.stmt) -> bool:
        """Carries a statement out; True = the function ends here."""
        started = _started(node)
        if started is not None:
            self.result = self.value(started)
            return True
        if isinstance(node, ast.Return):
            self.result = self.value(node.value) if node.value is not None else None
            return True
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self.assign(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value))
        elif isinstance(node, ast.If):
            return self.branch(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            pass  # a docstring
        elif not isinstance(node, _SILENT):
            self.left_out(node, _shown(node))
        return False

    def left_out(self, node: ast.stmt, what: str) -> None:
        names = []
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                names += [_dotted(target) for target in inner.targets]
            elif isinstance(inner, ast.AnnAssign | ast.AugAssign):
                names.append(_dotted(inner.target))
        line = f"line {node.lineno}: {what}"
        if names:
            self.blocked.append((line, tuple(names)))
        else:
            self.unread.append(line)

    def branch(self, node: ast.If) -> bool:
        test = self.value(node.test)
        if isinstance(test, Unread | dict):
            self.left_out(node, f"if {_shown(node.test)}")
            return False
        return any(self.statement(inner) for inner in (node.body if test else node.orelse))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
            return
        path = _dotted(target).split(".")
        holder = self.names.get(path[0])
        if len(path) < 2 or not isinstance(holder, dict):
            self.unread.append(f"line {target.lineno}: {_shown(target)} = ...")
            return
        set_field(holder, path[1:], value)

    def value(self, node: ast.expr) -> Any:
        """What an expression gives; :class:`Unread` where only running it would say."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return self.names[node.id]
            return self.names.setdefault(node.id, Unread(node.id, node.lineno))
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(element) for element in node.elts]
        if isinstance(node, ast.Dict):
            return {
                str(self.value(key)): self.value(item)
                for key, item in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.UnaryOp | ast.BinOp | ast.BoolOp | ast.Compare):
            return self.computed(node)
        return Unread(_shown(node), node.lineno)

    def attribute(self, node: ast.Attribute) -> Any:
        path = _dotted(node).split(".")
        value = self.names.get(path[0])
        for name in path[1:]:
            if not isinstance(value, dict) or name not in value:
                return Unread(_shown(node), node.lineno)
            value = value[name]
        return value

    def call(self, node: ast.Call) -> Any:
        name = _dotted(node.func)
        arguments = [
            self.value(argument) for argument in node.args if not isinstance(argument, ast.Starred)
        ]
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        function = self.file.functions.get(name)
        free = function is not None and not arguments and not named and _is_free(function)
        if free and self.depth < MOST_INLINED:
            built = self.file.built(name, self.depth + 1)
            self.unread += built.unread
            self.blocked += built.blocked
            if built.tree:
                return copy.deepcopy(built.tree)
        setter = self.file.setter(name)
        if setter is not None:
            argument_values = dict(zip(setter.arguments, arguments, strict=False)) | named
            tree, value = (argument_values.get(argument_name) for argument_name in setter.arguments)
            if isinstance(tree, dict) and len(arguments) + len(named) == 2:
                number = value if type(value) is int else Unread(_shown(node), node.lineno)
                set_field(tree, setter.field.split("."), number)
                return tree
        if name == "isinstance" and len(node.args) == 2:
            kind = _KINDS.get(_dotted(node.args[1]))
            if kind is not None and not isinstance(arguments[0], Unread | dict):
                return isinstance(arguments[0], kind)
        if isinstance(node.func, ast.Attribute):
            holder = self.value(node.func.value)
            if isinstance(holder, str) and node.func.attr in ("lower", "upper", "strip"):
                return str(getattr(holder, node.func.attr)())
            if not name and isinstance(holder, dict):  # of what another call returns
                return holder
        last = name.rpartition(".")[2]
        base = self.file.begins.get(self.file.aliases.get(last, last), {}) if not function else {}
        return {**copy.deepcopy(dict(base)), CALLED: name, GIVEN: arguments, **named}

    def computed(self, node: ast.expr) -> Any:
        """Sums, signs and comparisons of numbers and texts."""
        unread = Unread(_shown(node), node.lineno)
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            if isinstance(inner, Unread | dict):
                return unread
            if isinstance(node.op, ast.Not):
                return not inner
            is_number = isinstance(inner, int | float)
            return -inner if is_number and isinstance(node.op, ast.USub) else unread
        if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
            sides = self.value(node.left), self.value(node.right)
            return self.sum(_SUMS[type(node.op)], *sides, unread)
        if isinstance(node, ast.BoolOp):
            values = [self.value(operand) for operand in node.values]
            if any(isinstance(operand, Unread | dict) for operand in values):
                return unread
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.compared(node, unread)
        return unread

    def sum(self, combine: Callable[[Any, Any], Any], left: Any, right: Any, unread: Unread) -> Any:
        """Of two whole numbers that are not too large."""
        if any(type(side) is not int or abs(side) > MOST_NUMBER for side in (left, right)):
            return unread
        if combine is operator.floordiv and not right:
            return unread
        total = combine(left, right)
        return total if abs(total) <= MOST_NUMBER else unread

    def compared(self, node: ast.Compare, unread: Unread) -> Any:
        left, right = self.value(node.left), self.value(node.comparators[0])
        if any(isinstance(side, Unread | dict) for side in (left, right)):
            return unread
        comparison = node.ops[0]
        if isinstance(comparison, ast.Eq | ast.Is):
            return left == right
        if isinstance(comparison, ast.NotEq | ast.IsNot):
            return left != right
        if isinstance(comparison, ast.In | ast.NotIn) and isinstance(right, list):
            return (left in right) == isinstance(comparison, ast.In)
        compares = _COMPARES.get(type(comparison))
        numbers = all(isinstance(side, int | float) for side in (left, right))
        return compares(left, right) if compares is not None and numbers else unread


def set_field(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets a field of a tree; what is not known on the way becomes a table.

    >>> tree = {"train": {"steps": 1}}
    >>> set_field(tree, ["model", "layers"], 2)
    >>> tree
    {'train': {'steps': 1}, 'model': {'layers': 2}}
    """
    for name in path[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            inner = tree[name] = {} if not isinstance(inner, Unread) else {CALLED: str(inner)}
        tree = inner
    tree[path[-1]] = value


def _origins(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that a file imports, each with what it is of, dotted; of its own package nothing."""
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (
                (alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names
            )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)


def _at_top(module: ast.Module) -> list[ast.stmt]:
    """Statements of a file, and those of ``if __name__ == "__main__"``."""
    tests = (branch for branch in module.body if isinstance(branch, ast.If))
    return [*module.body, *(inner for branch in tests for inner in branch.body)]


def _started(node: ast.AST) -> ast.expr | None:
    """What a statement starts a run of."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or _dotted(call.func).rpartition(".")[2] not in STARTS:
        return None
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("config", "cfg")]
    return next(iter([*call.args, *named]), None)


def _is_free(node: ast.FunctionDef) -> bool:
    """Whether a function needs no arguments."""
    count = len(node.args.posonlyargs) + len(node.args.args)
    return count == len(node.args.defaults) and None not in node.args.kw_defaults


def _dotted(node: ast.expr) -> str:
    """``a.b.c``; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= 60 else f"{text[:57]}..."
