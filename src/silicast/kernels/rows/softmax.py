"""Softmax over rows, as its providers run it, forward and backward.

Rows that fit on the chip are read once. A framework's operator, and kernels like it, have one block
a row; longer rows are swept for their maximum, for their sum and to be written, with sums over all
threads between. Kernels by hand keep the row in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core import xp
from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import EAGER, SUMMED, RowCall, spilled_of_rows
from silicast.kernels.rows.pass_chain import Chain, PassTensor
from silicast.kernels.rows.row_kernel import CHAINED, Gradient, RowKernel
from silicast.workload.graphs.op import Variant

ON_CHIP_COLS = 1024
"""Rows up to this length stay in the registers of a warp and are read once."""

VECTOR_BYTES = 16
"""Rows that are no multiple of it are loaded element by element."""


@register
@final
class Softmax(RowKernel):
    """Dimensions: rows, cols. Flag ``summed``: the result is summed before its gradient."""

    family: ClassVar[str] = "softmax"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 24), "cols": (1, 1 << 20)}
    is_operator: ClassVar[bool] = True

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Each element in and out once; one exponential an element."""
        return softmax_stream(sizes["rows"], sizes["cols"], element_bytes(variant.dtype))

    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """Gradient and result in, one tensor out."""
        elements = sizes["rows"] * sizes["cols"]
        whole = elements * element_bytes(variant.dtype)
        return Gradient(2 * whole, whole, elements * 4)

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, rows, cols = Chain(), sizes["rows"], sizes["cols"]
        n = rows * cols
        x, dy = c.tensor(n, call.size), c.gradient(n, call.size)
        c.gradient(n, call.size)
        y = log_softmax(c, x, rows, cols, call)
        c.gradients()
        if call.has(SUMMED):
            c.into("row_sums", (y,), (), work=n)
            dy = c.run("pointwise", (), n, call.size)
        softmax_gradient(c, dy, y, rows, cols, call)
        return c


def softmax_stream(rows: Any, cols: Any, size: int) -> Stream:
    """One kernel over rows of elements of ``size`` bytes."""
    elements = rows * cols
    longer = cols > ON_CHIP_COLS
    return Stream(
        read_bytes=elements * size,
        write_bytes=elements * size,
        flops=elements * 5,
        fma=elements * 5,
        xu=elements,
        tasks=rows,
        trips=2.0,
        reductions=2.0,
        # a long row is swept for its statistics before the sweep that writes
        reread_bytes=2 * elements * size * longer,
        rereads=2.0,
        blocks_per_core=1.0,
        scattered_bytes=2 * elements * size * (cols * size % VECTOR_BYTES != 0),
    )


def log_softmax(c: Chain, x: PassTensor, rows: Any, cols: Any, call: RowCall) -> PassTensor:
    """Softmax of rows, or its logarithm."""
    if call.style in CHAINED and call.style != EAGER:
        spilled = rows * spilled_of_rows(cols, 2)
        return c.run("rows", (x,), x.elements, x.size, rows=rows, spilled=spilled)
    stream = softmax_stream(rows, cols, x.size)
    return c.run(Softmax.family, (x,), x.elements, x.size, stream=stream)


def softmax_gradient(
    c: Chain, dy: PassTensor, y: PassTensor, rows: Any, cols: Any, call: RowCall
) -> PassTensor:
    """Gradient and result in, the operand's gradient out."""
    if call.style != EAGER:
        spilled = rows * spilled_of_rows(cols, 3)
        return c.run("rows", (dy, y), y.elements, y.size, rows=rows, spilled=spilled)
    long = cols > ON_CHIP_COLS
    return c.run("softmax_grad", (dy, y), y.elements, y.size, again=y.bytes * long,
                 swept_bytes=cols * y.size, rows=xp.where(long, rows, rows * 0))  # fmt: skip
