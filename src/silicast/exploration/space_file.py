"""The parameter file of a search: a base design, what may change in it, what counts.

docs/how-to/search-designs.md describes every field.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import msgspec

from silicast.core.decode import Strict, decode, read_toml
from silicast.core.errors import SilicastError, errors_located, unknown_name
from silicast.exploration.history import MetricObjective
from silicast.exploration.levels import levels_of, rule_of
from silicast.exploration.space import Parameter, Space, Value


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
    with errors_located(file=file):
        return ReadSpace(content, _space(content), _objectives(content), file)


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
        levels[each.name] = levels_of(each, where)
    parameters = tuple(
        Parameter(
            each.name,
            levels[each.name],
            each.paths or (each.path,),
            rule_of(each.when, levels, f"parameter.{each.name}.when"),
        )
        for each in content.parameter
    )
    forbidden = tuple(
        rule_of(rule, levels, f"forbid[{number}]") for number, rule in enumerate(content.forbid)
    )
    for number, law in enumerate(content.law):
        if law.by not in levels:
            raise unknown_name(
                f"no parameter {law.by!r}", f"law[{number}].by", f"there are {', '.join(levels)}"
            )
    return Space(parameters, forbidden)
