"""What designs of a parameter file come to: the base changed, checked, and its layers mapped.

Parameters are dotted paths into its tables, as ``level.buffer.port[0].words_per_cycle``: in a list
of tables a word picks the one whose ``name`` (or ``level``) it is, ``[i]`` the i-th.
"""

from __future__ import annotations

import copy
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from silicast import __version__
from silicast.accelerator.counting.layers import EinsumLayer, distinct
from silicast.accelerator.design.architecture_file import Design, build, design_path
from silicast.accelerator.design.check import check_architecture
from silicast.accelerator.mapper.task import sized
from silicast.core.decode import read_toml
from silicast.core.errors import SilicastError, errors_at, unknown_name
from silicast.core.hashing import content_hash
from silicast.core.numerics import I64
from silicast.exploration.history import DesignOutcome
from silicast.exploration.layer_mappers import CountedOnce, Mapper, SearchedMappings
from silicast.exploration.layer_metrics import (
    METRICS,
    OF_THE_CHIP,
    of_the_chip,
    totals,
    without_area,
)
from silicast.exploration.problem import Evaluation, SearchProblem, over_a_cap
from silicast.exploration.space import Value
from silicast.exploration.space_file import DieTable, LawTable, ReadSpace

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"[^.\[\]]+(\[\d+\]|\.[^.\[\]]+)*")
NAMES = ("name", "level")
"""Fields that tell tables of a list apart."""


def value_at(table: Any, path: str) -> Any:
    """What stands at a path.

    Raises:
        SilicastError: nothing does; names what is there instead.

    >>> value_at({"level": [{"name": "buffer", "mesh": [4, 8]}]}, "level.buffer.mesh[1]")
    8
    """
    position = table
    for step in _steps(path):
        position = _entered(position, step, path)
    return position


def put(table: Any, path: str, value: Any) -> None:
    """Sets what stands at a path, or adds it to the table that the path leads to.

    Raises:
        SilicastError: the path leads nowhere.
    """
    *way, last = _steps(path)
    position = table
    for step in way:
        position = _entered(position, step, path)
    named = isinstance(position, dict) and isinstance(last, str)
    numbered = isinstance(position, list) and isinstance(last, int) and last < len(position)
    if not (named or numbered):
        raise _nowhere(path, last, position)
    position[last] = value


def _steps(path: str) -> Iterator[str | int]:
    if not _PATH.fullmatch(path):
        raise SilicastError(
            f"expected a path like level.buffer.capacity_kib, found {path!r}", field="path"
        )
    for word, index in _STEP.findall(path):
        yield word or int(index)


def _entered(position: Any, step: str | int, path: str) -> Any:
    if isinstance(position, dict) and step in position:
        return position[step]
    if isinstance(position, list):
        if isinstance(step, int) and step < len(position):
            return position[step]
        for entry in position:
            if isinstance(entry, dict) and step in {entry.get(name) for name in NAMES}:
                return entry
    raise _nowhere(path, step, position)


def _nowhere(path: str, step: str | int, position: Any) -> SilicastError:
    names: list[str] = []
    if isinstance(position, dict):
        names = sorted(position)
    elif isinstance(position, list):
        names = [
            next((str(entry[name]) for name in NAMES if name in entry), f"[{number}]")
            if isinstance(entry, dict)
            else f"[{number}]"
            for number, entry in enumerate(position)
        ]
    return unknown_name(
        f"the base has no {step!r} there", path, f"there are {', '.join(names) or 'no fields'}"
    )


