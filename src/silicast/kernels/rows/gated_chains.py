"""Gated activations of MLPs as their providers run them: silu(gate) * up, forward and backward.

Gate and up are halves of one tensor, so that a framework's operators walk strided rows; gradients
of the halves are put side by side again. A kernel by hand reads both and writes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import BY_HAND, COMPILED, SUMMED, Call, ChainedKernel, Least
from silicast.kernels.rows.pass_chain import Chain, Sizes
from silicast.workload.graphs.op import Variant

IN_PLACE = "in_place"
"""Name of a kernel by hand whose gradients take the place of gate and up."""


@register
@final
class SiluMulChain(ChainedKernel):
    """Dimensions: tokens, width (gate and up together, even)."""

    family: ClassVar[str] = "silu_mul_chain"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "width": (2, 1 << 19)}

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Both halves in, one tensor out; backward that one's gradient too, both halves out."""
        size = element_bytes(variant.dtype)
        n = sizes["tokens"] * (sizes["width"] // 2)
        whole = n * size
        return Least(2 * whole, whole, 3 * whole, 2 * whole, n * 5, n * 8)

    def chain(self, sizes: Sizes, call: Call) -> Chain:
        c, size, rows = Chain(), call.size, sizes["tokens"]
        half = sizes["width"] // 2
        n = rows * half
        gate, up = c.tensor(n, size), c.tensor(n, size)
        one_kernel = call.style in (BY_HAND, COMPILED)
        summed = SUMMED in call.flags
        dy = () if summed else (c.gradient(n, size),)
        if one_kernel:
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
