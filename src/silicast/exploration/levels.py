"""Levels of a parameter of a space: a list of values, or a range by steps or by factors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from silicast.core.errors import SilicastError, over_limit, unknown_name
from silicast.exploration.space import Value

MOST_LEVELS = 100_000


class LevelSource(Protocol):
    """A table of a file that states levels."""

    @property
    def values(self) -> tuple[Any, ...]: ...

    @property
    def range(self) -> tuple[float, float] | None: ...

    @property
    def step(self) -> float | None: ...

    @property
    def factor(self) -> float | None: ...


def levels_of(table: LevelSource, where: str) -> tuple[Value, ...]:
    """The levels that a table states; numbers ascend.

    Args:
        where: the table's path in its file, for errors.

    Raises:
        SilicastError: both or neither of values and range, a value twice, or a range that holds
            nothing or too much.
    """
    if bool(table.values) == (table.range is not None):
        raise SilicastError("expected one of values and range", field=where)
    if table.values:
        result = tuple(level_value(value, where) for value in table.values)
        if len(set(result)) < len(result):
            raise SilicastError("a value is given twice", field=f"{where}.values")
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in result)
        return tuple(sorted(result)) if numbers else result
    assert table.range is not None
    low, high = table.range
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise SilicastError(
            f"the range from {low:g} to {high:g} holds nothing",
            field=f"{where}.range",
            hint="give the smaller end first",
        )
    if (table.step is None) == (table.factor is None):
        raise SilicastError("a range has one of step and factor", field=where)
    return tuple(_whole(value) for value in _stepped(table, low, high, where))


def level_value(value: Any, where: str) -> Value:
    """A value of a file as a level: a number, a word, true or false, or a list of them."""
    if isinstance(value, list | tuple):
        return tuple(level_value(each, where) for each in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise SilicastError(
        f"expected a number, a word or a list, found {type(value).__name__}", field=where
    )


def rule_of(
    rule: Mapping[str, list[Any]], levels: Mapping[str, tuple[Value, ...]], where: str
) -> dict[str, tuple[int, ...]]:
    """Parameter -> values, as parameter -> numbers of its levels.

    Raises:
        SilicastError: an unknown parameter, a value that it never takes, or no value.
    """
    table = {}
    for name, wanted in rule.items():
        if name not in levels:
            raise unknown_name(f"no parameter {name!r}", where, f"there are {', '.join(levels)}")
        indices = []
        for value in wanted:
            level = level_value(value, where)
            if level not in levels[name]:
                shown = ", ".join(str(each) for each in levels[name][:20])
                raise SilicastError(
                    f"{name} is never {value!r}", field=f"{where}.{name}", hint=f"it is {shown}"
                )
            indices.append(levels[name].index(level))
        if not indices:
            raise SilicastError("holds no value", field=f"{where}.{name}")
        table[name] = tuple(indices)
    return table


def _stepped(table: LevelSource, low: float, high: float, where: str) -> list[float]:
    slack = 1e-9 * max(abs(low), abs(high))
    if table.step is not None:
        if not table.step > 0:
            raise SilicastError(
                f"expected more than 0, found {table.step:g}", field=f"{where}.step"
            )
        count = int((high - low + slack) / table.step) + 1
        _check_count(count, f"{where}.step")
        return [low + number * table.step for number in range(count)]
    assert table.factor is not None
    if not (table.factor > 1 and low > 0):
        raise SilicastError(
            "a range by factor starts above 0 and has a factor above 1", field=f"{where}.factor"
        )
    count = int(math.log(high / low) / math.log(table.factor) + 1e-9) + 1
    _check_count(count, f"{where}.factor")
    return [low * table.factor**number for number in range(count)]


def _check_count(count: int, where: str) -> None:
    if count > MOST_LEVELS:
        raise over_limit(f"makes {count} levels, at most {MOST_LEVELS} are taken", where)


def _whole(value: float) -> Value:
    """Counts stay whole numbers: a mesh has no fractions."""
    near = round(value)
    return near if math.isclose(value, near, rel_tol=1e-12) else value
