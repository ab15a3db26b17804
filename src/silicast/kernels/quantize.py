"""Quantising activations to 8 bits: scales per token (default), per group, or given in advance.

Flags of the variant: ``static`` (the scale is known, no maximum is taken), ``grouped`` (one scale
for every 128 elements instead of one a token).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.implementation import register
from silicast.kernels.streaming import Sizes, Stream, StreamingKernel
from silicast.workload.op import Variant

INPUT_BYTES = 2
GROUP_SIZE = 128
FLAT_BLOCK = 2048


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
        scales = tokens * 0 if variant.flag("static") else tokens
        if variant.flag("grouped"):
            scales = tokens * -(-sizes["hidden"] // GROUP_SIZE)
        # TensorRT-LLM scales with a flat grid, vLLM with a row a block
        flat = variant.library == "trtllm" and variant.flag("static")
        return Stream(
            read_bytes=elements * INPUT_BYTES,
            write_bytes=elements + scales * 4,
            flops=elements * 3,
            fma=elements * 4,
            xu=scales,
            tasks=-(-elements // FLAT_BLOCK) if flat else tokens,
            trips=1.0 if variant.flag("static") else 2.0,
            reductions=0.0 if variant.flag("static") else 1.0,
            reread_bytes=0 if variant.flag("static") else elements * INPUT_BYTES,
        )
