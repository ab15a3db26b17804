"""Norms as their providers run them, forward and backward.

eager: a model's own code, operator by operator (Hugging Face's ``LlamaRMSNorm``: to fp32, square,
mean, reciprocal root, product, back, times the weight); autograd keeps what each operator's
gradient reads. A framework has LayerNorm as one operator.
fused: the framework's own operator: a sweep for the statistics and one that writes; backward a
kernel by rows and one by columns, for the weight.
compiled: one kernel by rows; backward another, and sums of columns.
by hand: one block a row, which stays in registers; backward as many blocks as there are cores,
each adding up the weight's gradient over its share of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import (
    BY_HAND,
    COMPILED,
    RESIDUAL,
    Call,
    ChainedKernel,
    Least,
    spilled_of_rows,
)
from silicast.kernels.rows.pass_chain import Chain, Sizes, Tensor
from silicast.workload.graphs.op import Variant

FP32_BYTES = 4
SEPARATE = "separate_add"
"""Name of a kernel by hand whose residual the framework adds before."""
OPERATOR = "fused"
"""Name of the framework's own operator, where models write the norm out."""
VIEWS = 4
"""Calls around a kernel by hand: rows are folded and unfolded, sizes are checked."""
WIDE_WEIGHT = FP32_BYTES
"""Parameters of modules are fp32 unless a model is loaded narrower; results take the wider format
of row and weight."""


class _Norm(ChainedKernel):
    """Dimensions: tokens, hidden. Flag ``residual``: the row is a sum, which is a result too."""

    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "hidden": (1, 1 << 17)}
    sums: ClassVar[int]
    """Gradients of parameters."""

    @final
    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Row in and out; backward two rows in and one out. A residual is one row more each."""
        elements = sizes["tokens"] * sizes["hidden"]
        whole = elements * element_bytes(variant.dtype)
        streams = 2 if variant.flag(RESIDUAL) else 1
        return Least(
            streams * whole,
            streams * whole,
            (1 + streams) * whole,
            whole,
            elements * 4,
            elements * 12,
        )

    @final
    def chain(self, sizes: Sizes, call: Call) -> Chain:
        """Operands, their gradients of a step before, and the passes of the style."""
        c, size = Chain(), call.size
        rows, hidden = sizes["tokens"], sizes["hidden"]
        elements = rows * hidden
        operands = 2 if RESIDUAL in call.flags else 1
        x = [c.tensor(elements, size) for _ in range(operands)]
        dy = [c.gradient(elements, size) for _ in range(operands)]
        for _ in range(operands):
            c.gradient(elements, size)
        if call.style == BY_HAND and call.kernel != SEPARATE:
            self._by_hand(c, tuple(x), tuple(dy), rows, hidden, call.cores)
            return c
        row = x[0]
        if operands == 2:
            row = c.run("pointwise", tuple(x), elements, size)
        if call.style == BY_HAND:
            dx = self._by_hand(c, (row,), (dy[0],), rows, hidden, call.cores)
        elif call.style == COMPILED:
            dx = self._compiled(c, row, dy[0], rows, hidden)
        elif self.is_operator or call.kernel == OPERATOR:
            dx = self._operator(c, row, dy[0], rows, hidden)
        else:
            dx = self._written_out(c, row, dy[0])
        if operands == 2:  # gradients of the sum come together; each operand gets its own
            both = c.run("pointwise", (dx, dy[1]), elements, size)
            c.drop(dx)
            for _ in range(2):
                c.run("pointwise", (both,), elements, size)
        return c

    is_operator: ClassVar[bool]
    """Models call the framework's operator."""

    def _operator(self, c: Chain, x: Tensor, dy: Tensor, rows: Any, hidden: Any) -> Tensor:
        swept = hidden * x.size
        c.run("norm", (x,), x.elements, x.size, again=x.bytes, swept_bytes=swept, rows=rows)
        c.gradients()
        dx = c.run("norm_grad", (dy, x), x.elements, x.size, again=2 * x.bytes,
                   swept_bytes=2 * swept, rows=rows)  # fmt: skip
        c.into("columns", (dy, x), (), work=x.elements)
        return dx

    def _compiled(self, c: Chain, x: Tensor, dy: Tensor, rows: Any, hidden: Any) -> Tensor:
        c.run("rows", (x,), x.elements, x.size, rows=rows)
        c.gradients()
        dx = c.run(
            "rows",
            (dy, x),
            x.elements,
            x.size,
            rows=rows,
            spilled=rows * spilled_of_rows(hidden, 3),
        )
        c.into("columns", (dy, x), (), work=x.elements)
        c.small(1)
        return dx

    def _by_hand(
        self,
        c: Chain,
        x: tuple[Tensor, ...],
        dy: tuple[Tensor, ...],
        rows: Any,
        hidden: Any,
        cores: int,
    ) -> Tensor:
        elements, size = x[0].elements, x[0].size
        c.views(VIEWS)
        results = tuple(c.tensor(elements, size) for _ in x)
        c.into("rows", x, results, rows=rows, spilled=rows * spilled_of_rows(hidden, len(x)))
        c.gradients()
        c.views(2 * VIEWS)
        dx = c.tensor(elements, size)
        partial = c.tensor(self.sums * cores * hidden, FP32_BYTES)
        remaining = results[-1] if len(x) > 1 else x[0]
        c.into(
            "loop",
            (dy[0], remaining, *dy[1:]),
            (dx, partial),
            work=elements,
            rows=rows,
            spilled=rows * spilled_of_rows(hidden, 1 + self.sums + len(dy)),
        )
        c.into("columns", (partial,), (), work=partial.elements)
        c.small(self.sums)
        return dx

    def _written_out(self, c: Chain, x: Tensor, dy: Tensor) -> Tensor:
        """The gradient of ``x`` in a model's own code; only norms that are no operator have it."""
        raise NotImplementedError


@register
@final
class RmsNormChain(_Norm):
    """RMSNorm; a model's own code writes it out."""

    family: ClassVar[str] = "rmsnorm_chain"
    is_operator: ClassVar[bool] = False
    sums: ClassVar[int] = 1

    def _written_out(self, c: Chain, x: Tensor, dy: Tensor) -> Tensor:
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
        power: tuple[Tensor, ...] = (twice,)
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
class LayerNormChain(_Norm):
    """LayerNorm: an operator of every framework."""

    family: ClassVar[str] = "layernorm_chain"
    is_operator: ClassVar[bool] = True
    sums: ClassVar[int] = 2
