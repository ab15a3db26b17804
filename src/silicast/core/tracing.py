"""Formulas run once with symbols, and what the operators do to them written down as a tape.

A formula of :mod:`silicast.core.xp`, NumPy's functions and arithmetic operators that serves numbers
serves a :class:`Symbol` too. Where it asks whether a row has a property (``if``), the answer may
differ from row to row: that raises :class:`~silicast.core.xp.UntraceableError`, and such work goes
the ordinary way.

>>> graph = FormulaGraph()
>>> rows = graph.input(whole=True)
>>> tape, kinds = graph.tape([rows * 2.5 + 1.0])
>>> tape.single([4]) == [11.0]
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from silicast.core.symbols import Symbol
from silicast.core.tape import OPERATIONS, SUMS, Tape, TreeTables
from silicast.core.xp import UntraceableError

CODES = {name: code for code, name in enumerate(OPERATIONS)}
Node = int
FLOAT, WHOLE, TRUTH = "float", "whole", "truth"
"""Kinds of values; a truth is 1.0 or 0.0."""
_TRUTHS = frozenset(("gt", "ge", "eq"))
_VIEWS = frozenset(("part", "of_trees"))
"""Nodes that are a part of another's columns."""
_WITHOUT_STEP = _VIEWS | {"input", "const"}
_MOST = 4096
"""Numbers that a constant may hold at most."""


