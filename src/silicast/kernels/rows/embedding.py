"""Embedding as its providers run it, forward and backward.

A framework's gather computes where each element lies, one at a time; compilers and kernels by hand
copy rows. Gradients: a table of zeros, then either tokens sorted by row, whose gradients are summed
in parts of a few and then row by row, or atomic additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core import xp
from silicast.core.numerics import exp_fixed
from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import ACCUMULATED, BY_HAND, EAGER, FUSED, RowCall
from silicast.kernels.rows.pass_chain import Chain, PassTensor
from silicast.kernels.rows.row_kernel import Gradient, RowKernel
from silicast.workload.graphs.op import Variant

INDEX_BYTES = 8
FP32 = 4
PART_ROWS = 10
"""Equal indices whose rows one thread sums."""
SORT_KERNELS = 14
"""Kernels that sort indices and count runs of equal ones (radix sort by 4 passes and scans)."""


@register
@final
class Embedding(RowKernel):
    """Dimensions: tokens, hidden, vocab (rows of the table on this rank; default: unbounded). Flag
    ``accumulated``: the table has a gradient already, which this one is added to.
    """

    family: ClassVar[str] = "embedding"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "vocab": (1, 1 << 22),
    }

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """An 8-byte index in and a row out per token; of the table, no more than there is."""
        row, tokens = sizes["hidden"] * element_bytes(variant.dtype), sizes["tokens"]
        distinct, zero = distinct_rows(sizes), tokens * 0
        return Stream(
            read_bytes=distinct * row + tokens * 8,
            write_bytes=tokens * row,
            flops=zero,
            fma=zero,
            xu=zero,
            tasks=tokens,
            trips=2.0,
            reread_bytes=(tokens - distinct) * row if "vocab" in sizes else None,
        )

    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """A row a token in, of the table what was read out."""
        row, tokens = sizes["hidden"] * element_bytes(variant.dtype), sizes["tokens"]
        return Gradient(tokens * row, distinct_rows(sizes) * row, tokens * sizes["hidden"])

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size, tokens = Chain(), call.size, sizes["tokens"]
        hidden, vocab = sizes["hidden"], sizes.get("vocab", tokens)
        n, all_rows = tokens * hidden, sizes.get("vocab", 0 * tokens) * hidden
        # rows that are read at least once, if tokens are drawn alike from the table
        used = xp.float64(vocab)
        if "vocab" in sizes:
            used = used * (1.0 - exp_fixed(-xp.float64(tokens) / used))
        distinct = used * hidden
        c.tensor(all_rows, size)
        before, dy = c.gradient(all_rows, size), c.gradient(n, size)
        indices = c.tensor(tokens, INDEX_BYTES)
        read = PassTensor(distinct, size)
        eager = call.style == EAGER
        if call.style == FUSED:
            stream = self.stream(sizes, call.variant)
            c.run(self.family, (read, indices), n, size, stream=stream)
        else:
            c.run("gather" if eager else "copy_rows", (read, indices), n, size)
        c.gradients()
        d_table = c.run("pointwise", (), all_rows, size)
        if eager:
            c.small(SORT_KERNELS)
            parts = PassTensor(
                (used * 0.5 + xp.maximum(tokens / PART_ROWS, used * 0.5)) * hidden, FP32
            )
            c.into("sum_rows", (dy,), (parts,), work=n)
            c.into("sum_rows", (parts,), (read,), work=parts.elements)
        else:
            kind = "atomic" if call.style == BY_HAND else "atomic_rows"
            c.into(kind, (dy, read), (read,), work=n)
        if call.has(ACCUMULATED):
            c.into("pointwise", (d_table, before), (before,), work=all_rows)
        return c


def distinct_rows(sizes: Sizes) -> Any:
    """Rows of the table that tokens can name at most."""
    tokens = sizes["tokens"]
    vocab = sizes.get("vocab", tokens)
    return (tokens + vocab - abs(tokens - vocab)) // 2
