"""The parameter file of a search: a base design, what may change in it, what counts.

docs/how-to/search-designs.md describes every field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from silicast.core.decode import Strict, decode, read_toml
from silicast.core.errors import SilicastError, unknown_name
from silicast.exploration.history import MetricObjective
from silicast.exploration.space import Parameter, Space, Value

MOST_LEVELS = 100_000


class ParameterTable(Strict, frozen=True):
    """``[[parameter]]``: a list of ``values``, or a ``range`` with a ``step`` or ``factor``."""

    name: str
    path: str = ""
    paths: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    range: tuple[float, float] | None = None
    step: float | None = None
    factor: float | None = None
    when: dict[str, list[Any]] = {}


class LawTable(Strict, frozen=True):
    """``[[law]]``: a number of the base that moves with a parameter, by a power of it."""

    path: str
    by: str
    power: float


class ObjectiveTable(Strict, frozen=True):
    """``[[objective]]``: a metric that counts."""

    metric: str
    goal: Literal["min", "max"] = "min"
    reference: float | None = None


class EvaluationTable(Strict, frozen=True):
    """``[evaluation]``: how mappings are chosen."""

    objective: Literal["energy", "latency", "edp"] = "energy"
    effort: int = 500_000
    mappings: Literal["search", "all"] = "search"


class DieTable(Strict, frozen=True):
    """``[die]``: what the metric ``die_cost_usd`` takes."""

    node_nm: float
    wafer_usd: float | None = None
    defects_per_cm2: float | None = None


class SpaceFile(Strict, frozen=True):
    """Content of a file of a search space."""

    base: str
    parameter: tuple[ParameterTable, ...]
    objective: tuple[ObjectiveTable, ...]
    format: Literal[1] = 1
    law: tuple[LawTable, ...] = ()
    forbid: tuple[dict[str, list[Any]], ...] = ()
    caps: dict[str, float] = {}
    layer: tuple[dict[str, Any], ...] = ()
    workload: str = ""
    # Left out of the hash where they are not given, so that older files of results go on.
    scenario: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    die: DieTable | msgspec.UnsetType = msgspec.UNSET
    evaluation: EvaluationTable = EvaluationTable()


@final
class ReadSpace(msgspec.Struct, frozen=True):
    """A decoded file with its space.

    Attributes:
        content: of the file.
        space, objectives: made of it.
        file: its path.
    """

    content: SpaceFile
    space: Space
    objectives: tuple[MetricObjective, ...]
    file: str

    @property
    def scenario(self) -> dict[str, Any]:
        """What a whole model is asked; empty = layers are mapped."""
        return {} if self.content.scenario is msgspec.UNSET else self.content.scenario

    @property
    def die(self) -> DieTable | None:
        """Inputs of the cost of a die."""
        return None if self.content.die is msgspec.UNSET else self.content.die


def read_space(path: Path) -> ReadSpace:
    """Reads a parameter file.

    Raises:
        SilicastError: it cannot be read, or a range, condition or name in it makes no sense; the
            field is named.
    """
    return space_of(read_toml(path), str(path))


def space_of(table: Mapping[str, Any], file: str = "") -> ReadSpace:
    """As :func:`read_space`, of a decoded file."""
    content = decode(table, SpaceFile, file=file, page="docs/how-to/search-designs.md")
    try:
        return ReadSpace(content, _space(content), _objectives(content), file)
    except SilicastError as error:
        raise error.located(file=file) from None


def _objectives(content: SpaceFile) -> tuple[MetricObjective, ...]:
    if not content.objective:
        raise SilicastError("nothing counts", field="objective", hint="give one [[objective]]")
    names = [each.metric for each in content.objective]
    for name in names:
        if names.count(name) > 1:
            raise SilicastError(f"{name} is given twice", field="objective")
    return tuple(
        MetricObjective(each.metric, each.goal == "max", each.reference)
        for each in content.objective
    )


def _space(content: SpaceFile) -> Space:
    levels: dict[str, tuple[Value, ...]] = {}
    for each in content.parameter:
        where = f"parameter.{each.name}"
        if each.name in levels:
            raise SilicastError("a second parameter of this name", field=where)
        if bool(each.path) == bool(each.paths):
            raise SilicastError("expected one of path and paths", field=where)
        levels[each.name] = _levels(each, where)
    parameters = tuple(
        Parameter(
            each.name,
            levels[each.name],
            each.paths or (each.path,),
            _rule(each.when, levels, f"parameter.{each.name}.when"),
        )
        for each in content.parameter
    )
    forbidden = tuple(
        _rule(rule, levels, f"forbid[{number}]") for number, rule in enumerate(content.forbid)
    )
    for number, law in enumerate(content.law):
        if law.by not in levels:
            raise unknown_name(
                f"no parameter {law.by!r}", f"law[{number}].by", f"there are {', '.join(levels)}"
            )
    return Space(parameters, forbidden)


def _levels(table: ParameterTable, where: str) -> tuple[Value, ...]:
    if bool(table.values) == (table.range is not None):
        raise SilicastError("expected one of values and range", field=where)
    if table.values:
        result = tuple(_value(value, where) for value in table.values)
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


def _stepped(table: ParameterTable, low: float, high: float, where: str) -> list[float]:
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
        raise SilicastError(
            f"makes {count} levels, at most {MOST_LEVELS} are taken", kind="limit", field=where
        )


def _whole(value: float) -> Value:
    """Counts stay whole numbers: a mesh has no fractions."""
    near = round(value)
    return near if math.isclose(value, near, rel_tol=1e-12) else value


def _value(value: Any, where: str) -> Value:
    if isinstance(value, list | tuple):
        return tuple(_value(each, where) for each in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise SilicastError(
        f"expected a number, a word or a list, found {type(value).__name__}", field=where
    )


def _rule(
    rule: Mapping[str, list[Any]], levels: Mapping[str, tuple[Value, ...]], where: str
) -> dict[str, tuple[int, ...]]:
    table = {}
    for name, wanted in rule.items():
        if name not in levels:
            raise unknown_name(f"no parameter {name!r}", where, f"there are {', '.join(levels)}")
        indices = []
        for value in wanted:
            known = _value(value, where)
            if known not in levels[name]:
                shown = ", ".join(str(each) for each in levels[name][:20])
                raise SilicastError(
                    f"{name} is never {value!r}", field=f"{where}.{name}", hint=f"it is {shown}"
                )
            indices.append(levels[name].index(known))
        if not indices:
            raise SilicastError("holds no value", field=f"{where}.{name}")
        table[name] = tuple(indices)
    return table
