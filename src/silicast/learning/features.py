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
from functools import lru_cache
from typing import final

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.check import take
from silicast.kernels.implementation import Analysis, Implementation
from silicast.workload.op import OpBatch, Variant

LEFT_OVERS = (32, 128)
LEFT_OUT = {"window": 0}
"""Dimension -> what it is where an op leaves it out; 1 for all others."""
MARKS = frozenset(("style", "library", "release", "kv", "flag", "stream"))
"""Kinds of features that are 0 or 1."""
WHO = ("library:", "release:")
"""Marks of who provides a kernel: queries may name others, or nobody."""

Column = Callable[[str, "Kernels"], F64 | I64]
"""A kind of feature: what follows the colon in its name, and the kernels -> shape (n,)."""


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
    def of(model: Implementation, analysis: Analysis, batch: OpBatch, device: Device) -> Kernels:
        """Of a batch on a device."""
        return Kernels(analysis, batch, model.ragged, marks(model, batch.variant, device))

    def names(self) -> tuple[str, ...]:
        """All features but marks, in a fixed order."""
        found = [f"x:{name}" for name in sorted(self.analysis.features)]
        found += [f"share:{name}" for name in sorted(self.analysis.resource_s)]
        found += ["tasks", "waves", "fill", "occupancy"]
        for name in sorted(self.batch.dims):
            if name in self.ragged:
                found += [f"size:{name}", f"max:{name}"]
            elif not (self.ragged and name == "batch"):
                found.append(f"size:{name}")
                found += [f"over{base}:{name}" for base in LEFT_OVERS]
        return (*found, "sequences") if self.ragged else tuple(found)

    def table(self, names: tuple[str, ...]) -> F64:
        """Features ``names``, shape (F, n)."""
        layout = _layout(names)
        found = np.zeros((len(names), len(self.batch)), dtype=np.float64)
        for row, name, column in layout.columns:
            found[row] = column(name, self)
        for rows, values in (
            (layout.own, self.analysis.features), (layout.shares, self.analysis.resource_s)
        ):  # fmt: skip
            for row, name in rows:
                value = values.get(name)
                if value is not None:
                    found[row] = value
        if len(layout.share_rows):
            found[layout.share_rows] /= self.analysis.time_s
        floored = layout.floored
        found[floored] = np.maximum(found[floored], 0.0)
        if len(layout.left):
            found[layout.left] = found[layout.left_of] % layout.base * layout.per_base
        found[_marked(names, self.own)] = 1.0
        return found


@final
@dataclass(frozen=True)
class _Layout:
    """Which row of a table each kind of feature fills.

    Attributes:
        columns: rows that are computed one by one.
        own, shares: rows out of the analysis; share_rows: those of the latter.
        floored: rows that are held at 0 or above.
        left, left_of: rows of what is left over, and the rows of the sizes that it is left of;
            base, per_base: of what, shape (rows, 1), and one over it.
        marks: rows that are 0 or 1.
    """

    columns: list[tuple[int, str, Column]]
    own: list[tuple[int, str]]
    shares: list[tuple[int, str]]
    share_rows: I64
    floored: I64
    left: I64
    left_of: I64
    base: F64
    per_base: F64
    marks: list[tuple[int, str]]


@lru_cache(maxsize=512)
def _layout(names: tuple[str, ...]) -> _Layout:
    place = {name: row for row, name in enumerate(names)}
    by_kind: dict[str, list[tuple[int, str]]] = {"x": [], "share": [], "mark": []}
    columns: list[tuple[int, str, Column]] = []
    left: list[tuple[int, int, int]] = []
    for row, name in enumerate(names):
        kind, _, of = name.partition(":")
        if kind in MARKS:
            by_kind["mark"].append((row, name))
        elif kind in by_kind:
            by_kind[kind].append((row, of))
        elif kind in _LEFT_OVER:
            left.append((row, place[f"size:{of}"], _LEFT_OVER[kind]))
        else:
            columns.append((row, of, _COLUMNS[kind]))
    shares = np.array([row for row, _ in by_kind["share"]], dtype=np.int64)
    floored = [row for row, _ in by_kind["x"]] + shares.tolist()
    base = np.array([each for _, _, each in left], dtype=np.float64).reshape(-1, 1)
    return _Layout(
        columns=columns,
        own=by_kind["x"],
        shares=by_kind["share"],
        share_rows=shares,
        floored=np.array(floored, dtype=np.int64),
        left=np.array([row for row, _, _ in left], dtype=np.int64),
        left_of=np.array([row for _, row, _ in left], dtype=np.int64),
        base=base,
        per_base=1.0 / base,
        marks=by_kind["mark"],
    )


