"""Times of a module's parts: parts of one kind of kernel are asked for together.

A call of a kernel model costs about the same for one row as for ten, and no row feels another, so
that the rows of several parts in one call have the bits that they have in calls of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, final

import numpy as np
from msgspec import Struct, structs

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.implementation import Demand, Implementation, matrix_seconds
from silicast.kernels.movement.streaming import Streamed
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import OpBatch, Variant

APART = 4
"""Up to so many parts of a kind are evaluated one by one where ops are numbers; more take longer
than one call with an array."""
FEW = 64
"""Up to so many ops of a module parts are joined; beyond, the copies cost more than the calls."""


@final
class PartBatch(Struct, frozen=True):
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
class TimedPart(Struct, frozen=True):
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
    groups: dict[object, list[int]] = {}
    for index, part in enumerate(parts):
        batch = part.batch
        joins = count <= FEW and batch.offsets is None
        kind = (batch.family, batch.variant, tuple(batch.dims)) if joins else index
        groups.setdefault(kind, []).append(index)
    table: dict[int, TimedPart] = {}
    for alike in groups.values():
        model = model_of(parts[alike[0]], device)
        apart = ops.numbers and model.takes_numbers and not model.has_candidates
        apart = (apart and len(alike) <= APART) or ops.symbols
        for positions in [[x] for x in alike] if apart else [alike]:
            batch = queued(_joined([parts[index].batch for index in positions]))
            times = model.estimates(batch, device)
            products = matrix_seconds(times.analysis)
            if isinstance(model, Streamed):
                products = xp.full_like(times.estimate_s, 0.0)
            columns = (times.estimate_s, products, times.analysis.demand)
            columns_of_part = (
                [columns] if len(positions) == 1 else _of_each(columns, len(positions), ops.numbers)
            )
            for index, mine in zip(positions, columns_of_part, strict=True):
                table[index] = _part(parts[index], ops, mine, times.warnings)
    return [table[index] for index in range(len(parts))]


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
    return structs.replace(batch, variant=plain)


@lru_cache(maxsize=1024)
def _without_launch(variant: Variant) -> Variant:
    return replace(variant, launch="")


def _joined(batches: Sequence[OpBatch]) -> OpBatch:
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = {name: [batch.dims[name] for batch in batches] for name in first.dims}
    join = np.array if first.numbers else np.concatenate
    return OpBatch(first.family, first.variant, {n: join(column) for n, column in columns.items()})


_Columns = tuple[F64, F64, Demand]
"""Estimated times, times of products alone, and demands."""


def _of_each(columns: _Columns, parts: int, numbers: bool) -> Iterator[_Columns]:
    """Columns of each part out of those of parts that were joined; numbers where ops are."""

    def split(values: F64) -> Any:
        return values.tolist() if numbers else values.reshape(parts, -1)

    estimate, products, demand = columns
    pipes, levels = tuple(demand.pipe_work), tuple(demand.level_bytes)
    rows = zip(
        split(estimate),
        split(products),
        split(demand.tasks),
        split(demand.waves),
        split(demand.occupancy),
        *map(split, demand.pipe_work.values()),
        *map(split, demand.level_bytes.values()),
        strict=True,
    )
    for estimate_s, products_s, tasks, waves, occupancy, *work in rows:
        pipe_work = dict(zip(pipes, work, strict=False))
        level_bytes = dict(zip(levels, work[len(pipes) :], strict=True))
        yield estimate_s, products_s, Demand(tasks, waves, occupancy, pipe_work, level_bytes)


def _part(part: PartBatch, ops: OpBatch, columns: _Columns, warnings: tuple[str, ...]) -> TimedPart:
    count = ops.filled(0.0) + part.count
    least = count if part.least is None else xp.minimum(part.least, count)
    return TimedPart(part.name, count, least, *columns, warnings)