class FormulaGraph:
    """Expressions, each once. A node holds one number a row, or one for each of some candidates:
    its width.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, ...]] = []
        self.kinds: list[str] = []
        self.widths: list[int] = []
        self.inputs: list[Node] = []
        self.tables: list[TreeTables] = []
        self._known: dict[tuple[Any, ...], Node] = {}
        self._floats: dict[str, Node] = {}

    def input(self, *, whole: bool) -> Symbol:
        """A further column that a tape takes."""
        node = self.add(WHOLE if whole else FLOAT, 1, "input", len(self.inputs))
        self.inputs.append(node)
        return Symbol(self, node)

    def trees(self, tables: TreeTables, features: Sequence[Any]) -> list[Symbol]:
        """Results of trees, see :data:`~silicast.core.tape.SUMS`."""
        self.tables.append(tables)
        columns = [self.as_float(self.node_of(value)) for value in features]
        if any(self.widths[node] > 1 for node in columns):
            raise UntraceableError("a feature of candidates")
        node = self.add(FLOAT, SUMS, "trees", len(self.tables) - 1, *columns)
        return [Symbol(self, self.add(FLOAT, 1, "of_trees", node, at)) for at in range(SUMS)]

    def node_of(self, value: Any) -> Node:
        """The node of a symbol, or a constant of numbers.

        Raises:
            UntraceableError: no numbers, or too many.
        """
        if isinstance(value, Symbol):
            return value.node
        if value.__class__ is float:
            return self._constant_of(value)
        array = np.asarray(value)
        if array.dtype.kind not in "iufb" or not 1 <= array.size <= _MOST:
            raise UntraceableError("no numbers of candidates")
        kind = WHOLE if array.dtype.kind in "iu" else TRUTH if array.dtype.kind == "b" else FLOAT
        return self.constant(array, kind)

    def symbol_of(self, value: Any) -> Symbol:
        """A symbol as a float, or a number as a symbol."""
        return Symbol(self, self.as_float(self.node_of(value)))

    def constant(self, values: Any, kind: str) -> Node:
        """The node of numbers that are the same in all rows."""
        array = np.ravel(np.asarray(values, dtype=np.int64 if kind == WHOLE else np.float64))
        return self.add(kind, len(array), "const", array.tobytes())

    def _constant_of(self, number: float) -> Node:
        """:meth:`constant` of one float."""
        bits = number.hex()
        node = self._floats.get(bits)
        if node is None:
            node = self._floats[bits] = self.constant(number, FLOAT)
        return node

    def values_of(self, node: Node) -> Any:
        """The numbers of a constant, shape (width,); None = the node is no constant."""
        name, *bits = self.nodes[node]
        if name != "const":
            return None
        return np.frombuffer(bits[0], np.int64 if self.kinds[node] == WHOLE else np.float64)

    def number_of(self, node: Node) -> Any:
        """The number of a constant that holds one; None = the node is no such constant."""
        if self.widths[node] > 1 or self.nodes[node][0] != "const":
            return None
        return self.values_of(node).item()

    def add(self, kind: str, width: int, *node: Any) -> Node:
        """The node of an operation; an equal one is used again."""
        key = (kind, width, *node)
        node_number = self._known.get(key)
        if node_number is None:
            node_number = self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self.kinds.append(kind)
            self.widths.append(width)
        return node_number

    def as_float(self, node: Node) -> Node:
        """A node as floats."""
        if self.kinds[node] != WHOLE:
            return node
        values = self.values_of(node)
        if values is not None:
            return self.constant(values, FLOAT)
        return self.add(FLOAT, self.widths[node], "to_float", node)

    def as_whole(self, node: Node) -> Node:
        """A node as whole numbers, cut off towards zero."""
        if self.kinds[node] == WHOLE:
            return node
        values = self.values_of(node)
        if values is not None:
            return self.constant(values, WHOLE)
        return self.add(WHOLE, self.widths[node], "to_int", node)

    def apply(self, name: str, *nodes: Node) -> Node:
        """The node of an operation on nodes, by the kinds of its operands.

        Raises:
            UntraceableError: tapes have no such operation.
        """
        if name in ("lt", "le"):
            return self.apply({"lt": "gt", "le": "ge"}[name], nodes[1], nodes[0])
        if name == "ne":
            return self._opposite(self.apply("eq", *nodes))
        if name == "mod" and {self.kinds[node] for node in nodes} == {WHOLE}:
            whole = self.apply("mul", self.apply("floordiv", *nodes), nodes[1])
            return self.apply("sub", nodes[0], whole)
        if name == "mod":
            return self._left_over(*map(self.as_float, nodes))
        if name == "where":
            return self._where(*nodes)
        kinds = [self.kinds[node] for node in nodes]
        if name in ("and", "or", "not") and TRUTH in kinds:
            return self._of_truths(name, nodes)
        if WHOLE in kinds and FLOAT not in kinds and name not in ("div", "sqrt"):
            return self._of_whole(name, nodes)
        if name not in CODES:
            raise UntraceableError(f"no operation {name}")
        kind = TRUTH if name in _TRUTHS else FLOAT
        return self._put(kind, name, *map(self.as_float, nodes))

    def _of_truths(self, name: str, nodes: tuple[Node, ...]) -> Node:
        if name == "not":
            return self._opposite(nodes[0])
        if {self.kinds[node] for node in nodes} != {TRUTH}:
            raise UntraceableError("a truth and a number")
        return self._put(TRUTH, {"and": "min", "or": "max"}[name], *nodes)

    def _of_whole(self, name: str, nodes: tuple[Node, ...]) -> Node:
        """An operation on whole numbers, of which some may be truths."""
        if name in ("ceil", "floor", "rint"):
            return self.as_float(nodes[0])
        if name == "neg":
            return self._put(WHOLE, "int_sub", self.constant(0, WHOLE), nodes[0])
        nodes = tuple(map(self.as_whole, nodes))
        if name == "floordiv":
            divisor = self.values_of(nodes[1])
            if divisor is not None and (divisor <= 0).any():
                raise UntraceableError("a quotient by no positive number")
            return self._put(WHOLE, "int_div", *nodes)
        if f"int_{name}" not in CODES:
            raise UntraceableError(f"no operation {name} of whole numbers")
        return self._put(TRUTH if name in _TRUTHS else WHOLE, f"int_{name}", *nodes)

    def _left_over(self, value: Node, divisor: Node) -> Node:
        """What a float leaves over of a power of two: exact, as Python's ``%``."""
        base = self.number_of(divisor)
        if base is None or not (base > 0.0 and math.frexp(base)[0] == 0.5):
            raise UntraceableError("what is left over of no power of two")
        parts = self.apply("floor", self.apply("div", value, divisor))
        return self.apply("sub", value, self.apply("mul", parts, divisor))

    def gathered(self, sources: Sequence[tuple[Node, int]]) -> Node:
        """The node of numbers of other nodes: which node, and which of its numbers."""
        kinds = {self.kinds[node] for node, _ in sources}
        if len(kinds) > 1:
            sources = [(self.as_float(node), at) for node, at in sources]
            kinds = {FLOAT}
        (kind,), (node, first), width = kinds, sources[0], len(sources)
        if all(self.nodes[node][0] == "const" for node, _ in sources):
            return self.constant([self.values_of(node)[at] for node, at in sources], kind)
        if [*sources] == [(node, first + at) for at in range(width)]:
            if width == self.widths[node]:
                return node
            return self.add(kind, width, "part", node, first)
        return self.add(kind, width, "gather", *(x for source in sources for x in source))

    def spread(self, node: Node, width: int) -> Node:
        """A number of each row as that of all candidates."""
        if self.widths[node] == width:
            return node
        if self.widths[node] != 1:
            raise UntraceableError("columns of different lengths")
        values = self.values_of(node)
        if values is not None:
            return self.constant(np.repeat(values, width), self.kinds[node])
        return self.add(self.kinds[node], width, "spread", node)

    def _put(self, kind: str, name: str, *nodes: Node) -> Node:
        """An operation whose operands are of its kind: constants computed at once, without what
        changes nothing.
        """
        width = max(self.widths[node] for node in nodes)
        if len(nodes) == 2:
            left, right = nodes
            if name in ("max", "min") and left == right:
                return left
            first, second = self.number_of(left), self.number_of(right)
            nothing = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}.get(name)
            if second is not None and second == nothing and self.widths[left] == width:
                return left
            if name in ("mul", "add") and first == nothing and self.widths[right] == width:
                return right
            if not name.startswith("int_") and (fixed := _with_constant(name, first, second)):
                code, at, value = fixed
                return self.add(kind, width, code, nodes[at], self.constant(value, FLOAT))
        return self.add(kind, width, name, *(self.spread(node, width) for node in nodes))

    def _opposite(self, node: Node) -> Node:
        return self._put(TRUTH, "sub", self.constant(1.0, FLOAT), node)

    def _where(self, condition: Node, left: Node, right: Node) -> Node:
        if left == right and self.widths[left] >= self.widths[condition]:
            return left
        kinds = {self.kinds[left], self.kinds[right]}
        if len(kinds) > 1:
            left, right, kinds = self.as_float(left), self.as_float(right), {FLOAT}
        if self.kinds[condition] == WHOLE:
            condition = self.apply("ne", condition, self.constant(0, WHOLE))
        return self._put(kinds.pop(), "where", condition, left, right)

    def tape(self, outputs: Sequence[Symbol]) -> tuple[Tape, list[str]]:
        """The operations that some results need, in their order, and the kinds of the results."""
        nodes = [value.node for value in outputs]
        if any(self.widths[node] > 1 or self.kinds[node] == TRUTH for node in nodes):
            raise UntraceableError("a result of candidates, or a truth")
        return _TapeWriter(self).tape(nodes), [self.kinds[node] for node in nodes]


