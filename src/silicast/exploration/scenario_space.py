"""A space of scenarios: a base, fields that vary, and what may not stand together.

docs/how-to/sweep-a-space.md describes the file.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from silicast.core.decode import Strict, decode, read_toml
from silicast.core.errors import SilicastError, errors_located, over_limit, unknown_name
from silicast.core.hashing import content_hash
from silicast.core.numerics import F64, I64
from silicast.exploration.levels import level_value, levels_of
from silicast.exploration.space import LISTED, Parameter, Space, Value

PAGE = "docs/how-to/sweep-a-space.md"
MOST_POINTS = 100_000_000
AT_ONCE = 1 << 14
"""Points that are laid out together."""
Bound = float | str | list[str]


class AxisTable(Strict, frozen=True):
    """``[[axis]]``: a ``field`` with a list of ``values``, or a ``range`` with a ``step`` or
    ``factor``; ``fields`` move together, each value a list with one entry a field.
    """

    field: str = ""
    fields: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    range: tuple[float, float] | None = None
    step: float | None = None
    factor: float | None = None
    when: dict[str, list[Any]] = {}


class ConstraintTable(Strict, frozen=True):
    """``[[constraint]]``: ``forbid`` = values of fields that may not stand together, or a limit on
    the ``product`` of fields: a number, or the product of other fields.
    """

    forbid: dict[str, list[Any]] = {}
    product: tuple[str, ...] = ()
    at_most: Bound | None = None
    at_least: Bound | None = None
    equals: Bound | None = None
    divides: Bound | None = None
    multiple_of: Bound | None = None


class SweepFile(Strict, frozen=True):
    """Content of a file of a sweep."""

    scenario: dict[str, Any]
    axis: tuple[AxisTable, ...]
    format: Literal[1] = 1
    constraint: tuple[ConstraintTable, ...] = ()


LIMITS = ("at_most", "at_least", "equals", "divides", "multiple_of")
_HOLDS = {
    "at_most": lambda value, bound: value <= bound,
    "at_least": lambda value, bound: value >= bound,
    "equals": lambda value, bound: value == bound,
    "divides": lambda value, bound: (value != 0) & (bound % np.where(value == 0, 1, value) == 0),
    "multiple_of": lambda value, bound: (
        (bound != 0) & (value % np.where(bound == 0, 1, bound) == 0)
    ),
}


@final
@dataclass(frozen=True)
class ProductLimit:
    """A limit on a product of fields.

    Attributes:
        kind: one of :data:`LIMITS`.
        bound: a number, or fields whose product it is.
        text: the constraint in words, as points that break it are counted by.
    """

    product: tuple[str, ...]
    kind: str
    bound: float | tuple[str, ...]
    text: str


@final
@dataclass(frozen=True)
class ScenarioPoint:
    """One combination.

    Attributes:
        code: its number in the space.
        fields: dotted field -> value.
    """

    code: int
    fields: Mapping[str, Value]


@final
@dataclass(frozen=True)
class ScenarioSpace:
    """Scenarios that differ in some fields.

    Attributes:
        base: fields that all have.
        space: an axis is a parameter named by its field, or by its fields with commas.
        limits: on products of fields; ``forbidden`` of the space are the others, in words in
            ``rules``.
    """

    base: Mapping[str, Any]
    space: Space
    limits: tuple[ProductLimit, ...] = ()
    rules: tuple[str, ...] = ()
    file: str = field(default="", compare=False)

    @property
    def rows(self) -> int:
        """Combinations, legal or not."""
        return self.space.rows

    @cached_property
    def identity(self) -> str:
        """A hash of all that it is."""
        return content_hash(
            {
                "base": self.base,
                "axes": [
                    [p.name, list(p.values), {k: list(v) for k, v in p.when.items()}]
                    for p in self.space.parameters
                ],
                "forbid": [
                    {k: list(v) for k, v in choices.items()} for choices in self.space.forbidden
                ],
                "limits": [[list(limit.product), limit.kind, limit.bound] for limit in self.limits],
            }
        )

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Fields that vary, in order."""
        return tuple(path for p in self.space.parameters for path in p.paths)

    def levels(self, name: str) -> list[Value]:
        """All values of a field that varies, each once."""
        values: dict[str, Value] = {}
        for p in self.space.parameters:
            if name in p.paths:
                for value in p.values:
                    level = _of_field(p, value, name)
                    values[repr(level)] = level
        return list(values.values())

    def points(self, shard: int = 0, shards: int = 1) -> Iterator[list[ScenarioPoint]]:
        """Legal points in order, some at a time; of ``shards`` parts the ``shard``-th, from 0."""
        for codes, designs, broken in self._chunks(shard, shards):
            chosen = np.flatnonzero(broken < 0)
            if len(chosen):
                yield [ScenarioPoint(int(codes[row]), self._fields(designs[row])) for row in chosen]

    def counts(self, shard: int = 0, shards: int = 1) -> tuple[int, Counter[str]]:
        """Legal points, and the others by the first constraint that each breaks; of a part."""
        legal, reasons = 0, Counter[str]()
        names = [*self.rules, *(limit.text for limit in self.limits)]
        for _, _, broken in self._chunks(shard, shards):
            legal += int((broken < 0).sum())
            for index, count in zip(
                *np.unique(broken[broken >= 0], return_counts=True), strict=True
            ):
                reasons[names[int(index)]] += int(count)
        return legal, reasons

    def check(self) -> None:
        """Refuses a space that no legal point is in.

        Raises:
            SilicastError: more points than are answered, or constraints that leave none: names
                the one, or the pair that contradicts each other.
        """
        if self.rows > MOST_POINTS:
            raise over_limit(
                f"the space has {self.rows:,} points, more than {MOST_POINTS:,}",
                "axis",
                "give larger steps, or fewer axes",
                file=self.file,
            )
        if any(len(broken) and (broken < 0).any() for _, _, broken in self._chunks()):
            return
        names = [*self.rules, *(limit.text for limit in self.limits)]
        codes = np.arange(min(self.rows, LISTED), dtype=np.int64)
        satisfied = np.stack([~column for column in self._breaks(self.space.decode(codes))])
        for (first, satisfied_first), (
            second,
            satisfied_second,
        ) in itertools.combinations_with_replacement(enumerate(satisfied), 2):
            if not (satisfied_first & satisfied_second).any():
                pair = dict.fromkeys((names[first], names[second]))
                raise SilicastError(
                    "no point keeps " + " and ".join(f"'{name}'" for name in pair),
                    field="constraint",
                    file=self.file,
                    hint="relax one of them" if len(pair) > 1 else "relax it, or widen its axes",
                )
        raise SilicastError(
            "no point keeps all constraints",
            field="constraint",
            file=self.file,
            hint="relax one of them",
        )

    def _chunks(self, shard: int = 0, shards: int = 1) -> Iterator[tuple[I64, I64, I64]]:
        """Codes of different points, their levels, and the constraint each breaks; -1 = none."""
        for start in range(shard, self.rows, AT_ONCE * shards):
            end = min(start + AT_ONCE * shards, self.rows)
            codes = np.arange(start, end, shards, dtype=np.int64)
            designs = self.space.decode(codes)
            if any(p.when for p in self.space.parameters):
                same = self.space.encode(self.space.canonical(designs)) == codes
                codes, designs = codes[same], designs[same]
            broken = np.full(len(codes), -1, dtype=np.int64)
            for number, breaks in reversed([*enumerate(self._breaks(designs))]):
                broken[breaks] = number
            yield codes, designs, broken

    def _breaks(self, designs: I64) -> list[NDArray[np.bool_]]:
        """Which points break each constraint."""
        breaks = [
            ~Space(self.space.parameters, (rule,)).allowed(designs) for rule in self.space.forbidden
        ]
        for limit in self.limits:
            value = self._product(limit.product, designs)
            bound = (
                self._product(limit.bound, designs)
                if isinstance(limit.bound, tuple)
                else np.full(len(designs), limit.bound)
            )
            breaks.append(~_HOLDS[limit.kind](value, bound))
        return breaks

    def _product(self, names: Sequence[str], designs: I64) -> F64:
        product = np.ones(len(designs))
        for name in names:
            product = product * self._numbers(name, designs)
        return product

    def _numbers(self, name: str, designs: I64) -> F64:
        """A field's value in each point; 1 where its axis does not count and the base has none."""
        default = _at(self.base, name)
        column = np.full(len(designs), 1.0 if default is None else float(default))
        active = self.space.active(designs)
        for index, p in enumerate(self.space.parameters):
            if name in p.paths:
                table = np.array([float(_of_field(p, value, name)) for value in p.values])  # type: ignore[arg-type]
                column = np.where(active[:, index], table[designs[:, index]], column)
        return column

    def _fields(self, design: I64) -> dict[str, Value]:
        settings = self.space.settings(design)
        return {
            path: _of_field(p, settings[p.name], path)
            for p in self.space.parameters
            if p.name in settings
            for path in p.paths
        }


