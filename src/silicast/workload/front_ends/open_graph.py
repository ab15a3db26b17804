"""A program whose sizes are open as one op-graph file, by running it at several sizes.

The program runs on tensors without data at a few sizes, and
:mod:`silicast.workload.graphs.open_sizes`
finds what every number of its graph follows. Then the range of each size is looked for: what the
program states is taken as a question and answered by running it there, because exported programs
state more than the code needs (of PyTorch's own choice between layouts, for instance) and less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import msgspec

from silicast.core.errors import SilicastError, errors_at, unsupported
from silicast.workload.front_ends.dynamic_sizes import USUAL
from silicast.workload.front_ends.programs import read_program, stated_ranges
from silicast.workload.graphs.graph import Graph
from silicast.workload.graphs.op_graph import GraphFile, OpenSize, file_of
from silicast.workload.graphs.open_sizes import FEWEST, SampledGraph, Sizes, at_sizes, merged

SAMPLES = FEWEST + 1
LEAST_TRACED = 4
"""Size at which a program is exported whose usual size is smaller: 1 is a case of its own."""
STRIDES = ((0, 1, 2, 3, 5, 7, 11, 13), (0, 3, 1, 5, 2, 11, 4, 9), (0, 2, 7, 1, 9, 3, 8, 5))
"""Steps between the samples of the first, second and third open size: no two follow each other."""
SPREAD = 32
"""The samples of a large size are this part of it apart."""
MOST_STEP = 256


class OpenProgram(ABC):
    """A program some of whose sizes are open.

    Attributes:
        name: for messages.
        atoms: what it makes of open sizes, as expressions, the simplest first.
        stated: smallest and largest size that it states, by name; None = none.
    """

    name: str
    atoms: Sequence[str]
    stated: Mapping[str, tuple[int, int | None]]

    @abstractmethod
    def graph(self, sizes: Sizes) -> Graph:
        """Its graph at some sizes, as the one trace gives it.

        Raises:
            SilicastError: it does not run at these sizes.
        """

    @abstractmethod
    def traced(self, sizes: Sizes) -> Graph:
        """Its graph traced anew at some sizes; raises as :meth:`graph`."""


def open_graph(program: OpenProgram, usual: Sizes) -> GraphFile:
    """One file of a program's graph at any size.

    Args:
        usual: of all open sizes.

    Raises:
        SilicastError: the program takes no other size than one, or its operations follow no
            expression of them.
    """
    return _Search(program, usual).file()


@final
class _Search:
    """One program; graphs are remembered by sizes."""

    def __init__(self, program: OpenProgram, usual: Sizes) -> None:
        self.program, self.usual = program, usual
        self.start = started(self.usual)
        self.known: dict[tuple[int, ...], Any] = {}
        self.merged: Any = None

    def file(self) -> GraphFile:
        names = list(self.usual)
        ways = {name: self._way(name) for name in names}
        steps = {name: abs(way) for name, way in ways.items()}
        # odd multiples: what a program divides by must not divide all samples
        apart = {n: way * (self.start[n] // (SPREAD * abs(way)) | 1) for n, way in ways.items()}
        samples: list[SampledGraph] = []
        for index in range(len(STRIDES[0])):
            sizes = {
                name: self.start[name] + STRIDES[i % len(STRIDES)][index] * apart[name]
                for i, name in enumerate(names)
            }
            tree = self._tree(sizes)
            if tree is not None:
                samples.append(SampledGraph(sizes, tree))
            if len(samples) == SAMPLES:
                break
        if len(samples) < FEWEST:
            last = " and ".join(f"{name} = {value}" for name, value in self.start.items())
            raise unsupported(f"runs at too few sizes around {last}", self.program.name)
        with errors_at(self.program.name):
            self.merged = merged(samples, [*names, *self.program.atoms])
        symbols = {name: self._range(name, steps[name]) for name in names}
        self._check(steps, symbols)
        graph_file = msgspec.convert(self.merged, GraphFile)
        return msgspec.structs.replace(graph_file, symbols=dict(symbols))

    def _tree(self, sizes: Sizes) -> Any:
        """The graph as plain tables; None = the program does not run at these sizes."""
        key = tuple(sizes.values())
        if key not in self.known:
            try:
                self.known[key] = msgspec.to_builtins(file_of(self.program.graph(sizes)))
            except SilicastError:
                self.known[key] = None
        return self.known[key]

    def _with(self, name: str, value: int) -> dict[str, int]:
        return {**self.start, name: value}

    def _runs(self, name: str, value: int) -> bool:
        return self._tree(self._with(name, value)) is not None

    def _fits(self, name: str, value: int) -> bool:
        """Whether the merged graph is the program's at a value."""
        tree = self._tree(self._with(name, value))
        return tree is not None and self._same(tree, self._with(name, value))

    def _same(self, tree: Any, sizes: Sizes) -> bool:
        result = at_sizes(self.merged, sizes, tree)
        return bool(_without_zeros(result) == _without_zeros(tree))

    def _way(self, name: str) -> int:
        """The least step to the next size at which the program runs, below 0 where that is smaller.

        Raises:
            SilicastError: there is none; with what the program says of the next size.
        """
        start = self.start[name]
        divisors = {step for step in range(2, MOST_STEP + 1) if start % step == 0}
        for step in (1, *sorted(divisors)):
            for way in (step, -step):
                if start + way > 0 and self._runs(name, start + way):
                    return way
        try:
            self.program.traced(self._with(name, start + 1))
        except SilicastError as error:
            raise SilicastError(
                f"{name} is fixed at {start}; at {start + 1}: {error.message}",
                kind=error.kind,
                field=name,
                file=error.file,
                hint="leave it out of --dynamic, or change that line",
            ) from None
        raise unsupported(
            f"torch.export fixes {name} at {start}", name, "trace it at each size: --shape"
        )

    def _range(self, name: str, step: int) -> OpenSize:
        """The range of a size: where the program runs, and where it runs these operations."""
        start = self.start[name]
        lower, upper = self.program.stated.get(name, (1, None))
        first = (start - 1) % step + 1
        least = first if self._runs(name, first) else self._first(self._runs, name, first, step)
        exact = least
        if not self._fits(name, least):
            below = least
            lower += (start - lower) % step
            if least < lower < start and self._fits(name, lower):
                exact = lower
            else:
                exact = self._first(self._fits, name, below, step)
        most, exact_most = None, None
        if upper is not None and upper >= start:
            upper -= (upper - start) % step
            try:
                beyond = self.program.traced(self._with(name, upper + step))
            except SilicastError:
                most = upper
            else:
                tree = msgspec.to_builtins(file_of(beyond))
                same = self._same(tree, self._with(name, upper + step))
                exact_most = None if same else upper
        return OpenSize(
            self.usual[name], least, most, step, exact if exact > least else None, exact_most
        )

    def _first(self, holds: Callable[[str, int], bool], name: str, low: int, step: int) -> int:
        """The least value at which something holds, between one where it does not and the start."""
        high = self.start[name]
        while high - low > step:
            middle = low + (high - low) // step // 2 * step
            low, high = (low, middle) if holds(name, middle) else (middle, high)
        return high

    def _check(self, steps: Mapping[str, int], symbols: Mapping[str, OpenSize]) -> None:
        """Against a trace made anew where every open size is about twice as large.

        Raises:
            SilicastError: it differs.
        """
        sizes = {}
        for name, start in self.start.items():
            symbol = symbols[name]
            end = min(x for x in (symbol.most, symbol.exact_most, 2 * start) if x is not None)
            sizes[name] = start + (end - start) // steps[name] * steps[name]
        tree = msgspec.to_builtins(file_of(self.program.traced(sizes)))
        if not self._same(tree, sizes):
            where = ", ".join(f"{name} = {value}" for name, value in sizes.items())
            raise unsupported(
                f"its operations at {where} are others than its one trace says"
                + _difference(at_sizes(self.merged, sizes, tree), tree),
                self.program.name,
                "trace it at each size: --shape instead of --dynamic",
            )


