"""A gated MLP as its providers run it, forward and backward: two products, activation and product,
and the product back.

eager: activation and product are two passes, and all four tensors of the inner width are kept. By
hand they are one kernel, which keeps two of its operands and writes their gradients in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.kernels.movement.streaming import Sizes, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import BY_HAND, COMPILED, ChainedKernel, Least, RowCall
from silicast.kernels.rows.pass_chain import Chain
from silicast.workload.graphs.op import Variant


@register
@final
class GatedMlpChain(ChainedKernel):
    """Dimensions: tokens, hidden, intermediate."""

    family: ClassVar[str] = "gated_mlp"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 20),
        "hidden": (64, 1 << 16),
        "intermediate": (64, 1 << 18),
    }

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Rows and weights in, rows out; backward two of rows and the weights in, gradients out."""
        size = element_bytes(variant.dtype)
        m, h, i = (sizes[name] for name in ("tokens", "hidden", "intermediate"))
        rows, weights = m * h * size, 3 * h * i * size
        up, down = (m, i, h), (m, h, i)
        back = (down, down, up, (h, i, m), (h, i, m), (i, h, m))
        return Least(
            rows + weights,
            rows,
            2 * rows + weights,
            rows + weights,
            5 * m * i,
            8 * m * i,
            products=(up, up, down),
            products_back=back,
        )

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size = Chain(), call.size
        m, h, i = (sizes[name] for name in ("tokens", "hidden", "intermediate"))
        one_kernel = call.style in (BY_HAND, COMPILED)
        c.tensor(m * 0 + 1, call.workspace_bytes)
        x = c.tensor(m * h, size)
        weights = [c.tensor(h * i, size) for _ in range(3)]
        sums = [c.gradient(h * i, size) for _ in range(3)]
        dy = c.gradient(m * h, size)
        c.gradient(m * h, size)
        gate = c.multiply(x, weights[0], (m, i, h))
        if not one_kernel:
            active = c.run("pointwise", (gate,), m * i, size)
        up = c.multiply(x, weights[1], (m, i, h))
        if one_kernel:
            inner = c.run("gated", (gate, up), m * i, size, rows=m)
        else:
            inner = c.run("pointwise", (active, up), m * i, size)
        c.multiply(inner, weights[2], (m, h, i))
        c.gradients()

        def weight_gradient(index: int, sizes_of: tuple[Any, Any, Any]) -> None:
            multiply = c.multiply(x, dy, sizes_of)
            c.into("pointwise", (sums[index], multiply), (sums[index],))
            c.drop(multiply)

        d_inner = c.multiply(dy, weights[2], (m, i, h))
        weight_gradient(2, (i, h, m))
        if one_kernel:
            c.drop(inner)
            c.into("gated", (d_inner, gate, up), (gate, up), work=m * i, rows=m)
        else:
            d_up = c.run("pointwise", (d_inner, active), m * i, size)
            d_active = c.run("pointwise", (d_inner, up), m * i, size)
            c.drop(d_inner)
            c.run("pointwise", (d_active, gate), m * i, size)
            c.drop(d_active, d_up)
        dx = c.multiply(gate, weights[0], (m, h, i))
        weight_gradient(0, (h, i, m))
        weight_product = c.multiply(up, weights[1], (m, h, i))
        weight_gradient(1, (h, i, m))
        c.into("pointwise", (dx, weight_product), (dx,))
        return c
