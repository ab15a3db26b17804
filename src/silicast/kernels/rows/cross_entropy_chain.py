"""Cross entropy of rows of logits as its providers run it, forward and backward.

eager: log-probabilities, the picked losses; backward a tensor of zeros with the picked gradients,
then the gradient of the log-probabilities. A kernel by hand computes the gradient along with the
loss, in the place of the logits; its backward pass multiplies that by the loss's own gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.kernels.movement.streaming import element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import (
    ACCUMULATED,
    BY_HAND,
    COMPILED,
    PER_ROW,
    Call,
    ChainedKernel,
    Least,
)
from silicast.kernels.rows.pass_chain import Chain, Sizes
from silicast.kernels.rows.softmax_chain import log_softmax, softmax_gradient
from silicast.workload.graphs.op import Variant


@register
@final
class CrossEntropyChain(ChainedKernel):
    """Dimensions: rows (tokens with a target), vocab."""

    family: ClassVar[str] = "cross_entropy_chain"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {"rows": (1, 1 << 22), "vocab": (2, 1 << 21)}

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Logits in, a loss a row out; their gradient, which either pass may write."""
        size = element_bytes(variant.dtype)
        rows = sizes["rows"]
        n = rows * sizes["vocab"]
        return Least(n * size, rows * size, rows * size, rows * size, n * 4, n, n * size)

    def chain(self, sizes: Sizes, call: Call) -> Chain:
        c, size = Chain(), call.size
        rows, vocab = sizes["rows"], sizes["vocab"]
        n = rows * vocab
        logits = c.tensor(n, size)
        if call.style == BY_HAND:
            remaining = PER_ROW in call.flags
            before = c.gradient(n, size) if remaining else logits
            c.small(3)
            c.wait()
            copied = c.run("pointwise", (logits,), n, size) if remaining else logits
            c.into("loss_rows", (copied,), (copied,), work=n, again=n * size,
                   swept_bytes=vocab * size, rows=rows)  # fmt: skip
            c.small(1)
            c.gradients()
            c.wait()
            # the loss's own gradient is a factor
            result = c.tensor(n, size) if remaining else logits
            c.into("pointwise", (copied,), (result,))
            if remaining and ACCUMULATED in call.flags:
                c.into("pointwise", (before, result), (before,))
            return c
        if call.style == COMPILED:
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
        result = softmax_gradient(c, picked, logs, rows, vocab, call)
        if ACCUMULATED in call.flags:
            c.into("pointwise", (before, result), (before,), work=n)
        return c