@final
class _TapeWriter:
    """Places nodes in columns, which are used again where a value is not needed any more."""

    def __init__(self, graph: FormulaGraph) -> None:
        self._graph = graph
        self._column: dict[Node, int] = {}
        self._free: dict[int, list[int]] = {}
        self._columns = 0
        self._steps: list[tuple[int, ...]] = []
        self._operands: list[int] = []
        self._constants: dict[float, int] = {}
        self._filled: list[tuple[int, Any]] = []

    def tape(self, outputs: list[Node]) -> Tape:
        """The tape whose results are some nodes."""
        graph = self._graph
        order = self._order(outputs)
        last = {used: at for at, node in enumerate(order) for used in self._owned(node)}
        retained = {self._owner(node) for node in outputs} | set(graph.inputs)
        for node in graph.inputs:
            self._place(node)
        for at, node in enumerate(order):
            if graph.nodes[node][0] not in _WITHOUT_STEP:
                self._write(node)
            for used in sorted(set(self._owned(node))):
                if last[used] == at and used not in retained and graph.nodes[used][0] != "const":
                    self._free.setdefault(graph.widths[used], []).append(self._column[used])
        columns = [self._placed(node) for node in outputs]
        inputs = [self._column[node] for node in graph.inputs]
        kinds = [int(graph.kinds[node] == WHOLE) for node in graph.inputs]
        return Tape(
            self._steps,
            self._operands,
            list(self._constants),
            self._filled,
            inputs,
            kinds,
            columns,
            self._columns,
            graph.tables,
        )

    def _used(self, node: Node) -> tuple[Node, ...]:
        """Nodes that a node is computed from."""
        name, *operands = self._graph.nodes[node]
        if name in ("input", "const"):
            return ()
        if name in _VIEWS:
            return (operands[0],)
        if name == "gather":
            return tuple(dict.fromkeys(operands[::2]))
        if name == "trees":
            return tuple(operands[1:])
        return (operands[0],) if _has_constant(name) else tuple(operands)

    def _owned(self, node: Node) -> list[Node]:
        """Nodes whose columns an operation reads."""
        name = self._graph.nodes[node][0]
        return [] if name in _WITHOUT_STEP else [self._owner(used) for used in self._used(node)]

    def _owner(self, node: Node) -> Node:
        while self._graph.nodes[node][0] in _VIEWS:
            node = self._graph.nodes[node][1]
        return node

    def _order(self, outputs: Sequence[Node]) -> list[Node]:
        """Nodes behind what they need, one result after the other."""
        order: list[Node] = []
        seen: set[Node] = set()
        for output in outputs:
            waiting = [(output, False)]
            while waiting:
                node, ready = waiting.pop()
                if ready:
                    order.append(node)
                elif node not in seen:
                    seen.add(node)
                    waiting.append((node, True))
                    waiting.extend((used, False) for used in reversed(self._used(node)))
        return order

    def _place(self, node: Node) -> int:
        width = self._graph.widths[node]
        free = self._free.get(width)
        if free:
            column = free.pop()
        else:
            column, self._columns = self._columns, self._columns + width
        self._column[node] = column
        return column

    def _placed(self, node: Node) -> int:
        """A node's first column; a constant gets columns that no other node uses."""
        name, *operands = self._graph.nodes[node]
        if name in _VIEWS:
            return self._placed(operands[0]) + int(operands[1])
        if node not in self._column:
            assert name == "const"
            column, self._columns = self._columns, self._columns + self._graph.widths[node]
            self._column[node] = column
            for at, value in enumerate(self._graph.values_of(node)):
                self._filled.append((column + at, value))
        return self._column[node]

    def _write(self, node: Node) -> None:
        """Adds the step of an operation."""
        graph = self._graph
        name, *operands = graph.nodes[node]
        width = graph.widths[node]
        if name == "trees":
            table, *features = operands
            first = len(self._operands)
            self._operands.extend([self._placed(value) for value in features])
            used = [first, table]
        elif name == "gather":
            used = [len(self._operands)]
            sources = zip(operands[::2], operands[1::2], strict=True)
            self._operands.extend([self._placed(source) + at for source, at in sources])
        elif _has_constant(name):
            value = graph.number_of(operands[1])
            used = [
                self._placed(operands[0]),
                self._constants.setdefault(value, len(self._constants)),
            ]
        elif name == "argmin":
            used = [self._placed(operands[0]), graph.widths[operands[0]]]
        else:
            used = [self._placed(value) for value in operands]
        filled = (*used, 0, 0, 0)
        self._steps.append((CODES[name], width, self._place(node), *filled[:3]))


def _has_constant(name: str) -> bool:
    return name.endswith("_const") or name.startswith("const_")


def _with_constant(name: str, first: Any, second: Any) -> tuple[str, int, float] | None:
    """The operation with one operand that is the same in all rows: its name, which operand the
    other is, and that number.
    """
    if (first is None) == (second is None):
        return None
    turned = second is None
    value = first if turned else second
    if name in ("add", "mul", "max", "min"):
        return f"{name}_const", int(turned), value
    if name in ("sub", "div"):
        if turned:
            return f"const_{name}", 1, value
        return ("add_const", 0, -value) if name == "sub" else ("div_const", 0, value)
    if name in ("gt", "ge"):
        return (f"const_{name}", 1, value) if turned else (f"{name}_const", 0, value)
    return None
