"""Quantising activations to 8 bits: scales per token (default), per group, or given in advance.

Flags of the variant: ``static`` (the scale is known, no maximum is taken), ``grouped`` (one scale
for every 128 elements instead of one a token); a dimension ``group_size`` says the same with its
size. Styles: a block takes a row (the default); "flat", a grid over all elements; "chain", several
operators, each a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from msgspec.structs import replace

from silicast.kernels.movement.streaming import Sizes, Stream, StreamingKernel, fullest_share
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

INPUT_BYTES = 2
GROUP_SIZE = 128
FLAT_BLOCK = 2048
CHAIN_KERNELS = 4
"""To fp32, divide, clamp, to fp8: between them an fp32 copy is written and read three times."""
CHAIN_BYTES = 3 * 2 * 4


@register
@final
class Quantize(StreamingKernel):
    """Dimensions: tokens, hidden. The dtype is the 8-bit target; the input is bf16."""

    family: ClassVar[str] = "quantize"
    dtypes: ClassVar[tuple[str, ...]] = ("fp8", "int8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"tokens": (1, 1 << 22), "hidden": (1, 1 << 18)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """bf16 in, one byte an element and the scales out."""
        tokens, elements = sizes["tokens"], sizes["tokens"] * sizes["hidden"]
        static = variant.flag("static") or variant.kernel.startswith("static")
        scales = tokens * 0 if static else tokens
        if "group_size" in sizes:
            scales = tokens * -(-sizes["hidden"] // sizes["group_size"])
        elif variant.flag("grouped"):
            scales = tokens * -(-sizes["hidden"] // GROUP_SIZE)
        moved = Stream(
            read_bytes=elements * INPUT_BYTES,
            write_bytes=elements + scales * 4,
            flops=elements * 3,
            fma=elements * 4,
            xu=scales,
            tasks=tokens,
        )
        style = self.kernel_style(variant)
        if style == "chain":
            return replace(
                moved,
                tasks=-(-elements // FLAT_BLOCK),
                trips=float(CHAIN_KERNELS),
                kernels=float(CHAIN_KERNELS),
                between_bytes=elements * CHAIN_BYTES,
            )
        if static and style == "flat":
            share = fullest_share(elements, FLAT_BLOCK)
            return replace(moved, tasks=-(-elements // FLAT_BLOCK), block_share=share)
        if static:
            return moved
        return replace(moved, trips=2.0, reductions=1.0, reread_bytes=elements * INPUT_BYTES)
