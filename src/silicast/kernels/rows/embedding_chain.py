"""Embedding as its providers run it, forward and backward.

A framework's gather computes where each element lies, one at a time; compilers and kernels by hand
copy rows. Gradients: a table of zeros, then either tokens sorted by row, whose gradients are summed
in parts of a few and then row by row, or atomic additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import exp_fixed
from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import ACCUMULATED, EAGER, Call, ChainedKernel, Least
from silicast.kernels.rows.pass_chain import Chain, Sizes, Tensor
from silicast.workload.graphs.op import Variant

INDEX_BYTES = 8
FP32 = 4
PART_ROWS = 10
"""Equal indices whose rows one thread sums."""
SORT_KERNELS = 14
"""Kernels that sort indices and count runs of equal ones (radix sort by 4 passes and scans)."""


@register
@final
class EmbeddingChain(ChainedKernel):
    """Dimensions: tokens, hidden, vocab (default: unknown, and the table is not counted). Flag
    ``accumulated``: the table has a gradient already, which this one is added to.
    """

    family: ClassVar[str] = "embedding_chain"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 22),
        "hidden": (1, 1 << 18),
        "vocab": (1, 1 << 22),
    }

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """A row a token out, of the table what is read; backward a row a token in, a table out."""
        size = element_bytes(variant.dtype)
        row, tokens = sizes["hidden"] * size, sizes["tokens"]
        vocab = sizes.get("vocab", tokens)
        distinct = (tokens + vocab - abs(tokens - vocab)) // 2
        whole = tokens * row
        return Least(
            tokens * INDEX_BYTES, whole, whole, distinct * row, whole * 0, tokens * sizes["hidden"]
        )

    def chain(self, sizes: Sizes, call: Call) -> Chain:
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
        read = Tensor(distinct, size)
        eager = call.style == EAGER
        c.run("gather" if eager else "copy_rows", (read, indices), n, size)
        c.gradients()
        d_table = c.run("pointwise", (), all_rows, size)
        if eager:
            c.small(SORT_KERNELS)
            parts = Tensor((used * 0.5 + xp.maximum(tokens / PART_ROWS, used * 0.5)) * hidden, FP32)
            c.into("sum_rows", (dy,), (parts,), work=n)
            c.into("sum_rows", (parts,), (read,), work=parts.elements)
        else:
            kind = "atomic" if call.style == "by_hand" else "atomic_rows"
            c.into(kind, (dy, read), (read,), work=n)
        if ACCUMULATED in call.flags:
            c.into("pointwise", (d_table, before), (before,), work=all_rows)
        return c
