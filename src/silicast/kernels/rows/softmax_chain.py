"""Softmax as its providers run it, forward and backward.

A framework's operator has one block a row; rows of more than 1,024 columns are swept for their
maximum, for their sum and to be written, with sums over all threads between. Kernels by hand keep
the row in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core import xp
from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import (
    BY_HAND,
    COMPILED,
    SUMMED,
    Call,
    ChainedKernel,
    Least,
    spilled_of_rows,
)
from silicast.kernels.rows.pass_chain import Chain, Sizes, Tensor
from silicast.kernels.rows.softmax import ON_CHIP_COLS
from silicast.workload.graphs.op import Variant


@register
@final
class SoftmaxChain(ChainedKernel):
    """Dimensions: rows, cols. Flag ``summed``: the result is summed before its gradient."""

    family: ClassVar[str] = "softmax_chain"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 24), "cols": (1, 1 << 20)}

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Row in and out; backward gradient and result in, one out."""
        size = element_bytes(variant.dtype)
        elements = sizes["rows"] * sizes["cols"]
        whole = elements * size
        return Least(whole, whole, 2 * whole, whole, elements * 5, elements * 4)

    def chain(self, sizes: Sizes, call: Call) -> Chain:
        c, rows, cols = Chain(), sizes["rows"], sizes["cols"]
        n = rows * cols
        x, dy = c.tensor(n, call.size), c.gradient(n, call.size)
        c.gradient(n, call.size)
        y = log_softmax(c, x, rows, cols, call)
        c.gradients()
        if SUMMED in call.flags:
            c.into("row_sums", (y,), (), work=n)
            dy = c.run("pointwise", (), n, call.size)
        softmax_gradient(c, dy, y, rows, cols, call)
        return c


def log_softmax(c: Chain, x: Tensor, rows: Any, cols: Any, call: Call) -> Tensor:
    """Softmax of rows, or its logarithm."""
    if call.style in (BY_HAND, COMPILED):
        spilled = rows * spilled_of_rows(cols, 2)
        return c.run("rows", (x,), x.elements, x.size, rows=rows, spilled=spilled)
    return c.run("softmax", (x,), x.elements, x.size, **_sweeps(x, rows, cols, 2))


def softmax_gradient(c: Chain, dy: Tensor, y: Tensor, rows: Any, cols: Any, call: Call) -> Tensor:
    """Gradient and result in, the operand's gradient out."""
    if call.style in (BY_HAND, COMPILED):
        spilled = rows * spilled_of_rows(cols, 3)
        return c.run("rows", (dy, y), y.elements, y.size, rows=rows, spilled=spilled)
    return c.run("softmax", (dy, y), y.elements, y.size, **_sweeps(y, rows, cols, 1))


def _sweeps(x: Tensor, rows: Any, cols: Any, again: int) -> dict[str, Any]:
    """A block's sweeps of its row; short rows are held by a warp each."""
    long = cols > ON_CHIP_COLS
    return {
        "again": again * x.bytes * long,
        "swept_bytes": cols * x.size,
        "rows": xp.where(long, rows, rows * 0),
    }
