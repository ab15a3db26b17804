"""What learned corrections read of a kernel: dimensionless numbers, none negative.

Any family has the same kinds of features, by name:

    x:NAME       a feature of the family's own analysis; 0 where a variant has none of that name
    share:NAME   time that a resource alone would need, over the analytic time
    tasks, waves, fill, occupancy     of the demand; fill is the share of whole waves
    size:DIM     a dimension of the op, summed over its sequences; max:DIM the longest of them
    sequences    of a family that works on several, whether their lengths are alike or not
    over32:DIM, over128:DIM           what is left over of a dimension, as a share of 32 and 128
    style:NAME, library:NAME, kv:NAME     1 where the family's style of kernel, the variant's
                 library or KV format is NAME, else 0
    release:NAME 1 where library and version together are NAME
    flag:NAME    1 where the variant's flag is set
    stream       1 where kernels are launched one by one

Specifications of devices are none of them: what a device does enters through the analysis alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.in_blocks import computed
from silicast.workload.graphs.op import OpBatch, Variant

LEFT_OVERS = (32, 128)
"""Powers of two of which a dimension's remainder is a feature."""
ODD = "_odd"
"""End of the names of a family's own features of that kind."""
LEFT_OUT = {"window": 0}
"""Dimension -> what it is where an op leaves it out; 1 for all others."""
MARKS = frozenset(("style", "library", "release", "kv", "flag", "stream"))
"""Kinds of features that are 0 or 1."""
WHO = ("library:", "release:")
"""Marks of who provides a kernel: queries may name others, or nobody."""

Column = Callable[["Kernels"], Any]
"""A feature: the kernels -> its values, shape (n,) or one number for all rows."""


@final
@dataclass(frozen=True)
class Kernels:
    """What features are made of.

    Attributes:
        analysis: of ``batch``; own: the marks of its variant.
        ragged: dimensions of the family that may differ per sequence.
    """

    analysis: Analysis
    batch: OpBatch
    ragged: frozenset[str]
    own: frozenset[str]

    @staticmethod
    def from_analysis(
        model: Implementation, analysis: Analysis, batch: OpBatch, device: Device
    ) -> Kernels:
        return Kernels(analysis, batch, model.ragged, marks(model, batch.variant, device))

    def names(self) -> tuple[str, ...]:
        """All features but marks, in a fixed order."""
        feature_names = [f"x:{name}" for name in sorted(self.analysis.features)]
        feature_names += [f"share:{name}" for name in sorted(self.analysis.resource_s)]
        feature_names += ["tasks", "waves", "fill", "occupancy"]
        for name in sorted(self.batch.dims):
            if name in self.ragged:
                feature_names += [f"size:{name}", f"max:{name}"]
            elif not (self.ragged and name == "batch"):
                feature_names.append(f"size:{name}")
                feature_names += [f"over{base}:{name}" for base in LEFT_OVERS]
        return (*feature_names, "sequences") if self.ragged else tuple(feature_names)

    def table(self, names: tuple[str, ...]) -> F64:
        """Features ``names``, shape (F, n)."""
        columns = columns_of(names)
        rows = np.empty((len(names), len(self.batch)), dtype=np.float64)
        for row, values in zip(columns.rows.tolist(), columns.values(self), strict=True):
            rows[row] = values
        for row, name in columns.marks:
            rows[row] = name in self.own
        return np.maximum(rows, 0.0, out=rows)


@final
@dataclass(frozen=True)
class FeatureColumns:
    """How features are computed, those of one kind after the other.

    Attributes:
        rows: place of each column among all features.
        own: features of the family's analysis; shares: resources; others: the rest.
        marks: places and names of marks, which are the variant's: no column has them.
    """

    rows: NDArray[np.int64]
    own: tuple[str, ...]
    shares: tuple[str, ...]
    others: tuple[Column, ...]
    marks: tuple[tuple[int, str], ...]

    def values(self, kernels: Kernels) -> list[Any]:
        """Columns of a batch: arrays of shape (n,), or a number for all rows."""
        features, resource_s = computed(kernels.analysis.features), kernels.analysis.resource_s
        time_s = kernels.analysis.time_s
        return [
            *[features.get(name, 0.0) for name in self.own],
            *[resource_s[name] / time_s if name in resource_s else 0.0 for name in self.shares],
            *[column(kernels) for column in self.others],
        ]


