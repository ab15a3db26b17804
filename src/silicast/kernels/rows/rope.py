"""Rotary position embedding of queries and keys, as its providers run it, forward and backward.

eager: each of queries and keys times cosines, plus its halves swapped times sines: the swap is a
negation and a concatenation; backward each slice's gradient is a tensor of zeros with the slice
copied in, and three gradients are summed. Named "complex", the code casts to fp32, multiplies
complex numbers and casts back. One fused kernel rotates both in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import EAGER, FUSED, RowCall
from silicast.kernels.rows.pass_chain import Chain, PassTensor
from silicast.kernels.rows.row_kernel import Gradient, RowKernel
from silicast.workload.graphs.op import Variant

COMPLEX = "complex"
"""Name of the code that multiplies complex numbers."""
FP32_BYTES = 4
SLICES = 8
"""Calls that cut queries and keys in halves, and their gradients."""
VIEWS = 12
"""Calls around the kernel by hand: heads and tokens change places and back, sizes are checked."""


@register
@final
class Rope(RowKernel):
    """Dimensions: tokens, num_heads, num_kv_heads, head_dim."""

    family: ClassVar[str] = "rope"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "num_heads": (1, 512),
        "num_kv_heads": (1, 512),
        "head_dim": (2, 1024),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Queries and keys in and out, a row of cosines and sines and a position per token."""
        size = element_bytes(variant.dtype)
        heads = sizes["num_heads"] + sizes["num_kv_heads"]
        elements = sizes["tokens"] * heads * sizes["head_dim"]
        zero = sizes["tokens"] * 0
        return Stream(
            read_bytes=elements * size + sizes["tokens"] * (sizes["head_dim"] * size + 8),
            write_bytes=elements * size,
            flops=elements * 3,
            fma=elements * 4,
            xu=zero,
            tasks=sizes["tokens"],
            trips=2.0,
            in_place_bytes=elements * size,
        )

    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """Queries and keys in and out, cosines and sines in."""
        size = element_bytes(variant.dtype)
        heads = sizes["num_heads"] + sizes["num_kv_heads"]
        n = sizes["tokens"] * heads * sizes["head_dim"]
        table = sizes["tokens"] * sizes["head_dim"] * size
        return Gradient(n * size + table, n * size, 3 * n)

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size, tokens = Chain(), call.size, sizes["tokens"]
        c.tensor(sizes["tokens"] * 0 + 1, call.workspace_bytes)  # angles are a matrix product
        elements = tokens * sizes["head_dim"]
        counts = elements * sizes["num_heads"], elements * sizes["num_kv_heads"]
        table = c.tensor(elements, size), c.tensor(elements, size)
        operands = [c.tensor(n, size) for n in counts]
        gradients = [c.gradient(n, size) for n in counts]
        if call.style != EAGER:
            for direction in (operands, gradients):
                c.views(VIEWS)
                kind = "rotate_complex" if call.kernel == COMPLEX else "rotate"
                fused = call.style == FUSED and direction is operands
                c.into(
                    self.family if fused else kind,
                    (*direction, *table),
                    tuple(direction),
                    work=direction[0].elements + direction[1].elements,
                    stream=self.stream(sizes, call.variant) if fused else None,
                )
                if direction is operands:
                    c.gradients()
            return c
        forward, backward = (
            (self._complex, self._complex_back)
            if call.kernel == COMPLEX
            else (self._rotated, self._rotated_back)
        )
        c.views(SLICES)
        forward(c, operands, table)
        c.gradients()
        c.views(2 * SLICES)
        backward(c, gradients[::-1], table)
        return c

    @staticmethod
    def _rotated(c: Chain, operands: list[PassTensor], table: tuple[PassTensor, ...]) -> None:
        for x in operands:
            n, size = x.elements, x.size
            direct = c.run("strided", (x, table[0]), n, size)
            negative = c.run("strided", (PassTensor(n // 2, size),), n // 2, size)
            swapped = c.run("concatenate", (negative, PassTensor(n - n // 2, size)), n, size)
            c.drop(negative)
            turned = c.run("strided", (swapped, table[1]), n, size)
            c.drop(swapped)
            c.run("pointwise", (direct, turned), n, size)
            c.drop(direct, turned)

    @staticmethod
    def _rotated_back(c: Chain, gradients: list[PassTensor], table: tuple[PassTensor, ...]) -> None:
        for dy in gradients:
            n, size = dy.elements, dy.size
            half = n // 2
            turned = c.run("strided", (dy, table[1]), n, size)
            negative = c.run("strided", (PassTensor(half, size),), half, size)
            slices = []
            for part in (negative, turned):  # zeros, with the slice's gradient copied in
                slices.append(c.run("pointwise", (), n, size))
                c.into("strided", (PassTensor(half, size),), (PassTensor(half, size),), work=half)
                c.drop(part)
            result, other = slices
            c.into("pointwise", (result, other), (result,))
            c.drop(other)
            direct = c.run("strided", (dy, table[0]), n, size)
            c.into("pointwise", (result, direct), (result,))
            c.drop(direct)

    @staticmethod
    def _complex(c: Chain, operands: list[PassTensor], table: tuple[PassTensor, ...]) -> None:
        """All are cast, all are turned, and all are cast back."""
        wide = [c.run("pointwise", (x,), x.elements, FP32_BYTES) for x in operands]
        turned = [c.run("complex", (x, *table), x.elements, FP32_BYTES) for x in wide]
        for x, operand in zip(turned, operands, strict=True):
            c.run("pointwise", (x,), x.elements, operand.size)
        c.drop(*wide, *turned)

    @staticmethod
    def _complex_back(c: Chain, gradients: list[PassTensor], table: tuple[PassTensor, ...]) -> None:
        """Each is cast, turned back and cast."""
        for dy in gradients:
            wide = c.run("pointwise", (dy,), dy.elements, FP32_BYTES)
            turned = c.run("complex", (wide, *table), dy.elements, FP32_BYTES)
            c.drop(wide)
            c.run("pointwise", (turned,), dy.elements, dy.size)
            c.drop(turned)
