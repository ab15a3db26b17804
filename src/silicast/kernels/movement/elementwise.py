"""Elementwise kernels: one or two tensors in, one out.

The kind of operation is the one flag of the variant that is set: ``flags=(("gelu", True),)``.
``inputs`` counts the tensors that are read: an operation with a scalar is the same kind with
``inputs=1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, final

from silicast.core.errors import unknown_name
from silicast.kernels.movement.streaming import (
    Sizes,
    Stream,
    StreamingKernel,
    element_bytes,
    fullest_share,
)
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Variant

PER_BLOCK = 1024

KINDS: Mapping[str, tuple[int, int, int]] = {
    # kind: (flops, FMA-pipe and XU instructions an element), from the usual SASS sequences
    "copy": (0, 0, 0),
    "cast": (0, 1, 0),
    "relu": (1, 1, 0),
    "add": (1, 1, 0),
    "mul": (1, 1, 0),
    "div": (1, 8, 1),
    "sqrt": (1, 4, 1),
    "exp": (1, 2, 1),
    "sigmoid": (4, 4, 2),
    "silu": (5, 5, 2),
    "tanh": (1, 8, 2),
    "gelu": (8, 20, 1),
    "pow": (1, 20, 2),
}
"""Known kinds; "add" stands for every cheap arithmetic operation."""


@lru_cache(maxsize=512)
def kind_of(variant: Variant) -> str:
    """The kind of an elementwise variant; "add" if no flag says so.

    Raises:
        SilicastError: a flag that is set names no known kind.
    """
    named = [name for name, value in variant.flags if value]
    for name in named:
        if name in KINDS:
            return name
    if named:
        raise unknown_name(
            f"unknown elementwise kind {named[0]!r}", "kind", f"one of {', '.join(KINDS)}"
        )
    return "add"


@register
@final
class Elementwise(StreamingKernel):
    """Dimensions: elements (of the result), inputs (tensors read, default 1)."""

    family: ClassVar[str] = "elementwise"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"elements": (1, 1 << 34), "inputs": (1, 8)}

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Every input and the result once."""
        size = element_bytes(variant.dtype)
        flops, fma, xu = KINDS[kind_of(variant)]
        elements = sizes["elements"]
        return Stream(
            read_bytes=elements * sizes.get("inputs", 1) * size,
            write_bytes=elements * size,
            flops=elements * flops,
            fma=elements * fma,
            xu=elements * xu,
            tasks=-(-elements // PER_BLOCK),
            block_share=fullest_share(elements, PER_BLOCK),
        )
