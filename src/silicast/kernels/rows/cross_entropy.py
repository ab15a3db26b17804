"""Cross entropy of rows of logits as its providers run it, forward and backward.

eager: log-probabilities, the picked losses; backward a tensor of zeros with the picked gradients,
then the gradient of the log-probabilities. A kernel by hand computes the gradient along with the
loss, in the place of the logits; its backward pass multiplies that by the loss's own gradient.
Fused kernels hold statistics in fp32 and read the logits once for the loss; for the gradient they
read them again and write it in the format of the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import Sizes, Stream, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import (
    ACCUMULATED,
    BOTH,
    BY_HAND,
    EAGER,
    FUSED,
    PER_ROW,
    RowCall,
)
from silicast.kernels.rows.pass_chain import Chain
from silicast.kernels.rows.row_kernel import Gradient, RowKernel, forward_of
from silicast.kernels.rows.softmax import log_softmax, softmax_gradient
from silicast.workload.graphs.op import Variant

FP32_BYTES = 4
INDEX_BYTES = 8


@register
@final
class CrossEntropy(RowKernel):
    """Dimensions: rows (tokens with a target), vocab (of this rank's logits)."""

    family: ClassVar[str] = "cross_entropy"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 22), "vocab": (2, 1 << 21)}
    fuses_gradient: ClassVar[bool] = True

    def stream(self, sizes: Sizes, variant: Variant) -> Stream:
        """Logits and targets in, a loss a row out; the gradient out if it is asked for."""
        size, both = element_bytes(variant.dtype), variant.flag(BOTH)
        rows, elements = sizes["rows"], sizes["rows"] * sizes["vocab"]
        return Stream(
            read_bytes=elements * size + rows * INDEX_BYTES,
            write_bytes=rows * FP32_BYTES + (elements * size if both else 0),
            flops=elements * (7 if both else 4),
            fma=elements * (8 if both else 4),
            xu=elements * (2 if both else 1),
            tasks=rows,
            trips=2.0,
            reductions=2.0,
            reread_bytes=elements * size if both else None,
        )

    def gradient(self, sizes: Sizes, variant: Variant) -> Gradient:
        """A loss's gradient a row in; the logits' gradient, which either pass may write."""
        size, rows = element_bytes(variant.dtype), sizes["rows"]
        n = rows * sizes["vocab"]
        return Gradient(rows * size, 0 * rows, 3 * n, n * size)

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size = Chain(), call.size
        rows, vocab = sizes["rows"], sizes["vocab"]
        n = rows * vocab
        logits = c.tensor(n, size)
        if call.style == BY_HAND:
            per_row = call.has(PER_ROW)
            before = c.gradient(n, size) if per_row else logits
            c.small(3)
            c.wait()
            copied = c.run("pointwise", (logits,), n, size) if per_row else logits
            c.into("loss_rows", (copied,), (copied,), work=n, again=n * size,
                   swept_bytes=vocab * size, rows=rows)  # fmt: skip
            c.small(1)
            c.gradients()
            c.wait()
            # the loss's own gradient is a factor
            gradient = c.tensor(n, size) if per_row else logits
            c.into("pointwise", (copied,), (gradient,))
            if per_row and call.has(ACCUMULATED):
                c.into("pointwise", (before, gradient), (before,))
            return c
        if call.style != EAGER:
            if call.style == FUSED:
                c.into(self.family, (logits,), stream=self.stream(sizes, forward_of(call.variant)))
            else:
                c.into("loss_rows", (logits,), (), work=n, rows=rows)
            c.gradients()
            c.run("loss_rows", (logits,), n, size, work=n, rows=rows)
            return c
        before = c.gradient(n, size)
        logs = log_softmax(c, logits, rows, vocab, call)
        c.small(1)
        c.gradients()
        picked = c.run("pointwise", (), n, size)
        c.small(1)
        gradient = softmax_gradient(c, picked, logs, rows, vocab, call)
        if call.has(ACCUMULATED):
            c.into("pointwise", (before, gradient), (before,), work=n)
        return c