@lru_cache(maxsize=512)
def columns_of(names: tuple[str, ...]) -> FeatureColumns:
    """The columns of some features."""
    kinds: dict[str, list[tuple[int, str]]] = {"x": [], "share": [], "": [], "mark": []}
    for row, name in enumerate(names):
        kind, _, suffix = name.partition(":")
        if kind in MARKS:
            kinds["mark"].append((row, name))
        elif kind in kinds:
            kinds[kind].append((row, suffix))
        else:
            kinds[""].append((row, name))
    rows = [row for kind in ("x", "share", "") for row, _ in kinds[kind]]
    return FeatureColumns(
        rows=np.array(rows, dtype=np.int64),
        own=tuple(name for _, name in kinds["x"]),
        shares=tuple(name for _, name in kinds["share"]),
        others=tuple(_column(name) for _, name in kinds[""]),
        marks=tuple(kinds["mark"]),
    )


def is_left_over(name: str) -> bool:
    """Whether a feature is what a size leaves over of a multiple.

    >>> is_left_over("over32:k"), is_left_over("x:n_odd"), is_left_over("x:padding")
    (True, True, False)
    """
    kind, _, suffix = name.partition(":")
    return kind in _LEFT_OVER or (kind == "x" and suffix.endswith(ODD))


def _column(name: str) -> Column:
    kind, _, suffix = name.partition(":")
    if kind in _DEMANDED:
        return attrgetter(f"analysis.demand.{kind}")
    if kind in _LEFT_OVER:
        return partial(_left_over, suffix, _LEFT_OVER[kind])
    return partial(_COLUMNS[kind], suffix)


def all_names(model: Implementation, parts: Iterable[tuple[OpBatch, Device]]) -> tuple[str, ...]:
    """Features and marks that occur in any of ``parts``, in a fixed order."""
    table: dict[str, None] = {}
    marked: set[str] = set()
    for batch, device in parts:
        first_row = batch.rows(np.arange(1))
        kernels = Kernels.from_analysis(
            model, model.times(first_row, device).analysis, first_row, device
        )
        table |= dict.fromkeys(kernels.names())
        marked |= kernels.own
    return (*table, *sorted(marked))


@lru_cache(maxsize=4096)
def marks(model: Implementation, variant: Variant, device: Device) -> frozenset[str]:
    """Features of a variant that are 1 because of what it names."""
    kernel_marks = {"stream"} if variant.launch == "stream" else set()
    named = (
        ("style", model.style(variant, device)),
        ("library", variant.library),
        ("release", f"{variant.library} {variant.version}" if variant.version else ""),
        ("kv", variant.kv_dtype),
    )
    kernel_marks.update(f"{kind}:{name}" for kind, name in named if name)
    flags = {name for name, value in variant.flags if value} | model.implied_flags
    kernel_marks.update(f"flag:{name}" for name in flags - model.unmarked_flags)
    return frozenset(kernel_marks)


def _left_over(name: str, base: int, kernels: Kernels) -> F64:
    left: F64 = (_size(name, kernels) & (base - 1)) * (1.0 / base)
    return left


def _fill(name: str, kernels: Kernels) -> F64:
    del name
    waves = kernels.analysis.demand.waves
    fill: F64 = waves / xp.maximum(xp.ceil(waves), 1.0)
    return fill


def _values(name: str, kernels: Kernels) -> Any:
    both = name.removesuffix("_h").removesuffix("_w")  # one size may stand for both sides
    for dim in (name, both):
        if dim in kernels.batch.dims:
            return kernels.batch.dims[dim]
    return LEFT_OUT.get(name, 1)


def _size(name: str, kernels: Kernels) -> Any:
    """A dimension; of one that may differ per sequence, the sum over the sequences."""
    values = _values(name, kernels)
    if name not in kernels.ragged:
        return values
    if name in kernels.batch.ragged and kernels.batch.offsets is not None:
        return _reduced(np.add, values, kernels.batch)
    return values * _sequences(name, kernels)


def _longest(name: str, kernels: Kernels) -> Any:
    values = _values(name, kernels)
    if name not in kernels.batch.ragged or kernels.batch.offsets is None:
        return values
    return _reduced(np.maximum, values, kernels.batch)


def _reduced(by: np.ufunc, values: Any, batch: OpBatch) -> Any:
    """A dimension that differs from sequence to sequence as one value an op."""
    assert batch.offsets is not None
    sums = by.reduceat(values, batch.offsets[:-1])
    return sums.item() if batch.numbers else sums


def _sequences(name: str, kernels: Kernels) -> Any:
    del name
    if kernels.batch.offsets is None:
        return kernels.batch.dims.get("batch", 1)
    counts = np.diff(kernels.batch.offsets)
    return counts.item() if kernels.batch.numbers else counts


_DEMANDED = ("tasks", "waves", "occupancy")
_LEFT_OVER = {f"over{base}": base for base in LEFT_OVERS}
_COLUMNS: dict[str, Callable[[str, Kernels], Any]] = {
    "fill": _fill,
    "size": _size,
    "max": _longest,
    "sequences": _sequences,
}
