"""The one interface of architecture spaces, and their registry.

An architecture is a choice at each of a fixed number of positions. A name such as
``nasbench201:|nor_conv_3x3~0|+...`` stands for one, and :meth:`ArchitectureSpace.graph` makes its
graph. A space is one file here that subclasses :class:`ArchitectureSpace`.
"""

from __future__ import annotations

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import ClassVar, final

import numpy as np

from silicast.core.errors import SilicastError, unknown_name
from silicast.core.naming import near
from silicast.core.numerics import F64, I64
from silicast.workload.graphs.graph import Block, Graph, Node
from silicast.workload.graphs.op import Op
from silicast.workload.operators.convolutions import Window, convolution
from silicast.workload.operators.products import product
from silicast.workload.operators.table import movement

_SPACES = {
    "nasbench201": "silicast.workload.spaces.nasbench201:NasBench201",
    "fbnet": "silicast.workload.spaces.fbnet:FBNet",
}
"""Name -> where the space is."""


class ArchitectureSpace(ABC):
    """All architectures of one search space.

    Attributes:
        name: before the colon of a model's name.
        options: names of what can be chosen, the same at every position.
        positions: how many choices an architecture is.
        pairs: whether the latency model has a term for each pair of positions, beside those of
            single ones: work at one position changes what another one costs.
        kernels: names of the amounts of work that :meth:`kernel_work` counts.
        pulls: how hard few samples' weights of known devices are pulled toward an even mean, and
            times of kernels toward nothing; chosen on devices that the published figures do not
            score.
        example: a name that it reads.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]]
    positions: ClassVar[int]
    pairs: ClassVar[bool]
    kernels: ClassVar[tuple[str, ...]]
    pulls: ClassVar[tuple[float, float]]
    example: ClassVar[str]

    @abstractmethod
    def choices(self, text: str) -> tuple[int, ...]:
        """The choice at each position that a text stands for.

        Raises:
            SilicastError: it is none of this space.
        """

    @abstractmethod
    def text(self, choices: Sequence[int]) -> str:
        """The text of an architecture, as :meth:`choices` reads it."""

    @abstractmethod
    def views(self, choices: I64) -> tuple[I64, ...]:
        """Choices (n, positions) as latency models count them: as they stand, and as runs see them
        after work that reaches no output is cut, where that differs.
        """

    @abstractmethod
    def kernel_work(self, choices: I64) -> F64:
        """Work of each kind of kernel, (n, kernels); the unit is that of the kind."""

    @abstractmethod
    def multiplications(self, choices: I64) -> F64:
        """Of one inference, without the parts that all networks of the space share, (n,)."""

    @abstractmethod
    def graph(self, choices: Sequence[int], batch: int = 1) -> Graph:
        """The network in fp32, as an inference runtime executes it: norms folded into
        convolutions.
        """

    @cached_property
    @final
    def terms(self) -> list[tuple[int, ...]]:
        """Positions that each group of terms is about: each alone, and pairs where they count."""
        single: list[tuple[int, ...]] = [(i,) for i in range(self.positions)]
        both = itertools.combinations(range(self.positions), 2) if self.pairs else ()
        return [*single, *both]

    @cached_property
    @final
    def singles(self) -> I64:
        """Columns of :meth:`features` that are the constant, or about one position alone."""
        count, at, columns = len(self.options) - 1, 1, [0]
        for _ in self.views(np.zeros((1, self.positions), dtype=np.int64)):
            for term in self.terms:
                size = count ** len(term)
                columns += range(at, at + size) if len(term) == 1 else ()
                at += size
        return np.array(columns, dtype=np.int64)

    @property
    @final
    def columns(self) -> int:
        """Width of :meth:`features`."""
        count = len(self.options) - 1
        views = len(self.views(np.zeros((1, self.positions), dtype=np.int64)))
        size: int = sum(count ** len(term) for term in self.terms)
        return 1 + views * size

    @final
    def features(self, choices: I64) -> F64:
        """One constant, and an indicator of each choice (and pair of choices) but the first,
        (n, columns).
        """
        rows, count = len(choices), len(self.options) - 1
        blocks = [np.ones((rows, 1))]
        for view in self.views(choices):
            marks = (view[:, :, None] == np.arange(1, count + 1)).astype(np.float64)
            for term in self.terms:
                if len(term) == 1:
                    blocks.append(marks[:, term[0]])
                else:
                    both = marks[:, term[0], :, None] * marks[:, term[1], None, :]
                    blocks.append(both.reshape(rows, count * count))
        return np.concatenate(blocks, axis=1)

    @final
    def latencies(self, choices: I64, weights: F64) -> F64:
        """``features(choices) @ weights`` in a fixed order of sums, (n,), without the features.

        Args:
            weights: (columns,).
        """
        count = len(self.options) - 1
        total = np.full(len(choices), weights[0])
        at = 1
        for view in self.views(choices):
            for term in self.terms:
                table = np.zeros((count + 1,) * len(term))
                size = count ** len(term)
                inner = weights[at : at + size].reshape((count,) * len(term))
                table[(slice(1, None),) * len(term)] = inner
                total += table[tuple(view[:, i] for i in term)]
                at += size
        return total

    @final
    def every(self, most: int, seed: int) -> I64:
        """All architectures, or ``most`` drawn ones of a larger space, (n, positions)."""
        size = len(self.options) ** self.positions
        if size <= most:
            digits = np.arange(size)[:, None] // len(self.options) ** np.arange(self.positions)
            return digits % len(self.options)
        return np.random.default_rng(seed).integers(
            0, len(self.options), (most, self.positions), dtype=np.int64
        )

    @final
    def error(self, message: str, text: str) -> SilicastError:
        """An architecture that cannot be read."""
        return SilicastError(
            f"{message}, found {text[:80]!r}", field="model", hint=f"for example {self.example}"
        )


@cache
def _space(name: str) -> ArchitectureSpace:
    module, _, kind = _SPACES[name].partition(":")
    space: ArchitectureSpace = getattr(importlib.import_module(module), kind)()
    return space


def spaces() -> Mapping[str, ArchitectureSpace]:
    """Every space by its name."""
    return {name: _space(name) for name in _SPACES}


def space_named(name: str) -> ArchitectureSpace:
    """The space of a name; case does not count.

    Raises:
        SilicastError: there is none.
    """
    key = name.strip().casefold().replace("-", "").replace("_", "")
    if key not in _SPACES:
        raise unknown_name(f"no space {name[:60]!r}", "space", near(name, list(_SPACES)))
    return _space(key)


def is_architecture(name: str) -> bool:
    """Whether a model's name is of the form ``space:architecture``.

    >>> is_architecture("nasbench201:|none~0|+..."), is_architecture("timm:resnet50")
    (True, False)
    """
    space, colon, _ = name.partition(":")
    return bool(colon) and space in _SPACES


def architecture(name: str) -> tuple[ArchitectureSpace, tuple[int, ...]]:
    """The space and the choices that a model's name stands for.

    Raises:
        SilicastError: the text is no architecture of its space.
    """
    space, _, text = name.partition(":")
    search_space = space_named(space)
    return search_space, search_space.choices(text)


WORD = 4
"""Bytes of a number; weights and activations are fp32."""


@final
class ImageNetwork:
    """Nodes of a network of square images; each method adds one and returns its name.

    Args:
        batch: images.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.nodes: list[Node] = []
        self._weights = 0

    def convolution(
        self,
        inputs: str | tuple[str, ...],
        channels: tuple[int, int],
        size: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
    ) -> str:
        """With its norm and activation folded in; ``size`` is the image's side, padding half."""
        before, after = channels
        image = (self.batch, before, size, size)
        out = -(-size // stride)
        taps = (after, before // groups, kernel, kernel)
        window = Window((stride, stride), (kernel // 2, kernel // 2), (1, 1), groups)
        results = (self.batch, after, out, out)
        op = convolution(image, taps, results, window, "fp32")
        return self._add(f"conv{kernel}x{kernel}", op, inputs, after * out * out, taps)

    def pool(self, inputs: str | tuple[str, ...], channels: int, size: int, window: int) -> str:
        """An average over ``window`` x ``window`` places; the whole image if it is as large."""
        out = 1 if window == size else size
        count = channels * out * out
        moved = movement(
            WORD * self.batch * channels * size * size,
            WORD * self.batch * count,
            self.batch * count * window * window,
        )
        return self._add("pool", moved, inputs, count, ())

    def add(self, inputs: tuple[str, ...], channels: int, size: int) -> str:
        """The sum of results; of one, that result itself."""
        if len(inputs) == 1:
            return inputs[0]
        count = channels * size * size
        moved = WORD * self.batch * count
        op = movement(moved * len(inputs), moved, self.batch * count * (len(inputs) - 1))
        return self._add("add", op, inputs, count, ())

    def linear(self, inputs: str, before: int, after: int) -> str:
        """The classifier."""
        op = product(self.batch, after, before, 1, "fp32")
        return self._add("linear", op, inputs, after, (after, before))

    def graph(self, name: str) -> Graph:
        """All of it as one block."""
        blocks = (Block("forward", tuple(self.nodes)),)
        return Graph(name, blocks, "inference", parameter_bytes=self._weights)

    def _add(
        self,
        kind: str,
        op: Op,
        inputs: str | tuple[str, ...],
        results: int,
        weights: tuple[int, ...],
    ) -> str:
        name = f"{kind}_{len(self.nodes)}"
        size = WORD if weights else 0
        for factor in weights:
            size *= factor
        self._weights += size
        sources = (inputs,) if isinstance(inputs, str) else inputs
        self.nodes.append(
            Node(
                name,
                op,
                tuple(source for source in sources if source),
                output_bytes=WORD * self.batch * results,
                parameter_bytes=size,
            )
        )
        return name
