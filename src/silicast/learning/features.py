"""What learned corrections read of a kernel: dimensionless numbers, none negative.

Any family has the same kinds of features, by name:

    x:NAME       a feature of the family's own analysis
    share:NAME   time that a resource alone would need, over the analytic time
    tasks, waves, fill, occupancy     of the demand; fill is the share of whole waves
    size:DIM     a dimension of the op, summed over its sequences; max:DIM the longest of them
    sequences    of a ragged op
    over32:DIM, over128:DIM           what is left over of a dimension, as a share of 32 and 128
    is:NAME      1 where the variant's library, kernel or KV format is NAME, else 0

Specifications of devices are none of them: what a device does enters through the analysis alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from silicast.core.numerics import F64, I64
from silicast.kernels.implementation import Analysis
from silicast.workload.op import OpBatch, Variant

LEFT_OVERS = (32, 128)


def feature_names(analysis: Analysis, batch: OpBatch) -> tuple[str, ...]:
    """All features of a batch but ``is:``, in a fixed order."""
    found = [f"x:{name}" for name in sorted(analysis.features)]
    found += [f"share:{name}" for name in sorted(analysis.resource_s)]
    found += ["tasks", "waves", "fill", "occupancy"]
    for name in sorted(batch.dims):
        found.append(f"size:{name}")
        if name in batch.ragged:
            found.append(f"max:{name}")
        else:
            found += [f"over{base}:{name}" for base in LEFT_OVERS]
    if batch.offsets is not None:
        found.append("sequences")
    return tuple(found)


def marks(variant: Variant) -> frozenset[str]:
    """Names that ``is:`` features of a variant are 1 for."""
    stated = (variant.library, variant.kernel, variant.kv_dtype)
    return frozenset(name for name in stated if name)


def feature_table(names: Sequence[str], analysis: Analysis, batch: OpBatch) -> F64:
    """Features ``names`` of a batch, shape (F, n).

    Raises:
        KeyError: the family has no such feature.
    """
    table = np.empty((len(names), len(batch)), dtype=np.float64)
    own = marks(batch.variant)
    for row, name in enumerate(names):
        kind, _, of = name.partition(":")
        if kind == "is":
            table[row] = 1.0 if of in own else 0.0
        else:
            table[row] = _COLUMNS[kind](of, analysis, batch)
    return table


def _own(name: str, analysis: Analysis, batch: OpBatch) -> F64:
    del batch
    return np.maximum(analysis.features[name], 0.0)


def _share(name: str, analysis: Analysis, batch: OpBatch) -> F64:
    del batch
    return np.maximum(analysis.resource_s[name] / analysis.time_s, 0.0)


def _demanded(field: str) -> Callable[[str, Analysis, OpBatch], F64]:
    def column(name: str, analysis: Analysis, batch: OpBatch) -> F64:
        del name, batch
        found: F64 = getattr(analysis.demand, field)
        return found

    return column


def _fill(name: str, analysis: Analysis, batch: OpBatch) -> F64:
    del name, batch
    waves = analysis.demand.waves
    return waves / np.maximum(np.ceil(waves), 1.0)


def _size(name: str, analysis: Analysis, batch: OpBatch) -> F64 | I64:
    del analysis
    values = batch.dims[name]
    if name not in batch.ragged or batch.offsets is None:
        return values
    return np.add.reduceat(values, batch.offsets[:-1])


def _longest(name: str, analysis: Analysis, batch: OpBatch) -> I64:
    del analysis
    assert batch.offsets is not None
    longest: I64 = np.maximum.reduceat(batch.dims[name], batch.offsets[:-1])
    return longest


def _left_over(base: int) -> Callable[[str, Analysis, OpBatch], F64]:
    def column(name: str, analysis: Analysis, batch: OpBatch) -> F64:
        left = _size(name, analysis, batch) % base
        return left.astype(np.float64) * (1.0 / base)

    return column


def _sequences(name: str, analysis: Analysis, batch: OpBatch) -> I64:
    del name, analysis
    assert batch.offsets is not None
    return np.diff(batch.offsets)


_COLUMNS: dict[str, Callable[[str, Analysis, OpBatch], F64 | I64]] = {
    "x": _own,
    "share": _share,
    "tasks": _demanded("tasks"),
    "waves": _demanded("waves"),
    "occupancy": _demanded("occupancy"),
    "fill": _fill,
    "size": _size,
    "max": _longest,
    "sequences": _sequences,
    **{f"over{base}": _left_over(base) for base in LEFT_OVERS},
}