@lru_cache(maxsize=4096)
def _marked(names: tuple[str, ...], own: frozenset[str]) -> I64:
    """Rows of the marks that a kernel has."""
    return np.array([row for row, name in _layout(names).marks if name in own], dtype=np.int64)


def all_names(model: Implementation, parts: Iterable[tuple[OpBatch, Device]]) -> tuple[str, ...]:
    """Features and marks that occur in any of ``parts``, in a fixed order."""
    found: dict[str, None] = {}
    marked: set[str] = set()
    for batch, device in parts:
        some = take(batch, np.arange(1))
        kernels = Kernels.of(model, model.times(some, device).analysis, some, device)
        found |= dict.fromkeys(kernels.names())
        marked |= kernels.own
    return (*found, *sorted(marked))


@lru_cache(maxsize=4096)
def marks(model: Implementation, variant: Variant, device: Device) -> frozenset[str]:
    """Features of a variant that are 1 because of what it names."""
    found = {"stream"} if variant.launch == "stream" else set()
    named = (
        ("style", model.style(variant, device)),
        ("library", variant.library),
        ("release", f"{variant.library} {variant.version}" if variant.version else ""),
        ("kv", variant.kv_dtype),
    )
    found.update(f"{kind}:{name}" for kind, name in named if name)
    flags = {name for name, value in variant.flags if value} | model.implied_flags
    found.update(f"flag:{name}" for name in flags - model.unmarked_flags)
    return frozenset(found)


def _demanded(field: str) -> Column:
    def column(name: str, of: Kernels) -> F64:
        del name
        found: F64 = getattr(of.analysis.demand, field)
        return found

    return column


def _fill(name: str, of: Kernels) -> F64:
    del name
    waves = of.analysis.demand.waves
    return waves / np.maximum(np.ceil(waves), 1.0)


def _size(name: str, of: Kernels) -> I64:
    """A dimension; of one that may differ per sequence, the sum over the sequences."""
    values = _values(name, of)
    if name not in of.ragged:
        return values
    if name in of.batch.ragged and of.batch.offsets is not None:
        total: I64 = np.add.reduceat(values, of.batch.offsets[:-1])
        return total
    return values * _sequences(name, of)


def _longest(name: str, of: Kernels) -> I64:
    values = _values(name, of)
    if name not in of.batch.ragged or of.batch.offsets is None:
        return values
    longest: I64 = np.maximum.reduceat(values, of.batch.offsets[:-1])
    return longest


def _values(name: str, of: Kernels) -> I64:
    found = of.batch.dims.get(name)
    if found is None:  # one size may stand for both sides of a window
        found = of.batch.dims.get(name.removesuffix("_h").removesuffix("_w"))
    if found is None:
        return np.full(len(of.batch), LEFT_OUT.get(name, 1), dtype=np.int64)
    return found


def _sequences(name: str, of: Kernels) -> I64:
    del name
    if of.batch.offsets is None:
        return of.batch.dims.get("batch", np.ones(len(of.batch), dtype=np.int64))
    return np.diff(of.batch.offsets)


_LEFT_OVER = {f"over{base}": base for base in LEFT_OVERS}
_COLUMNS: dict[str, Column] = {
    "tasks": _demanded("tasks"),
    "waves": _demanded("waves"),
    "occupancy": _demanded("occupancy"),
    "fill": _fill,
    "size": _size,
    "max": _longest,
    "sequences": _sequences,
}