@final
class OpenFile(OpenProgram):
    """A program's file (ONNX, exported PyTorch) whose dynamic dimensions are open.

    Args:
        names: of the open ones.
        fixed: sizes of the others.

    Raises:
        SilicastError: as of :func:`~silicast.workload.front_ends.programs.read_program`.
    """

    def __init__(
        self, path: Path, names: Iterable[str], fixed: Sizes, *, training: bool = False
    ) -> None:
        self.name, self.atoms, self.stated = path.stem, (), stated_ranges(path, names)
        self._path, self._fixed, self._training = path, fixed, training

    def graph(self, sizes: Sizes) -> Graph:
        return read_program(self._path, {**self._fixed, **sizes}, training=self._training)

    def traced(self, sizes: Sizes) -> Graph:
        return self.graph(sizes)


def started(usual: Sizes) -> dict[str, int]:
    """Sizes at which a program is exported.

    >>> started({"batch": 1, "image": 224})
    {'batch': 4, 'image': 224}
    """
    return {name: max(value, LEAST_TRACED) for name, value in usual.items()}


def axes_named(name: str, shapes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Places (input, axis) of a size that only its usual name tells.

    >>> axes_named("seq_len", [(8, 512), (8,)])
    [(0, 1)]
    """
    axis = USUAL.get(name)
    return [(i, axis) for i, shape in enumerate(shapes) if axis is not None and len(shape) > axis]


def _difference(ours: Any, theirs: Any, name: str = "") -> str:
    """Where two graphs differ first, for a message."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        name = str(theirs.get("name", name))
        for key in dict.fromkeys((*ours, *theirs)):
            one, two = ours.get(key, 0), theirs.get(key, 0)
            if one != two:
                inside = _difference(one, two, name)
                return inside or f", at {name}: {key} = {one!r:.80}, not {two!r:.80}"
    if isinstance(ours, list) and isinstance(theirs, list):
        for one, two in zip(ours, theirs, strict=False):
            if one != two:
                return _difference(one, two, name)
    return ""


def _without_zeros(tree: Any) -> Any:
    """Without numbers of 0, which files leave out."""
    if isinstance(tree, dict):
        return {k: _without_zeros(v) for k, v in tree.items() if v != 0 or isinstance(v, bool)}
    if isinstance(tree, list):
        return [_without_zeros(item) for item in tree]
    return tree