def read_scenario_space(path: Path) -> ScenarioSpace:
    """Reads the file of a sweep.

    Raises:
        SilicastError: it cannot be read, or an axis or constraint in it makes no sense; the field
            is named.
    """
    content = decode(read_toml(path, PAGE), SweepFile, file=str(path), page=PAGE)
    with errors_located(file=str(path)):
        return scenario_space(content, str(path))


def scenario_space(content: SweepFile, file: str = "") -> ScenarioSpace:
    """The space of a decoded file; raises as :func:`read_scenario_space`.

    >>> axes = (AxisTable("device", values=("h100", "a100")),
    ...         AxisTable("parallel.tp", values=(1, 2)))
    >>> limit = ConstraintTable(product=("parallel.tp",), at_most=1)
    >>> space = scenario_space(SweepFile({"task": "inference"}, axes, constraint=(limit,)))
    >>> [dict(point.fields) for points in space.points() for point in points]
    [{'device': 'h100', 'parallel.tp': 1}, {'device': 'a100', 'parallel.tp': 1}]
    """
    if "id" in content.scenario:
        raise SilicastError("each point has its own", field="scenario.id", hint="leave it out")
    if not content.axis:
        raise SilicastError("nothing varies", field="axis", hint="give one [[axis]]")
    axes: list[Parameter] = []
    for number, axis in enumerate(content.axis):
        where = f"axis[{number}]"
        if bool(axis.field) == bool(axis.fields):
            raise SilicastError("expected one of field and fields", field=where)
        paths = axis.fields or (axis.field,)
        for path in paths:
            if any(path in other.paths for other in axes):
                raise SilicastError(f"a second axis of {path}", field=where)
        axes.append(Parameter(", ".join(paths), _axis_levels(axis, paths, where), paths))
    parameters = tuple(
        replace(axis_table, when=_rule(axis.when, axes, f"axis[{number}].when"))
        for number, (axis, axis_table) in enumerate(zip(content.axis, axes, strict=True))
    )
    forbidden, rules, limits = [], [], []
    for number, constraint in enumerate(content.constraint):
        where = f"constraint[{number}]"
        if bool(constraint.forbid) == bool(constraint.product):
            raise SilicastError("expected one of forbid and product", field=where)
        if constraint.forbid:
            forbidden.append(_rule(constraint.forbid, axes, f"{where}.forbid"))
            rules.append(
                "not " + " with ".join(f"{k} {_words(v)}" for k, v in constraint.forbid.items())
            )
            continue
        limits += _limits(constraint, where)
    space = ScenarioSpace(
        content.scenario, Space(parameters, tuple(forbidden)), tuple(limits), tuple(rules), file
    )
    for limit in limits:
        for name in (*limit.product, *(limit.bound if isinstance(limit.bound, tuple) else ())):
            _check_number(space, name)
    return space


