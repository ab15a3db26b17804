"""Times of a module's parts: parts of one kind of kernel are asked for together.

A call of a kernel model costs about the same for one row as for ten, and no row feels another, so
that the rows of several parts in one call have the bits that they have in calls of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast, final

import numpy as np

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import (
    Demand,
    Implementation,
    implementation_for,
    matrix_seconds,
)
from silicast.kernels.streaming import StreamingKernel
from silicast.workload.op import OpBatch, Variant

FEW = 64
"""Up to so many ops of a module parts are joined; beyond, the copies cost more than the calls."""


@final
@dataclass(frozen=True)
class PartBatch:
    """One part of every op of a module's batch.

    Attributes:
        name: of the part; constants and features carry it.
        batch: the part's op for each of the module's ops, in their order; ``cache`` of its
            variant is the state in which the parts before it leave its operands.
        count: how often it runs, a number or one an op of shape (n,); 0 where an op has none (its
            dimensions are then any valid ones).
        least: how often any library must run it, for the bound; None = ``count``.
    """

    name: str
    batch: OpBatch
    count: int | I64 = 1
    least: int | I64 | None = None


@final
@dataclass(frozen=True)
class TimedPart:
    """A part of every op of a batch on one device.

    Attributes:
        name: of the part.
        count: how often it runs, shape (n,).
        least: how often it must run, shape (n,).
        estimate_s: of one call.
        products_s: of its matrix products alone at their bound rate, on whichever pipe forms them;
            none of streaming kernels, for a fusion may avoid what they put on the FMA pipe.
        demand: of one call.
        warnings: how it was modelled.
    """

    name: str
    count: F64
    least: F64
    estimate_s: F64
    products_s: F64
    demand: Demand
    warnings: tuple[str, ...]

    @property
    def total_s(self) -> F64:
        """Time of all its calls."""
        return self.estimate_s * self.count


def timed(parts: Sequence[PartBatch], device: Device) -> list[TimedPart]:
    """Every part with its own family's times, in the order given.

    Raises:
        SilicastError: a part cannot run on this device, or not in its format.
    """
    ops = parts[0].batch
    count = len(ops)
    groups: dict[object, tuple[Implementation, list[int]]] = {}
    for place, part in enumerate(parts):
        batch = part.batch
        model = model_of(part, device)
        apart = ops.numbers and model.takes_numbers and not model.has_candidates
        joins = count <= FEW and batch.offsets is None and not apart
        kind = (batch.family, batch.variant, tuple(batch.dims)) if joins else place
        groups.setdefault(kind, (model, []))[1].append(place)
    found: dict[int, TimedPart] = {}
    for model, places in groups.values():
        times = model.estimates(queued(_joined([parts[place].batch for place in places])), device)
        products = matrix_seconds(times.analysis)
        if isinstance(model, StreamingKernel):
            products = xp.full_like(times.estimate_s, 0.0)
        columns = (times.estimate_s, products, times.analysis.demand)
        for number, place in enumerate(places):
            rows: slice | int | None = None
            if len(places) > 1:
                rows = number if ops.numbers else slice(number * count, (number + 1) * count)
            mine = columns if rows is None else _rows_of(columns, rows)
            found[place] = _part(parts[place], ops, mine, times.warnings)
    return [found[place] for place in range(len(parts))]


def model_of(part: PartBatch, device: Device) -> Implementation:
    """The kernel model of a part.

    Raises:
        ValueError: there is none for the device's execution model.
    """
    model = implementation_for(part.batch.family, device.execution_model)
    if model is None:
        raise ValueError(f"no model of {part.batch.family} for {device.execution_model}")
    return model


def queued(batch: OpBatch) -> OpBatch:
    """As a part runs: behind others, so that its launch does not wait for the host."""
    variant = batch.variant
    if not variant.launch:
        return batch
    plain = _without_launch(variant)
    return replace(batch, variant=plain)


@lru_cache(maxsize=1024)
def _without_launch(variant: Variant) -> Variant:
    return replace(variant, launch="")


def _joined(batches: Sequence[OpBatch]) -> OpBatch:
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = {name: [batch.dims[name] for batch in batches] for name in first.dims}
    join = np.array if first.numbers else np.concatenate
    return OpBatch(first.family, first.variant, {n: join(each) for n, each in columns.items()})


_Columns = tuple[F64, F64, Demand]
"""Estimated times, times of products alone, and demands."""


def _rows_of(columns: _Columns, rows: slice | int) -> _Columns:
    """Some rows, or one as numbers."""

    def of(values: F64) -> F64:
        one: Any = values[rows] if isinstance(rows, slice) else values.item(rows)
        return cast("F64", one)

    estimate, products, demand = columns
    mine = Demand(
        tasks=of(demand.tasks),
        waves=of(demand.waves),
        occupancy=of(demand.occupancy),
        pipe_work={name: of(values) for name, values in demand.pipe_work.items()},
        level_bytes={name: of(values) for name, values in demand.level_bytes.items()},
    )
    return of(estimate), of(products), mine


def _part(part: PartBatch, ops: OpBatch, columns: _Columns, warnings: tuple[str, ...]) -> TimedPart:
    count = ops.filled(0.0) + part.count
    least = count if part.least is None else xp.minimum(part.least, count)
    return TimedPart(part.name, count, least, *columns, warnings)
