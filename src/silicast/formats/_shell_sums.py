"""Sums of whole numbers, as ``$(( ))`` and ``(( ))`` of a shell script hold them, and rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

PRINTS = frozenset(("echo", "printf"))
MAX_INTEGER = 1 << 63
MOST_COUNTED = 4096
_RANGE = re.compile(
    r"([^{}$`]{0,200})\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}$`]{1,999}))\}([^{}$`]{0,200})"
)
_TOKEN = re.compile(
    r"\s*([0-9][\w#@]*|\$?[A-Za-z_]\w*(?:\[[^\[\]]*\])?|\$(?:\{[^{}]*\}|\([^()]*\)|[\d#?])"
    r"|\+\+|--|\*\*|<<|>>|[<>=!]=|&&|\|\||[-+*/%()<>!~&|^?:])"
)
_COUNTS: Mapping[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "**": operator.pow,
}
_BINDS = {
    name: level
    for level, names in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %", "**"), 1
    )
    for name in names.split()
}
"""Operators of two sides -> how tightly they bind."""
_SETTLES = {"||": True, "&&": False}
_SIGNS: Mapping[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": operator.not_,
}
_POWERS = frozenset(("**", "<<", ">>"))
_BITS = 64
_NUMBER = re.compile(r"(?:([1-9][0-9]?)#|(0[xX])|(0)(?=.))?([0-9A-Za-z]{1,64})")
_BASES = range(2, 37)
"""Bases whose digits are letters of either case."""
_TARGET = r"([A-Za-z_]\w*)\s*(?:\[([^\[\]]{0,100})\]\s*)?"
_SETS = re.compile(
    rf"(?:\+\+|--)\s*{_TARGET}|(?<![\w#]){_TARGET}(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
)
"""What of a sum gives a name another value."""


def integer_of(text: str) -> int | None:
    """The value of a sum of whole numbers, as bash counts; None of anything else.

    A name stands for a number that is not known: what it decides is not known either. Nor is a sum
    that sets names, or one beyond 64 bits.

    >>> integer_of("8 * (2 + 1)"), integer_of("8 / 0"), integer_of("x"), integer_of("x || 1")
    (24, None, None, 1)
    >>> integer_of("-7 / 2"), integer_of("-7 % 3"), integer_of("010"), integer_of("2 ** 3 ** 2")
    (-3, -1, 8, 512)
    >>> integer_of("!0"), integer_of("6 > 4 ? 1 << 3 : x"), integer_of("10#08"), integer_of("08")
    (1, 8, 8, None)
    """
    tokens: list[str] = []
    position, text = 0, text.strip()
    if len(text) > 200:
        return None
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match[1])
        position = match.end()
    try:
        value = _choice(tokens)
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return None if tokens else value


def names_set(text: str) -> list[str]:
    """Names that a sum gives other values.

    >>> names_set("N++ + --M"), names_set("A[i++]=B <<= 2"), names_set("N == 2 || N <= 3 - -M")
    (['N', 'M'], ['A', 'i', 'B'], [])
    """
    names = list[str]()
    for match in _SETS.finditer(text):
        names += [match[1] or match[3], *names_set(match[2] or match[4] or "")]
    return names


def printed_text(program: str, text: str) -> str | None:
    """What a program prints that is given words; None = only running it would say.

    >>> printed_text("echo", "a b"), printed_text("basename", "a/b.sh .sh")
    ('a b', 'b')
    """
    words = text.split()
    if program in PRINTS:
        return None if program == "printf" and "%" in text else text
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


def _choice(tokens: list[str]) -> int | None:
    value = _binary(tokens, 1)
    if tokens[:1] != ["?"]:
        return value
    tokens.pop(0)
    chosen = _choice(tokens)
    if tokens.pop(0) != ":":
        raise ValueError
    other = _choice(tokens)
    return None if value is None else chosen if value else other


def _binary(tokens: list[str], least: int) -> int | None:
    """What operators join that bind at least so tightly."""
    value = _operand(tokens)
    while tokens and (binds := _BINDS.get(tokens[0], 0)) >= least:
        name = tokens.pop(0)
        value = _joined(name, value, _binary(tokens, binds + (name != "**")))
    return value


def _joined(name: str, left: int | None, right: int | None) -> int | None:
    if name in _SETTLES:
        settles = _SETTLES[name]
        truths = [None if side is None else side != 0 for side in (left, right)]
        return int(settles) if settles in truths else None if None in truths else int(not settles)
    if left is None or right is None:
        return None
    if name in ("/", "%"):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return _within(quotient if name == "/" else left - quotient * right)
    if name in _POWERS and not 0 <= right < _BITS:
        raise ValueError
    return _within(int(_COUNTS[name](left, right)))


def _within(value: int) -> int:
    """A number of 64 bits; bash turns others into one that nobody meant."""
    if not -MAX_INTEGER <= value < MAX_INTEGER:
        raise ValueError
    return value


def _operand(tokens: list[str]) -> int | None:
    first = tokens.pop(0)
    if first in _SIGNS:
        value = _operand(tokens)
        return None if value is None else _within(int(_SIGNS[first](value)))
    if first == "(":
        value = _choice(tokens)
        if tokens.pop(0) != ")":
            raise ValueError
        return value
    if first[0] == "$" or first[0].isalpha() or first[0] == "_":
        return None
    match = _NUMBER.fullmatch(first)
    if match is None:
        raise ValueError
    base = int(match[1]) if match[1] else 16 if match[2] else 8 if match[3] else 10
    digits = [int(letter, 36) for letter in match[4]]
    if base not in _BASES or max(digits) >= base:
        raise ValueError
    return _within(int(match[4], base))
