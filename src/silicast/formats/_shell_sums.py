"""Sums of whole numbers, as ``$(( ))`` of a shell script holds them, and rows of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

PRINTS = frozenset(("echo", "printf"))
MAX_INTEGER = 1 << 63
MOST_COUNTED = 4096
_RANGE = re.compile(
    r"([^{}$`]{0,200})\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}$`]{1,999}))\}([^{}$`]{0,200})"
)
_TESTS = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}
_NUMBERS = re.compile(r"\s*(?:(\d+)|([-+*/%()]))")


def integer_of(text: str) -> int | None:
    """The value of whole numbers with + - * / % and brackets; None of anything else.

    >>> integer_of("8 * (2 + 1)"), integer_of("8 / 0"), integer_of("x")
    (24, None, None)
    >>> integer_of("-7 / 2"), integer_of("-7 % 3"), integer_of("010")
    (-3, -1, None)
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


def sum_as_test(text: str) -> list[str]:
    """What ``(( ))`` asks, as the words of a test; "$" stands for a side that is not known.

    >>> sum_as_test("8 / 2 >= 4 && 1"), sum_as_test("x > 1")
    (['4', '-ge', '4', '&&', '1', '-ne', '0'], ['$', '-gt', '1'])
    """
    words: list[str] = []
    for part in re.split(r"(&&|\|\|)", text):
        if part in ("&&", "||"):
            words.append(part)
            continue
        left, name, right = (*re.split(r"([<>=!]=|[<>])", part, maxsplit=1), "!=", "0")[:3]
        sides = [integer_of(side) for side in (left, right)]
        known = ["$" if side is None else str(side) for side in sides]
        words += [known[0], _TESTS[name], known[1]]
    return words


def printed_text(program: str, text: str) -> str | None:
    """What a program prints that is given words; None = only running it would say.

    >>> printed_text("echo", "a b"), printed_text("basename", "a/b.sh .sh")
    ('a b', 'b')
    """
    words = text.split()
    if program in PRINTS:
        return text
    if program == "seq":
        return counted(words)
    if program == "basename" and 1 <= len(words) <= 2:
        return PurePosixPath(words[0]).name.removesuffix(words[1] if len(words) > 1 else "")
    if program == "dirname" and len(words) == 1:
        return str(PurePosixPath(words[0]).parent)
    return None


def counted(words: Sequence[str]) -> str | None:
    """What ``seq`` prints, in one line; None = only running it would say.

    >>> counted(["3"]), counted(["0", "2", "6"]), counted(["$N"])
    ('1 2 3', '0 2 4 6', None)
    """
    if not 1 <= len(words) <= 3 or not all(word.isdecimal() and len(word) < 10 for word in words):
        return None
    numbers = [int(word) for word in words]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step < 1 or (numbers[-1] - first) // step >= MOST_COUNTED:
        return None
    return " ".join(map(str, range(first, numbers[-1] + 1, step)))


def braced(text: str) -> list[str]:
    """The words that braces in a bare word stand for; none where it has none.

    >>> braced("n{1..3}:80"), braced("n{a,b}"), braced("{x}")
    (['n1:80', 'n2:80', 'n3:80'], ['na', 'nb'], [])
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    row = counted([match[2], match[3]]) if match[2] else None
    inner = row.split() if row else match[4].split(",") if match[4] and "," in match[4] else []
    return [f"{match[1]}{item}{match[5]}" for item in inner]


def _sum(tokens: list[str]) -> int:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        value += sign * _product(tokens)
    return value


def _product(tokens: list[str]) -> int:
    value = _factor(tokens)
    while tokens and tokens[0] in "*/%":
        operator, factor = tokens.pop(0), _factor(tokens)
        if operator == "*":
            value *= factor
        else:
            quotient = abs(value) // abs(factor) * (1 if (value < 0) == (factor < 0) else -1)
            value = quotient if operator == "/" else value - quotient * factor
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
    if len(first) >= 20 or (first[0] == "0" and first != "0"):
        raise ValueError  # with a zero before it a number is octal
    return int(first)