@final
class ChangedBase:
    """The base of a parameter file, and the designs that its parameters make of it."""

    def __init__(self, read: ReadSpace) -> None:
        self._space = read.space
        self._laws = read.content.law
        base = read.content.base
        path = Path(read.file).parent / base if base.endswith(".toml") else design_path(base)
        self.table = read_toml(path)
        self.file = str(path)
        self._check(read)

    def design(self, levels: I64) -> Design:
        """The design of some level numbers, not yet checked.

        Raises:
            SilicastError: a parameter sets what an architecture file has not.
        """
        return build(self.changed(levels), self.file)

    def changed(self, levels: I64) -> dict[str, Any]:
        """The architecture file of some level numbers, decoded.

        Raises:
            SilicastError: a parameter sets a value that the file does not have.
        """
        settings = self._space.settings(levels)
        table = copy.deepcopy(self.table)
        for parameter in self._space.parameters:
            if parameter.name in settings:
                for path in parameter.paths:
                    put(table, path, _plain(settings[parameter.name]))
        for law in self._laws:
            if law.by in settings:
                self._apply(law, settings[law.by], table)
        return table

    def variants(self) -> Iterator[Design]:
        """The base, and the designs that differ from it in one parameter."""
        zeros = np.zeros(len(self._space.parameters), dtype=np.int64)
        for i, levels in enumerate(self._space.levels):
            for level in range(levels):
                design = zeros.copy()
                design[i] = level
                yield self.design(design)

    def _apply(self, law: LawTable, value: Value, table: dict[str, Any]) -> None:
        """A number of the base, times how much its parameter grew to the law's power."""
        parameter = next(p for p in self._space.parameters if p.name == law.by)
        start = float(value_at(self.table, parameter.paths[0]))
        assert isinstance(value, int | float)
        put(table, law.path, value_at(table, law.path) * (value / start) ** law.power)

    def _check(self, read: ReadSpace) -> None:
        """Every parameter once at every level, so that a wrong path is found at once.

        Raises:
            SilicastError: a path or a law leads nowhere; a level is no value of its field.
        """
        for number, law in enumerate(self._laws):
            parameter = next(p for p in self._space.parameters if p.name == law.by)
            where = f"law[{number}]"
            for path in (law.path, parameter.paths[0]):
                located = _located(value_at, (self.table, path), where, read.file)
                if (
                    isinstance(located, bool)
                    or not isinstance(located, int | float)
                    or located <= 0
                ):
                    raise SilicastError(
                        f"a law needs a number above 0 at {path}, found {located!r}",
                        field=where,
                        file=read.file,
                    )
            if not parameter.is_ordered:
                raise SilicastError(f"{law.by} is no number", field=where, file=read.file)
        for parameter in self._space.parameters:
            for value in parameter.values:
                table = copy.deepcopy(self.table)
                where = f"parameter.{parameter.name}"
                for path in parameter.paths:
                    _located(put, (table, path, _plain(value)), where, read.file)
                _located(build, (table, self.file), where, read.file)


def _located(call: Any, arguments: Sequence[Any], where: str, file: str) -> Any:
    with errors_at(where, file):
        return call(*arguments)


def _plain(value: Value) -> Any:
    """As a TOML file holds it."""
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


class DesignEvaluation(Evaluation):
    """Metrics of what runs on a design, beside those of its chip."""

    def __init__(self, base: ChangedBase, caps: Mapping[str, float], die: DieTable | None) -> None:
        self._base, self._caps, self._die = base, caps, die

    @abstractmethod
    def running(self, design: I64, built: Design) -> dict[str, float]:
        """Metrics of what runs on it.

        Raises:
            SilicastError: of kind "unsupported" where the design cannot run it.
        """

    @final
    def outcome(self, design: I64) -> DesignOutcome:
        """Metrics of one design, or why it is none."""
        built = self._base.design(design)
        for problem in check_architecture(built.architecture):
            return DesignOutcome(cause=f"no architecture: {problem.field}")
        try:
            of_chip = of_the_chip(built.architecture, self._die)
        except SilicastError as error:
            return DesignOutcome(cause=f"no die: {error.field}")
        if cause := over_a_cap(self._caps, of_chip):
            return DesignOutcome(cause=cause)
        try:
            metrics = self.running(design, built) | of_chip
        except SilicastError as error:
            cause = infeasibility(error)
            if not cause:
                raise
            return DesignOutcome(cause=cause)
        cause = over_a_cap(self._caps, metrics)
        return DesignOutcome(cause=cause) if cause else DesignOutcome(metrics)


