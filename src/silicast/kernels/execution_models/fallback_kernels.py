"""Families on another execution model than the one they were written for.

What an op computes and moves does not depend on the device. A streaming family states it as a
stream, any other as exact counts; a fallback hands that to the execution model's :class:`Rates`. An
execution model registers :func:`adapter` once; a family with a model of its own there (matrix
products, attention) comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, cast, final

import numpy as np

from silicast.core import xp
from silicast.core.dtypes import RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.check import LESSENING, op_at
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.in_blocks import one_row
from silicast.kernels.movement.elementwise import kind_of
from silicast.kernels.movement.streaming import Stream, Streamed
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.roofline import Rates, RooflineKernel, RooflineWork, analyse_work
from silicast.kernels.rows.row_kernel import RowKernel
from silicast.workload.graphs.op import Op, OpBatch

RatesOf = Callable[[Device, str], Rates]
"""Rates of a device for products in one format."""


class Fallback(RooflineKernel):
    """A family of the SIMT catalog on another execution model.

    Class attributes:
        original: the family's own model.
        rates_of: rates of a device on that execution model.
    """

    original: ClassVar[Implementation]
    rates_of: ClassVar[RatesOf]

    @final
    def flops(self, op: Op) -> int:
        """Exact useful floating-point operations: as the original's."""
        return self.original.flops(op)

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes of operands and results: as the original's."""
        return self.original.compulsory_bytes(op)

    @final
    def counted(self, batch: OpBatch, device: Device) -> Analysis:
        """From exact counts alone, as if all arithmetic were matrix products."""
        if batch.numbers:
            single: Analysis = one_row(self.counted(batch.arrays(), device))
            return single
        variant = batch.variant
        recipe = RECIPES.get(variant.dtype)
        rates = type(self).rates_of(device, recipe.compute if recipe else variant.dtype)
        flops, moved = counts_of(self.original, batch)
        busiest: F64 | float = 1.0
        if isinstance(self.original, CountsRows):
            busiest = self.original.busiest_share(batch)
        none = xp.full_like(flops, 0.0)
        constants = load_physics(self.group).constants(device.architecture)
        experts = batch.dims.get("experts", none)
        work = RooflineWork(
            matrix_ops=flops,
            matrix_issued=flops * busiest,
            vector_ops=none,
            vector_useful=none,
            special_ops=none,
            read_bytes=moved,
            write_bytes=none,
            moved_bytes=moved,
            serial_s=none + experts * constants.get(f"{self.family}.expert_s", 0.0),
            tasks=xp.full_like(flops, rates.units),
            packed_bytes=moved * constants.get(f"{self.family}.packing", 0.0),
        )
        return analyse_work(work, rates, variant)


class StreamFallback(Fallback):
    """A family that streams data: its stream at the rates of vector units and memories; of
    gradients the counts.

    Where the constants have ``<flag>.element_s`` for a flag of the op, its operations run one by
    one on each unit: libraries have no vector code for it.
    """

    takes_numbers: ClassVar[bool] = True

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        original = cast("Streamed", self.original)
        if isinstance(original, RowKernel) and not original.has_stream(batch.variant):
            return self.counted(batch, device)
        stream = original.stream(batch.dims, batch.variant)
        rates = type(self).rates_of(device, _format_of(stream, device))
        constants = load_physics(self.group).constants(device.architecture)
        factor = constants.get(f"{self.family}.moved", 1.0)
        calls = constants.get(f"{self.family}.calls", 1.0)
        work = _work_of(stream, rates, factor, calls)
        kind = kind_of(batch.variant) if self.family == "elementwise" else self.family
        work = replace(
            work,
            special_ops=work.special_ops * constants.get(f"{kind}.special", 1.0),
            vector_ops=work.vector_ops * constants.get(f"{kind}.vector", 1.0),
        )
        counted = dict(rates.operations).get(kind)
        if counted is not None:
            none = xp.full_like(work.special_ops, 0.0)
            elements = xp.float64(batch.dims["elements"])
            work = replace(work, vector_ops=elements * counted, special_ops=none)
        flags = [name for name, value in batch.variant.flags if value]
        one_by_one = sum(constants.get(f"{name}.element_s", 0.0) for name in flags)
        if one_by_one > 0.0:
            elements = xp.float64(stream.fma)
            work = replace(work, serial_s=work.serial_s + elements * one_by_one / rates.units)
        return analyse_work(work, rates, batch.variant)


