"""Arithmetic in attributes of Timeloop's files (``depth: 64 * 1024 * 8 / width``): read here, never
run by Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, final

from silicast.core.errors import SilicastError

_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|([A-Za-z_]\w*)|(\*\*|//|[-+*/%(),]))"
)
_LONGEST = 500
"""Characters of an expression; others are words."""
_DEEPEST = 50
"""Brackets in brackets."""
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "min": min,
    "max": max,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "abs": abs,
    "int": int,
}
_BINARY: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
_LEVELS = (("+", "-"), ("*", "/", "//", "%"))


class NoArithmeticError(Exception):
    """A text that is no expression, or names what is not known."""


class _NeedsFirstError(Exception):
    """An attribute whose value is needed is not evaluated yet."""


def evaluated(text: str, value_of: Callable[[str], float]) -> float:
    """The value of an expression.

    Args:
        value_of: of a name; raises :class:`NoArithmeticError` where it is not known.

    Raises:
        NoArithmeticError: it is none.

    >>> evaluated("ceil(3 * width / 2) - 2 ** 2", {"width": 9.0}.__getitem__)
    10.0
    """
    if len(text) > _LONGEST:
        raise NoArithmeticError
    try:
        return float(_Expression(text, value_of).whole())
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoArithmeticError from error


@final
class _Expression:
    def __init__(self, text: str, value_of: Callable[[str], float]) -> None:
        self.value_of = value_of
        self.tokens: list[tuple[str, str]] = []
        self.depth = 0
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise NoArithmeticError
            kind = ("number", "name", "sign")[(match.lastindex or 1) - 1]
            self.tokens.append((kind, match[match.lastindex or 1]))
            at = match.end()
        self.tokens.reverse()

    def whole(self) -> float:
        value = self.level(0)
        if self.tokens:
            raise NoArithmeticError
        return value

    def level(self, number: int) -> float:
        """Sums of products of powers."""
        if number == len(_LEVELS):
            return self.signed()
        value = self.level(number + 1)
        while self.tokens and self.tokens[-1][1] in _LEVELS[number]:
            sign = self.tokens.pop()[1]
            value = _BINARY[sign](value, self.level(number + 1))
        return value

    def signed(self) -> float:
        sign = 1.0
        while self.tokens and self.tokens[-1] in (("sign", "-"), ("sign", "+")):
            sign = -sign if self.tokens.pop()[1] == "-" else sign
        base = self.atom()
        return sign * (math.pow(base, self.signed()) if self.takes("**") else base)

    def atom(self) -> float:
        if not self.tokens:
            raise NoArithmeticError
        kind, word = self.tokens.pop()
        if kind == "number":
            return float(word)
        if word == "(":
            values = self.inside()
            if len(values) > 1:
                raise NoArithmeticError
            return values[0]
        if kind != "name":
            raise NoArithmeticError
        if not self.takes("("):
            return self.value_of(word)
        if word not in _FUNCTIONS:
            raise NoArithmeticError
        return _FUNCTIONS[word](*self.inside())

    def inside(self) -> list[float]:
        """What stands in brackets, up to the closing one."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NoArithmeticError
        values = [self.level(0)]
        while self.takes(","):
            values.append(self.level(0))
        if not self.takes(")"):
            raise NoArithmeticError
        self.depth -= 1
        return values

    def takes(self, token: str) -> bool:
        if self.tokens and self.tokens[-1] == ("sign", token):
            self.tokens.pop()
            return True
        return False


def resolved(
    given: Mapping[str, Any], outer: Mapping[str, Any], where: str, file: str
) -> dict[str, Any]:
    """Attributes with the values of their expressions; texts that are none stay as they are.

    Args:
        outer: values of variables and of the parts of the tree that the attributes stand in.

    Raises:
        SilicastError: attributes that need each other.

    >>> resolved({"width": "2 * bits", "depth": "1024 / width"}, {"bits": 8}, "", "")
    {'width': 16, 'depth': 64}
    """
    result: dict[str, Any] = {}
    open_: dict[str, None] = {}

    def value_of(name: str) -> float:
        if name in given and name not in open_ and name not in result:
            raise _NeedsFirstError(name)
        if name in open_ and name not in outer:
            names = list(open_)
            raise SilicastError(
                f"{' needs '.join([*names[names.index(name) :], name])}",
                field=f"{where}.{name}",
                file=file,
                hint="state one of them as a number",
            )
        value = outer.get(name) if name in open_ else result.get(name, outer.get(name))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NoArithmeticError
        return value

    def one(name: str) -> Any:
        value = given[name]
        if isinstance(value, str):
            with suppress(NoArithmeticError):
                number = evaluated(value, value_of)
                value = int(number) if number.is_integer() else number
        return value

    for first in given:
        if first not in result:
            open_[first] = None
        while open_:  # no recursion: a file may name as many in a row as it likes
            name = next(reversed(open_))
            try:
                result[name] = one(name)
            except _NeedsFirstError as needed:
                open_[str(needed)] = None
            else:
                del open_[name]
    return {name: result[name] for name in given}
