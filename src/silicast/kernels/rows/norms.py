"""RMSNorm and LayerNorm over the last dimension, as their providers run them, forward and backward.

fused: one block a row: read, reduce, scale and write; with ``residual`` the block also reads the
residual and writes the sum back. Backward a kernel by rows and one by columns, for the weight.
eager: a model's own code, operator by operator (Hugging Face's ``LlamaRMSNorm``: to fp32, square,
mean, reciprocal root, product, back, times the weight); autograd keeps what each operator's
gradient reads. A framework has LayerNorm as one operator: a sweep for the statistics, one to write.
compiled: one kernel by rows; backward another, and sums of columns.
by hand: one block a row, which stays in registers; backward as many blocks as there are cores,
each adding up the weight's gradient over its share of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from silicast.core import xp
from silicast.core.numerics import ceil_div
from silicast.hardware.device import Device
from silicast.kernels.implementation import Analysis
from silicast.kernels.in_blocks import joined, on_arrays
from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import (
    BY_HAND,
    COMPILED,
    EAGER,
    Direction,
    RowCall,
    spilled_of_rows,
)
from silicast.kernels.rows.pass_chain import Chain, PassTensor
from silicast.kernels.rows.row_kernel import Gradient, RowKernel
from silicast.workload.graphs.op import OpBatch, Variant

FP32_BYTES = 4
SEPARATE = "separate_add"
"""Name of a kernel by hand whose residual the framework adds before."""
OPERATOR = "fused"
"""Name of the framework's own operator, where models write the norm out."""
ONE_SWEEP = "one_sweep"
"""Style of a gradient whose weights' sums come from the sweep by rows."""
BLOCK_ELEMENTS = 1024
"""Of narrow rows a block of a compiler's or framework's gradient takes several."""
BLOCK_COLUMNS = 64
"""Columns of a block that sums a framework's gradients of weights: narrow norms have few."""
VIEWS = 4
"""Calls around a kernel by hand: rows are folded and unfolded, sizes are checked."""
WIDE_WEIGHT = FP32_BYTES
"""Parameters of modules are fp32 unless a model is loaded narrower; results take the wider format
of row and weight."""