class CountedFallback(Fallback):
    """Any other family: its exact counts, as if all arithmetic were matrix products.

    Where the constants have ``<family>.expert_s``, model code turns to one expert after the other;
    ``<family>.packing`` is how often operands are moved to be laid out for the units.
    """

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.counted(batch, device)


def counts_of(family: Implementation, batch: OpBatch) -> tuple[F64, F64]:
    """Exact counts of every op, (n,): useful operations, and bytes moved once.

    A family that does not state them in arrays is asked for each size once.
    """
    if isinstance(family, CountsRows):
        return family.counts(batch)
    rows, where = np.arange(len(batch)), np.arange(len(batch))
    if batch.offsets is None and batch.dims:
        table = np.stack([np.broadcast_to(values, rows.shape) for values in batch.dims.values()])
        _, rows, where = np.unique(table, axis=1, return_index=True, return_inverse=True)
    ops = [op_at(batch, row) for row in rows.tolist()]
    flops = np.array([float(family.flops(op)) for op in ops])
    moved = np.array([float(family.compulsory_bytes(op)) for op in ops])
    return flops[where.reshape(-1)], moved[where.reshape(-1)]


class ModuleFallback(Fallback):
    """A module of other families: the same parts, each as this execution model runs it."""

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        return self.original.analyse(batch, device)


def _format_of(stream: Stream, device: Device) -> str:
    """The format that the rates are asked for: bf16 where a stream holds matrix products."""
    plain = stream.matrix is None
    able = any(device.rate_per_core(pipe, "bf16") > 0.0 for pipe in device.matrix_pipes)
    return "fp32" if plain or not able else "bf16"


def _work_of(stream: Stream, rates: Rates, factor: float, calls: float) -> RooflineWork:
    """A stream as work.

    Args:
        factor: bytes moved over those of the stream, for accesses that are not streams (gathers)
            and for what libraries do in several passes.
        calls: operators that libraries make of one.
    """
    read = xp.float64(stream.read_bytes)
    written = xp.float64(stream.write_bytes)
    none = xp.full_like(read, 0.0)
    again, matrix = (
        none if x is None else none + xp.float64(x) for x in (stream.reread_bytes, stream.matrix)
    )
    return RooflineWork(
        matrix_ops=0.5 * matrix,
        matrix_issued=matrix,
        vector_ops=none + xp.float64(stream.fma),
        vector_useful=none,
        special_ops=none + xp.float64(stream.xu),
        read_bytes=read,
        write_bytes=written,
        moved_bytes=(read + written) * factor + _second_sweep(again, rates),
        serial_s=none + rates.launch_s * (stream.kernels * calls - 1.0),
        tasks=none + xp.float64(stream.tasks),
    )


def _second_sweep(again: F64, rates: Rates) -> F64:
    """Bytes of a second sweep that come from memory again: those that outgrow the chip."""
    return xp.maximum(again - rates.chip_bytes, 0.0)


def adapter(
    execution_model: str, group: str, rates_of: RatesOf
) -> Callable[[Implementation], Implementation]:
    """What makes the fallback of a family on ``execution_model``."""

    def adapt(original: Implementation) -> Implementation:
        kind: type[Implementation] = CountedFallback
        if isinstance(original, Streamed):
            kind = StreamFallback
        elif original.in_parts:
            kind = ModuleFallback
        attributes: dict[str, object] = {
            "family": original.family,
            "dims": original.dims,
            "ragged": original.ragged,
            "lessening": getattr(original, "lessening", LESSENING),
            "dtypes": getattr(original, "dtypes", ("bf16", "fp16", "fp32")),
            "execution_model": execution_model,
            "original": original,
            "group": group,
            "rates_of": staticmethod(rates_of),
            "__doc__": type(original).__doc__,
        }
        if original.anywhere:
            kind, attributes = type(original), {"execution_model": execution_model}
        name = f"{type(original).__name__}On{execution_model.title().replace('_', '')}"
        return cast("Implementation", type(name, (kind,), attributes)())

    return adapt
