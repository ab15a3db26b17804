"""SiLU(gate) * up, the activation of gated MLPs, as its providers run it, forward and backward.

Gate and up are halves of one tensor, so that a framework's operators walk strided rows; gradients
of the halves are put side by side again. A fused kernel reads both and writes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import EAGER, FUSED, SUMMED, RowCall
from silicast.kernels.rows.pass_chain import Chain
from silicast.kernels.rows.row_kernel import Gradient, RowKernel
from silicast.workload.graphs.op import Variant

IN_PLACE = "in_place"
"""Name of a kernel by hand whose gradients take the place of gate and up."""


@register
@final
class SiluMul(RowKernel):
    """Dimensions: tokens, width (gate and up together, even)."""

    family: ClassVar[str] = "silu_mul"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "width": (2, 1 << 19)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """The whole input once, half as much out; exponential and reciprocal on the XU."""
        size = element_bytes(variant.dtype)
        outputs = sizes["tokens"] * (sizes["width"] // 2)
        return Stream(
            read_bytes=2 * outputs * size,
            write_bytes=outputs * size,
            flops=outputs * 5,
            fma=outputs * 6,
            xu=outputs * 2,
            tasks=sizes["tokens"],
        )

    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """Both halves and the result's gradient in, both halves' gradients out."""
        n = sizes["tokens"] * (sizes["width"] // 2)
        whole = n * element_bytes(variant.dtype)
        return Gradient(3 * whole, 2 * whole, n * 8)

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size, rows = Chain(), call.size, sizes["tokens"]
        half = sizes["width"] // 2
        n = rows * half
        gate, up = c.tensor(n, size), c.tensor(n, size)
        one_kernel = call.style != EAGER
        summed = call.has(SUMMED)
        dy = () if summed else (c.gradient(n, size),)
        if call.style == FUSED:
            y = c.run(self.family, (gate, up), n, size, stream=self.stream(sizes, call.variant))
        elif one_kernel:
            y = c.run("gated", (gate, up), n, size, rows=rows)
        else:
            silu = c.run("strided", (gate,), n, size)
            y = c.run("strided", (silu, up), n, size)
        c.gradients()
        if summed:
            c.into("row_sums", (y,), (), work=n)
        if one_kernel:
            if summed:  # a gradient that is one number is written out for a kernel by hand
                dy = (c.run("pointwise", (), n, size),)
            results = gate, up
            if call.kernel != IN_PLACE:
                results = c.tensor(n, size), c.tensor(n, size)
            c.into("gated", (*dy, gate, up), results, work=n, rows=rows)
            return c
        d_up = c.run("strided", (*dy, silu), n, size)
        d_silu = c.run("strided", (*dy, up), n, size)
        c.drop(silu)
        d_gate = c.run("strided", (d_silu, gate), n, size)
        c.drop(d_silu)
        c.run("pointwise", (d_gate, d_up), 2 * n, size)
        return c
