"""NumPy functions that also take plain numbers: one row, without an array for each of its values.

A formula written with these functions and arithmetic operators serves an array of rows and a single
row of Python numbers, and both give the same bits: all operations are IEEE add, multiply, divide
and square root. A number takes about 0.05 us for an operation, an array of any length at least
0.5 us. Types say arrays throughout; where a function documents that it takes numbers too, every
array of shape (n,) may be a number.

What NumPy answers with an infinity (a division by zero) raises here; callers then use arrays.
Comparing classes takes half the time of ``isinstance``; no subclass of an array gets here.
"""

# mypy: disable-error-code="no-any-return, return-value"
from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray


@final
class UntraceableError(TypeError):
    """A symbol (:mod:`silicast.core.tracing`) was asked for its value."""


def of_symbols(name: str, *operands: Any) -> Any:
    """An operation of the symbols among some numbers."""
    symbol = next(x for x in operands if hasattr(x, "graph"))
    return symbol.apply(name, *operands)


def maximum(a: Any, b: Any) -> NDArray[Any]:
    """The larger of two values, elementwise."""
    if a.__class__ is ndarray or b.__class__ is ndarray:
        return np.maximum(a, b)
    try:
        return a if a >= b else b
    except UntraceableError:
        return of_symbols("max", a, b)


def minimum(a: Any, b: Any) -> NDArray[Any]:
    """The smaller of two values, elementwise."""
    if a.__class__ is ndarray or b.__class__ is ndarray:
        return np.minimum(a, b)
    try:
        return a if a <= b else b
    except UntraceableError:
        return of_symbols("min", a, b)


def where(condition: Any, a: Any, b: Any) -> NDArray[Any]:
    """``a`` where the condition holds, else ``b``, elementwise."""
    if condition.__class__ is ndarray or a.__class__ is ndarray or b.__class__ is ndarray:
        return np.where(condition, a, b)
    try:
        return a if condition else b
    except UntraceableError:
        return of_symbols("where", condition, a, b)


def ceil(x: Any) -> NDArray[Any]:
    """The smallest whole number not below ``x``, as a float."""
    try:
        return np.ceil(x) if x.__class__ is ndarray else float(math.ceil(x))
    except UntraceableError:
        return of_symbols("ceil", x)


def floor(x: Any) -> NDArray[Any]:
    """The largest whole number not above ``x``, as a float."""
    try:
        return np.floor(x) if x.__class__ is ndarray else float(math.floor(x))
    except UntraceableError:
        return of_symbols("floor", x)


def rint(x: Any) -> NDArray[Any]:
    """The nearest whole number, as a float; halves go to even ones."""
    try:
        return np.rint(x) if x.__class__ is ndarray else float(round(x))
    except UntraceableError:
        return of_symbols("rint", x)


def sqrt(x: Any) -> NDArray[Any]:
    """The square root."""
    try:
        return np.sqrt(x) if x.__class__ is ndarray else math.sqrt(x)
    except UntraceableError:
        return of_symbols("sqrt", x)


def float64(x: Any) -> NDArray[np.float64]:
    """``x`` as floats."""
    try:
        return x.astype(np.float64) if x.__class__ is ndarray else float(x)
    except UntraceableError:
        return x.astype(np.float64)


def int64(x: Any) -> NDArray[Any]:
    """``x`` as whole numbers, cut off towards zero."""
    try:
        return x.astype(np.int64) if x.__class__ is ndarray else int(x)
    except UntraceableError:
        return x.astype(np.int64)


def full_like(x: Any, value: Any) -> NDArray[Any]:
    """``value`` in every row of ``x``; an array takes the type of the value."""
    return np.full(x.shape, value) if x.__class__ is ndarray else value


def any_of(x: Any) -> bool:
    """Whether one of the rows is true; of symbols yes, since the way for all rows gives the bits of
    every other.
    """
    try:
        return bool(x.any()) if x.__class__ is ndarray else bool(x)
    except UntraceableError:
        return True


def all_of(x: Any) -> bool:
    """Whether all rows are true; of symbols no, see :func:`any_of`."""
    try:
        return bool(x.all()) if x.__class__ is ndarray else bool(x)
    except UntraceableError:
        return False


def logical_not(x: Any) -> NDArray[Any]:
    """The opposite, elementwise."""
    try:
        return ~x if x.__class__ is ndarray else not x
    except UntraceableError:
        return ~x


def stack(*values: Any) -> NDArray[Any]:
    """Values as the rows of an array, shape (values, n); of numbers (values, 1)."""
    if values[0].__class__ is ndarray:
        return np.stack(values)
    symbol = next((x for x in values if hasattr(x, "graph")), None)
    return np.array([[v] for v in values]) if symbol is None else symbol.stacked(*values)


def like(x: Any, values: Any) -> Any:
    """``values`` of shape (n,) in the form of ``x``: its only one where ``x`` is a number."""
    return values if x.__class__ is ndarray else values.item()


def picked(column: Any, at: Any) -> Any:
    """The numbers of a column of candidates at the place of each row, or the number of one row.

    Args:
        column: shape (candidates,), or (candidates, 1) for one row.
    """
    if at.__class__ is ndarray:
        return column.take(at)
    try:
        return column.item(at)
    except TypeError:
        return at.picked(column, at)


def lookup(table: NDArray[Any], at: Any) -> Any:
    """The entries of a table at the place of each row, or a number of one row."""
    try:
        entries = table[at]
    except UntraceableError:
        return at.looked_up(table)
    return entries if at.__class__ is ndarray else entries.item()


def tolist(x: Any) -> list[Any]:
    """The rows as Python numbers."""
    return x.tolist() if x.__class__ is ndarray else [x]