@final
class LayerEvaluation(DesignEvaluation):
    """Metrics of layers that run one after the other."""

    def __init__(
        self,
        base: ChangedBase,
        layers: Sequence[EinsumLayer],
        mapper: Mapper,
        caps: Mapping[str, float],
        die: DieTable | None,
    ) -> None:
        super().__init__(base, caps, die)
        self._layers, self._mapper = tuple(layers), mapper

    def running(self, design: I64, built: Design) -> dict[str, float]:  # noqa: ARG002
        """Totals of all layers."""
        cycles = energy_pj = points = 0.0
        for number, layer in enumerate(self._layers):
            mapper = self._mapper(number, built)
            cycles += layer.count * mapper[0]
            energy_pj += layer.count * mapper[1]
            points += layer.count * layer.einsum.points
        return totals(built.architecture, cycles, energy_pj, points)


def infeasibility(error: SilicastError) -> str:
    """Why a design is none, of an error of its mapper; "" where the input is wrong instead."""
    if error.kind == "unsupported":
        return f"no mapping: {error.field}"
    return "no mapping: constraints" if error.field.startswith("constraints") else ""


def problem_of(read: ReadSpace) -> SearchProblem:
    """The search that a parameter file describes.

    Raises:
        SilicastError: the base, a path or a layer is wrong, or a metric is not known.
    """
    content = read.content
    base = ChangedBase(read)
    layers = _layers(read)
    check_metrics(read, base, METRICS)
    how = content.evaluation
    mapper: Mapper = (
        SearchedMappings(layers, how.objective, how.effort)
        if how.mappings == "search"
        else CountedOnce(layers, how.objective, (each.architecture for each in base.variants()))
    )
    identity = content_hash(
        [__version__, content, base.table, [[str(e.einsum), e.count] for e in layers]]
    )
    return SearchProblem(
        read.space,
        read.objectives,
        LayerEvaluation(base, layers, mapper, content.caps, read.die),
        identity,
        content.caps,
    )


def _layers(read: ReadSpace) -> tuple[EinsumLayer, ...]:
    layers = []
    for number, table in enumerate(read.content.layer):
        where = f"layer[{number}]"
        sizes = dict(table)
        op, count = sizes.pop("op", ""), sizes.pop("count", 1)
        name = str(sizes.pop("name", f"layer {number}"))
        if not isinstance(count, int) or count < 1:
            raise SilicastError(
                f"expected 1 or more, found {count!r}", field=f"{where}.count", file=read.file
            )
        einsum = _located(sized, (op, sizes), where, read.file)
        layers.append(EinsumLayer(name, einsum, count))
    if not layers:
        raise SilicastError(
            "nothing runs on the designs",
            field="layer",
            file=read.file,
            hint='give one [[layer]], such as op = "matmul", m = 64, n = 64, k = 64',
        )
    return distinct(layers)


def check_metrics(read: ReadSpace, base: ChangedBase, known: Sequence[str]) -> None:
    """Objectives and caps are of metrics that are ``known``, and the chip states what they take.

    Raises:
        SilicastError: one is not, by its field.
    """
    wanted = [(f"objective.{o.metric}", o.metric) for o in read.objectives]
    wanted += [(f"caps.{metric}", metric) for metric in read.content.caps]
    architecture = build(base.table, base.file).architecture
    for where, metric in wanted:
        if metric not in known:
            raise unknown_name(
                f"unknown metric {metric!r}", where, f"there are {', '.join(known)}", file=read.file
            )
        if metric in OF_THE_CHIP and (part := without_area(architecture)):
            raise SilicastError(
                f"{part} has no area_um2", field=where, file=base.file, hint="give it one"
            )
        if metric == "die_cost_usd" and read.die is None:
            raise SilicastError(
                "a die's cost needs its node",
                field=where,
                file=read.file,
                hint="give [die] node_nm",
            )