class _Norm(RowKernel):
    """Dimensions: tokens, hidden, residual (0 or 1, default 0): the row is a sum, which is a result
    too.
    """

    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "residual": (0, 1),
    }
    sums: ClassVar[int]
    """Gradients of parameters."""

    @final
    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """Two rows in and one out; a residual is one row in more."""
        elements = sizes["tokens"] * sizes["hidden"]
        whole = elements * element_bytes(variant.dtype)
        return Gradient((2 + sizes.get("residual", 0)) * whole, whole, elements * 12)

    @final
    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """See :meth:`ChainedKernel.analyse_with`; rows with a residual have passes of their own."""
        residual = batch.dims.get("residual", 0)
        if batch.numbers or np.ndim(residual) == 0 or len(np.unique(residual)) == 1:
            return super().analyse_with(batch, device, c)
        rows = [np.flatnonzero(residual == value) for value in np.unique(residual)]
        parts = [super(_Norm, self).analyse_with(batch.rows(part), device, c) for part in rows]
        order = np.argsort(np.concatenate(rows))
        analysis: Analysis = on_arrays(joined(parts), lambda values: values[order])
        return analysis

    @final
    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        """Operands, their gradients of a step before, and the passes of the style."""
        c, size = Chain(), call.size
        rows, hidden = sizes["tokens"], sizes["hidden"]
        elements = rows * hidden
        operands = 2 if np.any(sizes.get("residual", 0)) else 1
        x = tuple(c.tensor(elements, size) for _ in range(operands))
        dy = tuple(c.gradient(elements, size) for _ in range(operands))
        for _ in range(operands):
            c.gradient(elements, size)
        chained = call.style in (EAGER, COMPILED) or call.kernel == SEPARATE
        if not chained:
            self._at_once(c, x, dy, sizes, call)
            return c
        row = x[0]
        if operands == 2:
            row = c.run("pointwise", x, elements, size)
        if call.style == EAGER and (self.is_operator or call.kernel == OPERATOR):
            dx = self._operator(c, row, dy[0], sizes)
        elif call.style == EAGER:
            dx = self._written_out(c, row, dy[0])
        else:
            dx = self._at_once(c, (row,), dy[:1], sizes, call)
        if operands == 2:  # gradients of the sum come together; each operand gets its own
            both = c.run("pointwise", (dx, dy[1]), elements, size)
            c.drop(dx)
            for _ in range(2):
                c.run("pointwise", (both,), elements, size)
        return c

    def _operator(self, c: Chain, x: PassTensor, dy: PassTensor, sizes: Sizes) -> PassTensor:
        """A framework's operator, which sweeps rows twice, and its gradient up to the releases that
        the library states.
        """
        rows, hidden = sizes["tokens"], sizes["hidden"]
        swept = hidden * x.size
        stream = two_sweeps(rows, hidden, x.size)
        c.run(self.family, (x,), x.elements, x.size, stream=stream)
        c.gradients()
        dx = c.run("norm_grad", (dy, x), x.elements, x.size, again=2 * x.bytes,
                   swept_bytes=2 * swept, rows=rows)  # fmt: skip
        c.into("columns", (dy, x), (), work=x.elements)
        return dx

    def _at_once(
        self,
        c: Chain,
        x: tuple[PassTensor, ...],
        dy: tuple[PassTensor, ...],
        sizes: Sizes,
        call: RowCall,
    ) -> PassTensor:
        """A kernel by rows for either direction, which takes a residual along."""
        rows, hidden = sizes["tokens"], sizes["hidden"]
        elements, size = x[0].elements, x[0].size
        by_hand = call.style == BY_HAND
        results = tuple(c.tensor(elements, size) for _ in x)
        if call.style in (BY_HAND, COMPILED):
            c.views(VIEWS * by_hand)
            c.into("rows", x, results, rows=rows, spilled=rows * spilled_of_rows(hidden, len(x)))
        else:
            c.into(self.family, x, results, stream=self.stream(sizes, call.variant))
        c.gradients()
        normed = results[-1] if len(x) > 1 else x[0]
        reads, dx = (dy[0], normed, *dy[1:]), c.tensor(elements, size)
        if by_hand:
            c.views(2 * VIEWS)
            partial = c.tensor(self.sums * call.cores * hidden, FP32_BYTES)
            c.into(
                "loop",
                reads,
                (dx, partial),
                work=elements,
                rows=rows,
                spilled=rows * spilled_of_rows(hidden, 1 + self.sums + len(dy)),
            )
            c.into("columns", (partial,), (), work=partial.elements)
            c.small(self.sums)
            return dx
        held = xp.minimum(rows, ceil_div(elements, BLOCK_ELEMENTS))
        c.into("row_grad", reads, (dx,), rows=held, spilled=rows * spilled_of_rows(hidden, 3))
        if self.kernel_style(call.variant) != ONE_SWEEP:
            compiled = call.style == COMPILED  # which sums parts of all columns first
            kind, blocks = "split_sums", None
            if not compiled:
                kind, blocks = "weight_sums", ceil_div(hidden, BLOCK_COLUMNS)
            c.into(kind, (dy[0], normed), (), work=elements, blocks=blocks)
        c.small(1)
        return dx

    def _written_out(self, c: Chain, x: PassTensor, dy: PassTensor) -> PassTensor:
        """The gradient of ``x`` in a model's own code; only norms that are no operator have it."""
        raise NotImplementedError


