"""Sizes as expressions of open ones: ``64*batch*((image - 1)//4 + 1)**2``.

Whole numbers, names, ``+ - * // **`` and parentheses; nothing else is read, nothing is executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from silicast.core.errors import SilicastError

MAX_CHARACTERS = 2000
MAX_POWER = 8
MAX_BITS = 256
"""Of a value on the way: sizes have 63, products that are divided again somewhat more."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def symbols_of(text: str) -> frozenset[str]:
    """Names in an expression.

    Raises:
        SilicastError: it is none.

    >>> sorted(symbols_of("64*batch*((image - 1)//4 + 1)**2"))
    ['batch', 'image']
    """
    return frozenset(node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name))


def size_of(text: str, values: Mapping[str, int]) -> int:
    """The value of an expression.

    Raises:
        SilicastError: it is none, divides by 0, or its value is too large.
        KeyError: a name has no value.

    >>> size_of("64*batch*((image - 1)//4 + 1)**2", {"batch": 2, "image": 224})
    401408
    """
    return _value(_tree(text), values, text)


@lru_cache(maxsize=65536)
def _tree(text: str) -> ast.expr:
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(text) from None
    for node in ast.walk(tree):
        is_allowed = isinstance(node, ast.Name | ast.BinOp | ast.UnaryOp | ast.expr_context)
        is_allowed |= isinstance(node, ast.Constant) and type(node.value) is int
        is_allowed |= isinstance(node, ast.USub) or type(node) in _OPERATORS
        if not is_allowed:
            raise _wrong(text)
    return tree


def _value(node: ast.expr, values: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, values, text)
    assert isinstance(node, ast.BinOp)
    left, right = (_value(side, values, text) for side in (node.left, node.right))
    if isinstance(node.op, ast.Pow) and not 0 <= right <= MAX_POWER:
        raise _wrong(text, f"a power of {right}: 0 to {MAX_POWER} are read")
    if isinstance(node.op, ast.FloorDiv) and right == 0:
        raise _wrong(text, "divides by 0")
    value = _OPERATORS[type(node.op)](left, right)
    if value.bit_length() > MAX_BITS:
        raise _wrong(text, "its value is too large")
    return value


def _wrong(text: str, why: str = "") -> SilicastError:
    return SilicastError(
        f"{text[:60]!r}: {why}" if why else f"{text[:60]!r} is no size",
        hint="whole numbers and names of symbols with + - * // ** and parentheses",
    )
