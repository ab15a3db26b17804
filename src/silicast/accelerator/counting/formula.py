"""Arithmetic written down once and evaluated often: for one row of numbers, or for many rows.

A :class:`Formula` is built with operators on :class:`FormulaValue` and with the functions of this
module,
which take arrays and numbers as well; constants are folded, what occurs twice is computed once, and
what no result needs is left out. All operations are IEEE add,
subtract, multiply, divide, floor, ceiling, least and greatest, so that a row of numbers gives the
same bits as a row of an array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from silicast.core.numerics import F64

Number = Any
"""A number, an array of one for every row, or a quantity of a formula."""


def _of_one(name: str, do: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def one(a: Any, _: Any) -> Any:
        return do(a)

    one.__name__ = name
    return one


def _divisor(a: float, b: float) -> float:
    return float(math.gcd(int(a), int(b)))


def _divisors(a: Any, b: Any) -> F64:
    divisors: F64 = np.gcd(np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)) * 1.0
    return divisors


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "minimum": min,
    "maximum": max,
    "gcd": _divisor,
    "floor": _of_one("floor", lambda x: float(math.floor(x))),
    "ceil": _of_one("ceil", lambda x: float(math.ceil(x))),
}
_ARRAYS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "gcd": _divisors,
    "floor": _of_one("floor", np.floor),
    "ceil": _of_one("ceil", np.ceil),
}
_COMMUTE = frozenset({"add", "multiply", "minimum", "maximum", "gcd"})


@final
class FormulaValue:
    """A quantity of a formula: an input, or what an operation gives."""

    __slots__ = ("formula", "index")
    __array_ufunc__ = None
    """An operator with a number of NumPy is this class's."""

    def __init__(self, formula: Formula, index: int) -> None:
        self.formula = formula
        self.index = index

    def __add__(self, other: FormulaValue | float) -> FormulaValue | float:
        return self.formula.apply("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: FormulaValue | float) -> FormulaValue | float:
        return self.formula.apply("subtract", self, other)

    def __rsub__(self, other: float) -> FormulaValue | float:
        return self.formula.apply("subtract", other, self)

    def __mul__(self, other: FormulaValue | float) -> FormulaValue | float:
        return self.formula.apply("multiply", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: FormulaValue | float) -> FormulaValue | float:
        return self.formula.apply("divide", self, other)

    def __rtruediv__(self, other: float) -> FormulaValue | float:
        return self.formula.apply("divide", other, self)


@final
class Formula:
    """Quantities as they are written down, inputs first.

    >>> f = Formula()
    >>> x, y = f.input(), f.input()
    >>> area = f.compiled([ceil(x / 4.0) * y + 0.0])
    >>> area.evaluate([9.0, 2.0])
    [6.0]
    >>> area.evaluate([np.array([9.0, 16.0]), np.array([2.0, 3.0])])[0].tolist()
    [6.0, 12.0]
    """

    def __init__(self) -> None:
        self.inputs = 0
        self.steps: list[tuple[str, int | float, int | float]] = []
        """Operation and its arguments: indices of quantities, or constants (floats)."""
        self.known: dict[tuple[str | int | float, ...], FormulaValue] = {}
        """Values by operation, arguments, and which of these are constants: 1 equals 1.0."""

    def input(self) -> FormulaValue:
        """A further input; all come before the first operation."""
        assert len(self.steps) == self.inputs, "inputs come first"
        self.inputs += 1
        self.steps.append(("input", 0, 0))
        return FormulaValue(self, len(self.steps) - 1)

    def apply(
        self, name: str, a: FormulaValue | float, b: FormulaValue | float
    ) -> FormulaValue | float:
        """What an operation gives; a constant where all that it takes is constant."""
        if a.__class__ is not FormulaValue and b.__class__ is not FormulaValue:
            constant: float = _NUMBERS[name](_argument(a), _argument(b))
            return constant
        if (same := _unchanged(name, a, b)) is not None:
            return same
        if name in _COMMUTE and _later(a, b):
            a, b = b, a
        step = (name, _argument(a), _argument(b))
        # The first quantity equals the constant one, as a key.
        key = (*step, a.__class__ is FormulaValue, b.__class__ is FormulaValue)
        value = self.known.get(key)
        if value is None:
            self.steps.append(step)
            value = self.known[key] = FormulaValue(self, len(self.steps) - 1)
        return value

    def compiled(self, results: Sequence[FormulaValue | float]) -> Compiled:
        """The steps that these results need."""
        needed = {each.index for each in results if isinstance(each, FormulaValue)}
        for index in range(len(self.steps) - 1, self.inputs - 1, -1):
            if index in needed:
                needed |= {x for x in self.steps[index][1:] if isinstance(x, int)}
        needed_steps = [index for index in range(self.inputs, len(self.steps)) if index in needed]
        return _with_registers(self, needed_steps, results)


def _applied(name: str, a: Number, b: Number) -> Number:
    for x in (a, b):
        if x.__class__ is FormulaValue:
            return x.formula.apply(name, a, b)
    return _ARRAYS[name](a, b)


def minimum(a: Number, b: Number) -> Number:
    """The smaller one."""
    return _applied("minimum", a, b)


def maximum(a: Number, b: Number) -> Number:
    """The larger one."""
    return _applied("maximum", a, b)


def floor(x: Number) -> Number:
    """The largest whole number not above."""
    return _applied("floor", x, 0.0)


def ceil(x: Number) -> Number:
    """The smallest whole number not below."""
    return _applied("ceil", x, 0.0)


def gcd(a: Number, b: Number) -> Number:
    """The greatest common divisor of whole numbers."""
    return _applied("gcd", a, b)


def occurs(x: Number) -> bool:
    """Whether a count is more than zero in any row; a quantity of a formula counts as more."""
    return x.__class__ is FormulaValue or bool(np.any(x))


def _argument(x: FormulaValue | float) -> int | float:
    return x.index if isinstance(x, FormulaValue) else float(x)


def _later(a: FormulaValue | float, b: FormulaValue | float) -> bool:
    """Of arguments that commute, whether the second comes first: quantities in order, then the
    constant.
    """
    if not isinstance(b, FormulaValue):
        return False
    return not isinstance(a, FormulaValue) or a.index > b.index


def _unchanged(
    name: str, a: FormulaValue | float, b: FormulaValue | float
) -> FormulaValue | float | None:
    """What multiplying by one, adding nothing and the like leave as it is."""
    if isinstance(b, FormulaValue):
        if isinstance(a, FormulaValue):
            return None
        if name in ("multiply", "divide"):
            return 0.0 if a == 0.0 else b if a == 1.0 and name == "multiply" else None
        return b if a == 0.0 and name == "add" else None
    if name in ("multiply", "divide"):
        return a if b == 1.0 else 0.0 if b == 0.0 and name == "multiply" else None
    return a if b == 0.0 and name in ("add", "subtract") else None


@final
@dataclass(frozen=True)
class Compiled:
    """Steps in order.

    Attributes:
        constants: of places right after the inputs.
        registers: that values take: those of values that nobody needs any more are taken again.
        numbers, arrays: (operation, place of its result, places of its arguments).
        results: places of the results.
    """

    constants: tuple[float, ...]
    registers: int
    numbers: tuple[tuple[Callable[[Any, Any], Any], int, int, int], ...]
    arrays: tuple[tuple[Callable[[Any, Any], Any], int, int, int], ...]
    results: tuple[int, ...]

    def evaluate(self, inputs: Sequence[Number]) -> list[Number]:
        """The results for numbers, or for arrays of shape (rows,); constants are numbers."""
        steps = self.arrays if inputs[0].__class__ is np.ndarray else self.numbers
        registers = [*inputs, *self.constants]
        registers += [0.0] * (self.registers - len(registers))
        for do, to, a, b in steps:
            registers[to] = do(registers[a], registers[b])
        return [registers[result] for result in self.results]


def _with_registers(
    formula: Formula, needed_steps: list[int], results: Sequence[FormulaValue | float]
) -> Compiled:
    constants: dict[float, int] = {}

    def constant(x: float) -> int:
        return constants.setdefault(x, formula.inputs + len(constants))

    for index in needed_steps:
        for x in formula.steps[index][1:]:
            if isinstance(x, float):
                constant(x)
    ends = {each.index for each in results if isinstance(each, FormulaValue)}
    for each in results:
        if not isinstance(each, FormulaValue):
            constant(float(each))
    last = {
        x: n
        for n, index in enumerate(needed_steps)
        for x in formula.steps[index][1:]
        if isinstance(x, int)
    }
    position = {index: index for index in range(formula.inputs)}
    free: list[int] = []
    positions = formula.inputs + len(constants)
    steps: list[tuple[str, int, int, int]] = []
    for n, index in enumerate(needed_steps):
        name, *arguments = formula.steps[index]
        taken = [constant(x) if isinstance(x, float) else position[x] for x in arguments]
        done = {x for x in arguments if isinstance(x, int) and last[x] == n} - ends
        free += sorted(position[x] for x in done if x >= formula.inputs)
        if free:
            position[index] = free.pop()
        else:
            position[index], positions = positions, positions + 1
        steps.append((name, position[index], taken[0], taken[1]))
    return Compiled(
        constants=tuple(constants),
        registers=positions,
        numbers=tuple((_NUMBERS[name], to, a, b) for name, to, a, b in steps),
        arrays=tuple((_ARRAYS[name], to, a, b) for name, to, a, b in steps),
        results=tuple(
            position[x.index] if isinstance(x, FormulaValue) else constant(float(x))
            for x in results
        ),
    )