@register
@final
class RmsNorm(_Norm):
    """RMSNorm; a model's own code writes it out."""

    family: ClassVar[str] = "rmsnorm"
    sums: ClassVar[int] = 1

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Row in and out, the weight once; the residual in and out if fused."""
        size = element_bytes(variant.dtype)
        elements = sizes["tokens"] * sizes["hidden"]
        streams = 1 + sizes.get("residual", 0)
        return Stream(
            read_bytes=(elements * streams + sizes["hidden"]) * size,
            write_bytes=elements * streams * size,
            flops=elements * (3 + streams),
            fma=elements * (3 + streams),
            xu=sizes["tokens"],
            tasks=sizes["tokens"],
            # the fused kernel's second sweep waits for the sum that the first has written
            trips=2.0 + sizes.get("residual", 0),
            reductions=1.0,
            # the fused kernel writes norm and sum where input and residual were
            in_place_bytes=elements * 2 * size * sizes.get("residual", 0),
            shared_bytes=sizes["hidden"] * size,
            # scalar kernels read the row again to scale it
            reread_bytes=elements * size if self.is_scalar(variant) else None,
        )

    def _written_out(self, c: Chain, x: PassTensor, dy: PassTensor) -> PassTensor:
        n, size, wide = x.elements, x.size, FP32_BYTES
        narrow = size < wide
        x32 = c.run("pointwise", (x,), n, wide) if narrow else x
        square = c.run("pointwise", (x32,), n, wide)
        c.into("row_sums", (square,), (), work=n)
        c.drop(square)
        c.small(2)
        unit = c.run("broadcast", (x32,), n, wide)
        if narrow:
            wider, unit = unit, c.run("pointwise", (unit,), n, size)
            c.drop(wider)
        c.run("broadcast", (unit,), n, WIDE_WEIGHT)
        c.gradients()
        # times the weight
        dy32 = c.run("pointwise", (dy,), n, wide) if narrow else dy
        d_unit = c.run("broadcast", (dy32,), n, wide)
        d_weight = c.run("pointwise", (dy32, unit), n, wide)
        c.into("columns", (d_weight,), (), work=n)
        c.drop(d_weight)
        if narrow:  # the cast of the forward pass, back and forth
            wider, d_unit = d_unit, c.run("pointwise", (d_unit,), n, size)
            c.drop(wider)
            other, d_unit = d_unit, c.run("pointwise", (d_unit,), n, wide)
            c.drop(other)
        # times the reciprocal root
        direct = c.run("broadcast", (d_unit,), n, wide)
        d_root = c.run("pointwise", (d_unit, x32), n, wide)
        c.into("row_sums", (d_root,), (), work=n)
        c.drop(d_root, d_unit)
        c.small(4)
        # the mean of squares
        d_mean = c.run("broadcast", (), n, wide)
        twice = c.run("pointwise", (x32,), n, wide)
        power: tuple[PassTensor, ...] = (twice,)
        if narrow:  # the first power is a copy, which lives to the end of the expression
            twice = c.run("pointwise", (twice,), n, wide)
            power = (*power, twice)
        d_square = c.run("pointwise", (d_mean, twice), n, wide)
        c.drop(d_mean, *power)
        dx = c.run("pointwise", (direct, d_square), n, wide)
        c.drop(direct, d_square)
        if narrow:
            dx = c.run("pointwise", (dx,), n, size)
        return dx


@register
@final
class LayerNorm(_Norm):
    """LayerNorm: an operator of every framework; as RMSNorm with a mean, a bias and, in eager
    frameworks, the row statistics kept for backward.
    """

    family: ClassVar[str] = "layernorm"
    is_operator: ClassVar[bool] = True
    sums: ClassVar[int] = 2

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """One kernel; a framework's residual is added by another before it."""
        residual = sizes.get("residual", 0)
        added = residual * self.runs_operator(variant)
        size = element_bytes(variant.dtype)
        return two_sweeps(sizes["tokens"], sizes["hidden"], size, residual, added)


def two_sweeps(rows: Any, hidden: Any, size: int, residual: Any = 0, added: Any = 0) -> Stream:
    """Row in and out, weight and bias once; a second sweep writes what the first measured.

    Args:
        rows, hidden: rows and their elements.
        size: bytes of an element.
        residual: 1 = the row is a sum, which is a result too.
        added: 1 = another kernel makes that sum before.
    """
    elements, streams = rows * hidden, 1 + residual
    return Stream(
        read_bytes=(elements * streams + 2 * hidden) * size,
        write_bytes=elements * streams * size, flops=elements * (6 + streams),
        fma=elements * (6 + streams), xu=rows, tasks=rows, trips=2.0, reductions=1.0,
        kernels=1.0 + added, reread_bytes=elements * size * (1 + added), blocks_per_core=8.0,
        shared_bytes=2 * hidden * size,
    )  # fmt: skip


@register
@final
class NormGradient(_Norm):
    """Gradients of either norm, as graphs of training call them: of the input by rows, of weight
    and bias by columns. Dimensions: tokens, hidden.
    """

    family: ClassVar[str] = "norm_backward"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "hidden": (1, 1 << 18)}
    is_operator: ClassVar[bool] = True
    sums: ClassVar[int] = 1

    def direction(self, variant: Variant) -> Direction:  # noqa: ARG002
        return Direction(forward=False, backward=True)

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """The norm before it."""
        return _RMS_NORM.stream(sizes, variant)


_RMS_NORM = RmsNorm()