def _axis_levels(axis: AxisTable, paths: tuple[str, ...], where: str) -> tuple[Value, ...]:
    if not axis.values and axis.range is None:
        raise SilicastError("is empty", field=f"{where}.values", hint="give values or a range")
    levels = levels_of(axis, where)
    if axis.fields:
        for value in levels:
            if not isinstance(value, tuple) or len(value) != len(paths):
                raise SilicastError(
                    f"expected a list of {len(paths)}, one for each field, found {value!r}",
                    field=f"{where}.values",
                )
    return levels


def _rule(
    rule: Mapping[str, list[Any]], axes: Sequence[Parameter], where: str
) -> dict[str, tuple[int, ...]]:
    """Field -> values, as axis -> numbers of its levels.

    Raises:
        SilicastError: no axis of a field, a value that it never takes, or no value.
    """
    table: dict[str, tuple[int, ...]] = {}
    for name, wanted in rule.items():
        axis = next((axis_table for axis_table in axes if name in axis_table.paths), None)
        if axis is None:
            fields = ", ".join(path for axis_table in axes for path in axis_table.paths)
            raise unknown_name(f"no axis of {name!r}", where, f"axes are {fields}")
        column = [_of_field(axis, value, name) for value in axis.values]
        values = [level_value(value, where) for value in wanted]
        for value in values:
            if value not in column:
                shown = ", ".join(str(value) for value in column[:20])
                raise SilicastError(
                    f"{name} is never {value!r}", field=f"{where}.{name}", hint=f"it is {shown}"
                )
        if not values:
            raise SilicastError("holds no value", field=f"{where}.{name}")
        indices = (index for index, value in enumerate(column) if value in values)
        earlier = table.get(axis.name, tuple(range(len(column))))
        table[axis.name] = tuple(index for index in indices if index in earlier)
    return table


def _limits(table: ConstraintTable, where: str) -> list[ProductLimit]:
    limits = []
    for kind in LIMITS:
        bound = getattr(table, kind)
        if bound is None:
            continue
        fields = (bound,) if isinstance(bound, str) else bound
        value = tuple(fields) if isinstance(fields, list | tuple) else float(fields)
        shown = " x ".join(value) if isinstance(value, tuple) else f"{value:g}"
        text = f"{' x '.join(table.product)} {kind.replace('_', ' ')} {shown}"
        limits.append(ProductLimit(table.product, kind, value, text))
    if not limits:
        raise SilicastError("states no limit", field=where, hint=f"one of {', '.join(LIMITS)}")
    return limits


def _check_number(space: ScenarioSpace, name: str) -> None:
    values = space.levels(name) if name in space.fields else [_at(space.base, name)]
    for value in values:
        if value is None:
            raise unknown_name(
                f"{name} is no axis and not in the scenario",
                "constraint",
                f"axes are {', '.join(space.fields)}",
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SilicastError(f"{name} = {value!r} is no number", field="constraint")


def _at(table: Mapping[str, Any], name: str) -> Any:
    value: Any = table
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _of_field(parameter: Parameter, value: Value, path: str) -> Value:
    """What one field of an axis is set to."""
    if len(parameter.paths) == 1:
        return value
    assert isinstance(value, tuple)
    return value[parameter.paths.index(path)]


def _words(values: Sequence[Any]) -> str:
    return " or ".join(str(value) for value in values)
