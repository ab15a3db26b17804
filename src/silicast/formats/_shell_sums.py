"""Sums of whole numbers, as ``$(( ))`` of a shell script holds them."""

from __future__ import annotations

import re

MAX_INTEGER = 1 << 63
_NUMBERS = re.compile(r"\s*(?:(\d+)|([-+*/%()]))")


def integer_of(text: str) -> int | None:
    """The value of whole numbers with + - * / % and brackets; None of anything else.

    >>> integer_of("8 * (2 + 1)"), integer_of("8 / 0"), integer_of("x")
    (24, None, None)
    """
    tokens, position = [], 0
    text = text.strip()
    if len(text) > 200:
        return None
    while position < len(text):
        match = _NUMBERS.match(text, position)
        if match is None:
            return None
        tokens.append(match[1] or match[2])
        position = match.end()
    try:
        value = _sum(tokens)
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return None if tokens or abs(value) > MAX_INTEGER else value


def _sum(tokens: list[str]) -> int:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        value += sign * _product(tokens)
    return value


def _product(tokens: list[str]) -> int:
    value = _factor(tokens)
    while tokens and tokens[0] in "*/%":
        operator, other = tokens.pop(0), _factor(tokens)
        if operator == "*":
            value *= other
        else:
            value = value // other if operator == "/" else value % other
        if abs(value) > MAX_INTEGER:
            raise ValueError
    return value


def _factor(tokens: list[str]) -> int:
    first = tokens.pop(0)
    if first == "-":
        return -_factor(tokens)
    if first == "(":
        value = _sum(tokens)
        if tokens.pop(0) != ")":
            raise ValueError
        return value
    return int(first) if len(first) < 20 else int("x")
