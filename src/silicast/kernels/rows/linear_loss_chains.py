"""A last linear layer with the loss of its logits, as providers run both, forward and backward.

eager: all logits, in the model's format, their log-probabilities, and backward as any loss and any
product. By hand the tokens are cut into chunks, so that the logits of one are about as large as
their inputs: of each chunk the logits, the loss with its gradient in their place, and from that
the gradients of input and weight, all in the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from silicast.core import xp
from silicast.core.numerics import ceil_div
from silicast.kernels.movement.streaming import Sizes, element_bytes
from silicast.kernels.registry import register
from silicast.kernels.rows.chain_model import BY_HAND, ChainedKernel, Least, RowCall
from silicast.kernels.rows.pass_chain import Chain, PassTensor
from silicast.kernels.rows.softmax import log_softmax, softmax_gradient
from silicast.workload.graphs.op import Variant

FP32_BYTES = 4


@register
@final
class LinearCrossEntropyChain(ChainedKernel):
    """Dimensions: tokens, hidden, vocab."""

    family: ClassVar[str] = "linear_cross_entropy"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "tokens": (1, 1 << 20),
        "hidden": (64, 1 << 16),
        "vocab": (128, 1 << 20),
    }

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """Input and weight in; their gradients out. Logits may stay on the chip."""
        return _least(sizes["tokens"], sizes, element_bytes(variant.dtype))

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size = Chain(), call.size
        tokens, hidden, vocab = (sizes[name] for name in ("tokens", "hidden", "vocab"))
        c.tensor(tokens * 0 + 1, call.workspace_bytes)
        x, weight = c.tensor(tokens * hidden, size), c.tensor(vocab * hidden, size)
        before = c.gradient(vocab * hidden, size)
        c.gradient(tokens * hidden, size)
        if call.style == BY_HAND:
            return self._in_chunks(c, sizes, size)
        logits = c.multiply(x, weight, (tokens, vocab, hidden))
        logs = log_softmax(c, logits, tokens, vocab, call)
        c.drop(logits)
        c.small(1)
        c.gradients()
        picked = c.run("pointwise", (), tokens * vocab, size)
        c.small(1)
        d_logits = softmax_gradient(c, picked, logs, tokens, vocab, call)
        c.drop(picked)
        c.multiply(d_logits, weight, (tokens, hidden, vocab))
        d_weight = c.multiply(d_logits, x, (vocab, hidden, tokens))
        c.into("pointwise", (before, d_weight), (before,))
        return c

    @staticmethod
    def _in_chunks(c: Chain, sizes: Sizes, size: int) -> Chain:
        tokens, hidden, vocab = (sizes[name] for name in ("tokens", "hidden", "vocab"))
        rows = power_of_two(ceil_div(tokens, ceil_div(vocab, hidden)))
        rows = xp.minimum(rows, tokens)
        chunks = ceil_div(tokens, rows)
        d_weight = c.run("pointwise", (), vocab * hidden, size)
        d_input = c.run("pointwise", (), tokens * hidden, size)
        c.small(3)
        c.wait()
        x, weight = c.view(rows * hidden, size), c.view(vocab * hidden, size)
        logits = c.multiply(x, weight, (rows, vocab, hidden), times=chunks)
        c.into("loss_rows", (logits,), (logits,), work=rows * vocab, again=logits.bytes,
               swept_bytes=vocab * size, rows=rows, times=chunks)  # fmt: skip
        hidden_gradient = c.multiply(logits, weight, (rows, hidden, vocab), times=chunks)
        c.into("pointwise", (hidden_gradient,), (c.view(rows * hidden, size),), times=chunks)
        c.multiply(logits, x, (vocab, hidden, rows), into=d_weight, times=chunks)
        c.into("pointwise", (d_weight,), (), times=chunks)  # the sum so far is read besides
        c.drop(logits, hidden_gradient)
        c.small(1)
        c.gradients()
        c.wait()
        c.into("pointwise", (d_input,), (d_input,))
        c.into("pointwise", (d_weight,), (d_weight,))
        return c


@register
@final
class LinearPreferenceLossChain(ChainedKernel):
    """A last linear layer with a loss of pairs of answers: log-probabilities of all tokens, and the
    cross entropy of the chosen half (CPO, ORPO, SimPO).

    Dimensions: sequences (chosen and rejected), length, hidden, vocab.
    """

    family: ClassVar[str] = "linear_preference_loss"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "sequences": (2, 1 << 12),
        "length": (1, 1 << 17),
        "hidden": (64, 1 << 16),
        "vocab": (128, 1 << 20),
    }

    def least(self, sizes: Sizes, variant: Variant) -> Least:
        """As of a linear layer with one loss."""
        return _least(sizes["sequences"] * sizes["length"], sizes, element_bytes(variant.dtype))

    def chain(self, sizes: Sizes, call: RowCall) -> Chain:
        c, size, wide = Chain(), call.size, FP32_BYTES
        hidden, vocab = sizes["hidden"], sizes["vocab"]
        tokens = sizes["sequences"] * sizes["length"]
        n = tokens * vocab
        half, chosen = n // 2, tokens // 2
        c.tensor(tokens * 0 + 1, call.workspace_bytes)
        x, weight = c.tensor(tokens * hidden, size), c.tensor(vocab * hidden, size)
        before = c.gradient(vocab * hidden, size)
        c.gradient(tokens * hidden, size)
        if call.style == BY_HAND:
            return self._in_chunks(c, sizes, size, before)
        narrow = c.multiply(x, weight, (tokens, vocab, hidden))
        logits = c.run("pointwise", (narrow,), n, wide)
        logs = log_softmax(c, logits, tokens, vocab, call)
        c.small(6)
        part_logs = log_softmax(c, c.view(half, size), chosen, vocab, call)
        c.small(12)
        c.drop(narrow, logits)
        c.gradients()
        # of the chosen half's cross entropy, in the model's format
        picked = c.run("pointwise", (), half, size)
        c.small(12)
        d_part = softmax_gradient(c, picked, part_logs, chosen, vocab, call)
        c.drop(picked, part_logs)
        d_logits = c.run("pointwise", (), n, size)  # zeros, with the half copied in
        c.into("pointwise", (d_part,), (c.view(half, size),))
        c.drop(d_part)
        # of the log-probabilities, in fp32
        gathered = c.run("pointwise", (), n, wide)
        c.small(6)
        gradient = softmax_gradient(c, gathered, logs, tokens, vocab, call)
        c.drop(gathered, logs)
        other = c.run("pointwise", (gradient,), n, size)
        c.drop(gradient)
        c.into("pointwise", (d_logits, other), (d_logits,))
        c.drop(other)
        c.multiply(d_logits, weight, (tokens, hidden, vocab))
        d_weight = c.multiply(d_logits, x, (vocab, hidden, tokens))
        c.into("pointwise", (before, d_weight), (before,))
        return c

    @staticmethod
    def _in_chunks(c: Chain, sizes: Sizes, size: int, before: PassTensor) -> Chain:
        """A pair at a time, compiled: log-probabilities are kept in fp32 for their gradient."""
        hidden, vocab, wide = sizes["hidden"], sizes["vocab"], FP32_BYTES
        tokens = sizes["sequences"] * sizes["length"]
        chunks = xp.maximum(sizes["sequences"] // 2, tokens * 0 + 1)
        rows = ceil_div(tokens, chunks)
        n = rows * vocab
        d_weight = c.run("pointwise", (), vocab * hidden, size)
        d_input = c.tensor(tokens * hidden, size)
        x, weight = c.view(rows * hidden, size), c.view(vocab * hidden, size)
        logits = c.multiply(x, weight, (rows, vocab, hidden), times=chunks)
        logs = c.run("loss_rows", (logits,), n, wide, again=logits.bytes, swept_bytes=vocab * size,
                     rows=rows, times=chunks)  # fmt: skip
        c.into("row_sums", (logits,), (), work=n, times=chunks)
        d_logits = c.run("loss_rows", (logs,), n, size, again=n * wide // 2,
                         swept_bytes=vocab * wide, rows=rows, times=chunks)  # fmt: skip
        c.multiply(
            d_logits, weight, (rows, hidden, vocab), into=c.view(rows * hidden, size), times=chunks
        )
        part = c.multiply(d_logits, x, (vocab, hidden, rows), times=chunks)
        c.into("pointwise", (d_weight, part), (d_weight,), times=chunks)
        c.drop(logits, logs, d_logits, part)
        c.small(20)
        c.into("pointwise", (d_input,), (d_input,))
        c.gradients()
        c.wait()
        c.into("pointwise", (before, d_weight), (before,))
        return c


def _least(tokens: Any, sizes: Sizes, size: int) -> Least:
    """Input and weight in, their gradients out; logits may stay on the chip."""
    hidden, vocab = sizes["hidden"], sizes["vocab"]
    whole, rows = (tokens + vocab) * hidden * size, tokens * size
    return Least(
        whole,
        rows,
        rows,
        rows,
        tokens * vocab * 4,
        tokens * vocab,
        whole,
        products=((tokens, vocab, hidden),),
        products_between=((tokens, hidden, vocab), (vocab, hidden, tokens)),
    )


def power_of_two(value: Any) -> Any:
    """The smallest power of two that is not below a whole number from 1 to 2^62; exact.

    >>> import numpy as np
    >>> power_of_two(1), power_of_two(33), power_of_two(np.array([64, 65])).tolist()
    (1, 64, [64, 128])
    """
    power = value * 0 + 1
    for _ in range(31):
        power = xp.where(power < value, power * 2, power)
    return power
