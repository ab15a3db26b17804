"""Symbols: what stands for numbers, and for arrays of one row, while a formula is traced.

A symbol has the shape that the array of one row would have, whose last axis is of rows; its numbers
are the columns of one node of a graph (:mod:`silicast.core.tracing`) in the order of that array.
Indexing, stacking and broadcasting say which columns go where, as NumPy does with their indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.xp import UntraceableError

if TYPE_CHECKING:
    from silicast.core.tracing import FormulaGraph, Node

_STEPS = 32
"""Positions, at most, at which the entries of a table that is looked up change."""


@final
class Symbol:
    """A number that a graph computes, or numbers of candidates.

    Args:
        node: as wide as the symbol has numbers.
        shape: of the array of one row; () = a number.
    """

    __array_priority__ = 1e9
    __slots__ = ("graph", "node", "shape")

    def __init__(self, graph: FormulaGraph, node: Node, shape: tuple[int, ...] = ()) -> None:
        self.graph, self.node = graph, node
        self.shape = () if shape == (1,) else shape

    @property
    def size(self) -> int:
        """How many numbers it stands for."""
        return self.graph.widths[self.node]

    def apply(self, name: str, *operands: Any) -> Symbol:
        """The result of an operation, number by number."""
        shapes = {shape for value in operands if (shape := _shape_of(value))}
        shape = next(iter(shapes)) if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        if len(shapes) > 1:
            operands = tuple(_spread(value, shape) for value in operands)
        node = self.graph.apply(name, *map(self.graph.node_of, operands))
        return Symbol(self.graph, node, shape)

    def item(self, at: Any = None) -> Symbol:
        """The only number, or the number of candidate ``at``."""
        if at is not None:
            return self.picked(self, at)
        if self.size != 1:
            raise UntraceableError("one number of several candidates")
        return Symbol(self.graph, self.node)

    def picked(self, column: Any, at: Any) -> Symbol:
        """The number of candidate ``at`` in a column of them."""
        graph = self.graph
        node = graph.node_of(column)
        if graph.widths[node] == 1:
            return Symbol(graph, node)
        position = graph.as_whole(graph.node_of(at))
        return Symbol(graph, graph.add(graph.kinds[node], 1, "pick", node, position))

    def take(self, at: Any) -> Symbol:
        """The numbers at indices among all of them, in the shape of these."""
        indices = [at] if at.shape == () else at[(...,)].ravel()
        picked = [self.picked(self, index) for index in indices]
        return _joined([(x, np.zeros(1, dtype=np.int64)) for x in picked], at.shape)

    def looked_up(self, table: Any) -> Symbol:
        """The entry of ``table`` at this position; its entries may change at few positions."""
        changes = np.flatnonzero(np.diff(table)).tolist()
        if len(changes) > _STEPS:
            raise UntraceableError("a table of many steps")
        outcome = Symbol(self.graph, self.graph.node_of(table[0]))
        for position in changes:
            outcome = self.apply(
                "where", self.apply("gt", self, position), table[position + 1], outcome
            )
        return outcome

    def stacked(self, *values: Any) -> Symbol:
        """Numbers as the rows of an array, shape (values, 1)."""
        return _concatenated([_at_least(value, 2) for value in values])

    def ravel(self) -> Symbol:
        """The same in one axis."""
        return Symbol(self.graph, self.node, (self.size,))

    def _reduced(self, name: str, axis: Any) -> Symbol:
        parts = list(self if axis is not None else self.ravel())
        outcome = parts[0]
        for value in parts[1:]:
            outcome = self.apply(name, outcome, value)
        return outcome

    def min(self, axis: Any = None) -> Symbol:
        """The least along the first axis, or of all."""
        return self._reduced("min", axis)

    def max(self, axis: Any = None) -> Symbol:
        """The largest of them."""
        return self._reduced("max", axis)

    def argmin(self, axis: Any = None) -> Symbol:
        """Which is the least along the first axis, or of all, the first of equal ones."""
        graph = self.graph
        shape = self.shape[1:] if axis is not None and self.size > self.shape[0] else ()
        if not shape:
            return Symbol(graph, graph.add("whole", 1, "argmin", graph.as_float(self.node)))
        columns = (self[(slice(None), *index)] for index in np.ndindex(shape))
        return _joined([(x.argmin(), np.zeros(1, dtype=np.int64)) for x in columns], shape)

    def argmax(self, axis: Any = None) -> Symbol:
        """Which is the largest, the first of equal ones."""
        return self.apply("neg", self).argmin(axis)

    def any(self) -> bool:
        """Yes: the way for all rows gives the bits of every other."""
        return True

    def tolist(self) -> list[Symbol]:
        """One symbol for each candidate."""
        return list(self)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    def __iter__(self) -> Iterator[Symbol]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: Any) -> Symbol:
        indices = np.arange(self.size).reshape(self.shape or (1,))[key]
        return _joined([(self, np.atleast_1d(indices))], indices.shape)

    def astype(self, kind: Any) -> Symbol:
        """As floats, or as whole numbers."""
        graph = self.graph
        change = graph.as_whole if np.dtype(kind).kind == "i" else graph.as_float
        return Symbol(graph, change(self.node), self.shape)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise UntraceableError("an array of symbols")

    def __bool__(self) -> bool:
        raise UntraceableError("a decision")

    def __float__(self) -> float:
        raise UntraceableError("a number")

    def __pow__(self, other: Any) -> Symbol:
        raise UntraceableError("a power")

    __int__ = __index__ = __round__ = __ceil__ = __floor__ = __float__
    __rpow__ = __pow__
    __hash__ = None  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, out: Any = None) -> Any:
        name = ufunc.__name__
        if method == "__call__" and name in _OF_TWO and out is None:
            return tuple(self.apply(part, *operands) for part in _OF_TWO[name])
        if method != "__call__" or name not in _UFUNCS:
            raise UntraceableError(f"{name} {method}")
        outcome = self.apply(_UFUNCS[name], *operands)
        if out is None:
            return outcome
        (changed,) = out
        if not isinstance(changed, Symbol) or changed.shape != outcome.shape:
            raise UntraceableError("an array is changed")
        changed.node = outcome.node
        return changed

    def __array_function__(self, function: Any, types: Any, operands: Any, named: Any) -> Any:
        if function is np.where:
            return self.apply("where", *operands)
        if function is np.full_like:
            like, value = operands
            return Symbol(self.graph, self.graph.node_of(_spread(value, like.shape)), like.shape)
        if function in (np.zeros_like, np.ones_like):
            return np.full(operands[0].shape, float(function is np.ones_like))
        if function is np.concatenate:
            return _concatenated([_at_least(value, 1) for value in operands[0]])
        if function is np.stack:
            return _concatenated([_at_least(value, 1)[None] for value in operands[0]])
        if function is np.broadcast_to:
            return _placed(operands[0], tuple(operands[1]))
        if function in (np.argmin, np.argmax):
            return getattr(self, function.__name__)(*operands[1:], **named)
        if function is np.atleast_1d:
            arrays = [x if isinstance(x, Symbol) else np.atleast_1d(x) for x in operands]
            return arrays[0] if len(arrays) == 1 else arrays
        raise UntraceableError(function.__name__)


def _shape_of(value: Any) -> tuple[int, ...]:
    if isinstance(value, (float, int)):
        return ()
    shape: tuple[int, ...] = value.shape
    return shape


def _at_least(value: Any, axes: int) -> Any:
    """With one axis, or two, at the least: a number is an array of one row."""
    if isinstance(value, Symbol):
        missing = axes - len(value.shape)
        if missing <= 0:
            return value
        return _Reshaped(value, (*([1] * missing), *value.shape))
    return np.asarray(value).reshape((1,) * (axes - np.ndim(value)) + np.shape(value))


@final
class _Reshaped:
    """A symbol in a shape that only arrays have: (1,)."""

    def __init__(self, symbol: Symbol, shape: tuple[int, ...]) -> None:
        self.symbol, self.shape = symbol, shape

    def __getitem__(self, key: None) -> _Reshaped:
        assert key is None
        return _Reshaped(self.symbol, (1, *self.shape))


def _concatenated(values: Sequence[Any]) -> Symbol:
    """Along the first axis."""
    shapes = [value.shape for value in values]
    sources = [value.symbol if isinstance(value, _Reshaped) else value for value in values]
    parts = [
        (source, np.arange(int(np.prod(shape))))
        for source, shape in zip(sources, shapes, strict=True)
    ]
    return _joined(parts, (sum(shape[0] for shape in shapes), *shapes[0][1:]))


def _spread(value: Any, shape: tuple[int, ...]) -> Any:
    """A value in a shape, but for one number, which serves any."""
    size = value.size if isinstance(value, Symbol) else np.size(value)
    return value if size == 1 or _shape_of(value) == shape else _placed(value, shape)


def _placed(value: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(value, Symbol):
        return np.broadcast_to(value, shape)
    indices = np.arange(value.size).reshape(value.shape or (1,))
    return _joined([(value, np.broadcast_to(indices, shape))], shape)


def _joined(parts: Sequence[tuple[Any, NDArray[np.int64]]], shape: tuple[int, ...]) -> Symbol:
    """Numbers at some indices of values, the one behind the other, in a shape."""
    graph = next(value.graph for value, _ in parts if isinstance(value, Symbol))
    indices = [
        (graph.node_of(value), index) for value, at in parts for index in at.ravel().tolist()
    ]
    return Symbol(graph, graph.gathered(indices), shape)


_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "maximum": "max",
    "minimum": "min",
    "ceil": "ceil",
    "floor": "floor",
    "rint": "rint",
    "sqrt": "sqrt",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "equal": "eq",
    "not_equal": "ne",
    "negative": "neg",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "invert": "not",
    "floor_divide": "floordiv",
    "remainder": "mod",
}
_OF_TWO = {"divmod": ("floordiv", "mod")}
"""Functions with two results."""
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or")
_COMPARED = ("gt", "ge", "lt", "le", "eq", "ne")
_NAMES = {"truediv": "div"}


def _install() -> None:
    def forward(name: str) -> Callable[..., Symbol]:
        return lambda self, other: self.apply(name, self, other)

    def backward(name: str) -> Callable[..., Symbol]:
        return lambda self, other: self.apply(name, other, self)

    def inplace(name: str) -> Callable[..., Symbol]:
        def change(self: Symbol, other: Any) -> Symbol:
            outcome = self.apply(name, self, other)
            if self.shape == ():
                return outcome
            if outcome.shape != self.shape:
                raise UntraceableError("an array is changed")
            self.node = outcome.node
            return self

        return change

    for method in (*_BINARY, *_COMPARED):
        name = _NAMES.get(method, method)
        setattr(Symbol, f"__{method}__", forward(name))
        if method in _BINARY:
            setattr(Symbol, f"__r{method}__", backward(name))
            setattr(Symbol, f"__i{method}__", inplace(name))
    setattr(Symbol, "__neg__", lambda self: self.apply("neg", self))  # noqa: B010
    setattr(Symbol, "__invert__", lambda self: self.apply("not", self))  # noqa: B010
    setattr(Symbol, "__abs__", lambda self: self.apply("max", self, -self))  # noqa: B010


_install()
