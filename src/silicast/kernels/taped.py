"""Kernel formulas that are asked for again and again, run as tapes by the compiled core.

A formula (of a family, on a device, for a variant and the names of its sizes) serves a batch of
numbers and a batch of arrays. Once it was asked for often enough to pay for it, it is run with
symbols (:mod:`silicast.core.tracing`), and from then on the compiled core runs what it did. The
formulas stay the only source: what cannot be traced, or lists lengths of sequences, is answered by
them, and so is everything where there is no core. Bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from silicast.core import compiled_core
from silicast.core.remembered import RecentlyUsed
from silicast.core.xp import UntraceableError
from silicast.kernels.in_blocks import Lazy, field_names, joined, on_arrays
from silicast.workload.graphs.op import OpBatch

if TYPE_CHECKING:
    from silicast.core.tape import Tape
    from silicast.core.tracing import FormulaGraph

REQUESTS = 60
"""A tape is made when a setting was asked for so many numbers: a trace takes as long as these."""
OF_ARRAYS, ROWS = 4, 512
"""A call with arrays counts as so many numbers, and each of so many rows as one more."""
FEW = 24
"""Up to so many rows are run one by one."""
MOST = 4096
"""Settings that are kept, at most; at least half as many."""
ALIKE = frozenset(("shared_log_sd", "energy_log_sd"))
"""Fields that hold one number for all rows."""
ON_DEMAND = frozenset(("features", "choice"))
"""Fields that few readers need: the formula itself answers them."""


def forget() -> None:
    """Drops all tapes."""
    _settings.clear()


def run(
    key: tuple[Hashable, ...],
    formula: Callable[..., Any],
    batch: OpBatch,
    *further: Any,
    shared: Sequence[float] = (),
    constants: frozenset[str] = frozenset(),
    of_arrays: int = OF_ARRAYS,
) -> Any:
    """What a formula says of a batch, by its tape; None = it has none, and has to be asked itself.

    Args:
        key: everything that the formula depends on but the sizes in the batch.
        formula: takes a batch, and ``further``; returns a record of numbers, or of arrays.
        further: numbers, or arrays of shape (n,), beside the sizes.
        shared: numbers behind them, the same for all rows.
        constants: sizes that a tape holds for; rows that differ in them are answered by several.
        of_arrays: as so many requests a call with arrays counts, see :data:`OF_ARRAYS`.
    """
    if batch.ragged or not compiled_core.runs() or not _whole(batch):
        return None
    if constants and not batch.numbers:
        return _run_alike(key, formula, batch, further, shared, constants, of_arrays)
    setting = _setting(key, batch, constants)
    return setting.run(formula, batch, further, shared, constants, of_arrays)


def _setting(key: tuple[Hashable, ...], batch: OpBatch, constants: frozenset[str]) -> TapedSetting:
    """Of numbers, or of rows that are alike in what tapes hold for."""
    held = [int(np.ravel(size)[0]) for name, size in batch.dims.items() if name in constants]
    key = (*key, *batch.dims, *held)
    return _settings.get(key) or _settings.put(key, TapedSetting())


def _run_alike(
    key: tuple[Hashable, ...],
    formula: Callable[..., Any],
    batch: OpBatch,
    further: tuple[Any, ...],
    shared: Sequence[float],
    constants: frozenset[str],
    of_arrays: int,
) -> Any:
    """:func:`run` of rows, those together that are alike in what tapes hold for; None = some have
    no tape.
    """
    held = [size for name, size in batch.dims.items() if name in constants]
    if not len(batch):
        return None
    if not held:
        setting = _setting(key, batch, constants)
        return setting.run(formula, batch, further, shared, constants, of_arrays)
    _, group = np.unique(np.stack(held), axis=1, return_inverse=True)
    parts, answers = [], []
    for number in range(int(group.max(initial=-1)) + 1):
        rows = np.flatnonzero(group == number)
        alike, beside = batch.rows(rows), tuple(column[rows] for column in further)
        setting = _setting(key, alike, constants)
        answer = setting.run(formula, alike, beside, shared, constants, of_arrays)
        if answer is None:
            return None
        parts.append(rows)
        answers.append(answer)
    if len(answers) == 1:
        return answers[0]
    index = np.argsort(np.concatenate(parts))
    return on_arrays(joined(answers), lambda array: array[index])


def run_step(
    steps: Steps | None,
    position: int,
    formula: Callable[..., Any],
    batch: OpBatch,
    constants: frozenset[str],
) -> Any:
    """What a formula says of a batch of numbers, by the tape of a step of the clock or by itself.

    Args:
        steps: is filled. Who asks for clocks beside one asks for it again: half the requests do.
    """
    assert steps is not None
    setting = steps.get(position) or steps.setdefault(position, TapedSetting(REQUESTS // 2))
    answer = setting.run(formula, batch, (), (), constants)
    return formula(batch) if answer is None else answer


def _whole(batch: OpBatch) -> bool:
    """Whether all sizes are whole numbers, as tapes take them."""
    if batch.numbers:
        return all(isinstance(size, int) for size in batch.dims.values())
    return all(size.dtype.kind == "i" for size in batch.dims.values())


def traced(
    formula: Callable[..., Any], batch: OpBatch, further: int, constants: frozenset[str]
) -> tuple[FormulaGraph, Any]:
    """What a formula says of symbols that stand for the sizes of a batch, and their graph.

    Args:
        further: how many numbers it takes beside.
        constants: sizes that are not symbols, but those of the batch's first row.

    Raises:
        UntraceableError: what it does depends on sizes.
    """
    from silicast.core.tracing import FormulaGraph

    graph = FormulaGraph()
    sizes: Any = {
        name: int(np.ravel(size)[0]) if name in constants else graph.input(whole=True)
        for name, size in batch.dims.items()
    }
    more = [graph.input(whole=False) for _ in range(further)]
    return graph, formula(OpBatch(batch.family, batch.variant, sizes, numbers=True), *more)


@final
class TapedSetting:
    """One formula, and its tape once it is worth one."""

    __slots__ = ("_record", "_requests")

    def __init__(self, requests: int = 0) -> None:
        self._requests = requests
        self._record: TapedRecord | None = None

    def run(
        self,
        formula: Callable[..., Any],
        batch: OpBatch,
        further: tuple[Any, ...],
        shared: Sequence[float],
        constants: frozenset[str],
        of_arrays: int = OF_ARRAYS,
    ) -> Any:
        """What the formula says of a batch by its tape, None before there is one."""
        if self._record is None:
            if self._requests < 0:
                return None
            self._requests += 1 if batch.numbers else of_arrays + len(batch) // ROWS
            if self._requests < REQUESTS:
                return None
            try:
                count = len(further) + len(shared)
                self._record = TapedRecord.traced(formula, batch, count, constants)
            except (UntraceableError, ArithmeticError):
                self._requests = -1
                return None
        try:
            return self._record.evaluate(formula, batch, further, shared)
        except OverflowError:  # numbers that only Python holds
            return None


_settings: RecentlyUsed[Hashable, TapedSetting] = RecentlyUsed(MOST)
Steps: TypeAlias = dict[int, TapedSetting]
"""Position in :data:`~silicast.kernels.physics.held_clock.CLOCKS` -> what answers there; looked up
quicker than among all settings."""


@final
class TapedRecord:
    """A tape, and how its results make the record that the formula returns.

    Args:
        names: of the sizes that it takes.
        build: makes it of the results of one row, of the number of rows (None = numbers), and of
            what answers fields on demand.
    """

    def __init__(
        self,
        tape: Tape,
        names: Sequence[str],
        kinds: Sequence[str],
        build: Callable[[Any, int | None, Any], Any],
    ) -> None:
        self._tape, self._names, self._build = tape, names, build
        self._whole = [at for at, kind in enumerate(kinds) if kind == "whole"]

    @staticmethod
    def traced(
        formula: Callable[..., Any], batch: OpBatch, further: int, constants: frozenset[str]
    ) -> TapedRecord:
        """Of a formula for batches with such sizes.

        Raises:
            UntraceableError: what it does depends on sizes.
        """
        outputs: list[Any] = []
        graph, record = traced(formula, batch, further, constants)
        build = _builder(record, outputs)
        tape, kinds = graph.tape(outputs)
        names = [name for name in batch.dims if name not in constants]
        return TapedRecord(tape, names, kinds, build)

    def evaluate(
        self,
        formula: Callable[..., Any],
        batch: OpBatch,
        further: tuple[Any, ...],
        shared: Sequence[float],
    ) -> Any:
        """The record of a batch."""

        def evaluated(*path: str) -> Any:
            value = formula(batch, *further, *shared)
            for name in path:
                value = getattr(value, name)
            return value

        if batch.numbers:
            sizes: Any = [batch.dims[name] for name in self._names]
            results = self._tape.single([*sizes, *further, *shared])
            for at in self._whole:
                results[at] = np.float64(results[at]).view(np.int64).item()
            return self._build(results, None, evaluated)
        count, taken = len(batch), len(self._names)
        wide = taken + len(further) + (0 if count <= FEW else len(shared))
        values = np.empty((wide, count), dtype=np.int64)
        for at, name in enumerate(self._names):
            values[at] = batch.dims[name]
        for at, column in enumerate(further):
            values.view(np.float64)[taken + at] = column
        table = np.empty((self._tape.results, count))
        if count <= FEW:
            kinds = [np.int64] * taken + [np.float64] * len(further)
            lists = [row.view(kind).tolist() for row, kind in zip(values, kinds, strict=True)]
            for at, row in enumerate(zip(*lists, strict=True)):
                table[:, at] = self._tape.single([*row, *shared])
        else:
            values.view(np.float64)[wide - len(shared) :] = np.array(shared)[:, None]
            self._tape.rows(values, table, count)
        columns: list[Any] = list(table)
        for at in self._whole:
            columns[at] = columns[at].view(np.int64)
        return self._build(columns, count, evaluated)


def _called(evaluated: Callable[..., Any], path: tuple[str, ...]) -> Any:
    return evaluated(*path)()


def _builder(value: Any, outputs: list[Any], *path: str) -> Callable[[Any, int | None, Any], Any]:
    """What makes a value of the results; symbols in it are added to ``outputs``."""
    name = path[-1] if path else ""
    if name in ON_DEMAND and not field_names(value):
        if value is tuple:  # no labels
            return lambda *_given: value
        if name == "choice":
            return lambda _results, _count, evaluated: partial(_called, evaluated, path)
        return lambda _results, _count, evaluated: Lazy(lambda: evaluated(*path))
    if hasattr(value, "graph"):
        at = len(outputs)
        outputs.append(value)
        return lambda results, _count, _requests: results[at]
    if isinstance(value, float) and not ALIKE.intersection(path):
        return lambda _results, count, _requests: value if count is None else np.full(count, value)
    if isinstance(value, Mapping):
        parts = {key: _builder(item, outputs, *path, key) for key, item in value.items()}
        return lambda *values: {key: part(*values) for key, part in parts.items()}
    if names := field_names(value):
        kind = type(value)
        fields = [_builder(getattr(value, field), outputs, *path, field) for field in names]
        return lambda *values: kind(*[part(*values) for part in fields])
    return lambda *_given: value
