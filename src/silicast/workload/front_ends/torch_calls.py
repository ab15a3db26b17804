"""Operators that a GPU runs otherwise than the CPU's dispatcher would, and those that hold graphs.

Attention, dropout, RMSNorm and recurrent layers are one kernel (or one family of kernels) on a
GPU, which the operators that the dispatcher shows for tensors of the CPU do not show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
import torch.utils.checkpoint
from torch.utils._pytree import tree_map

from silicast.core.errors import unsupported
from silicast.workload.front_ends.recorder import Recorder

Replacement = Callable[[Recorder, Any, tuple[Any, ...], dict[str, Any]], Any]

INSTEAD: dict[str, Replacement] = {}
"""Operator of an exported program -> what runs in its place."""


def _instead(*names: str) -> Callable[[Replacement], Replacement]:
    def register(function: Replacement) -> Replacement:
        INSTEAD.update(dict.fromkeys(names, function))
        return function

    return register


@final
class _AttentionFunction(torch.autograd.Function):
    """One kernel forward, one backward; keeps operands, result and row statistics."""

    @staticmethod
    def forward(
        ctx: Any, recorder: Recorder, q: Any, k: Any, v: Any, mask: Any, causal: bool
    ) -> Any:
        out = _laid_out(q, (*q.shape[:-1], v.shape[-1]))
        rows = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        operands = (q, k, v, causal) if mask is None else (q, k, v, causal, mask)
        recorder.record("silicast.attention", None, operands, {}, (out, rows))
        ctx.save_for_backward(q, k, v, out, rows, *operands[4:])
        ctx.recorder, ctx.causal = recorder, causal
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        q, k, v, out, rows, *mask = ctx.saved_tensors
        results = tuple(torch.empty_like(x) for x in (q, k, v))
        operands = (q, k, v, ctx.causal, out, rows, gradient, *mask)
        ctx.recorder.record("silicast.attention_backward", None, operands, {}, results)
        return (None, *results, None, None)


def _laid_out(q: Any, shape: tuple[int, ...]) -> Any:
    """The result of a fused kernel: heads beside each other within a token, as queries come."""
    if len(shape) != 4:
        return q.new_empty(shape)
    return q.new_empty(shape[0], shape[2], shape[1], shape[3]).transpose(1, 2)


FUSED_AXES = 4
"""Of queries that fused kernels take: (batch, heads, tokens, width). Others run as products, passes
and softmax, since PyTorch 2.5 in fp32 (``allow_fp16_bf16_reduction_math_sdp``)."""


@_instead("aten.scaled_dot_product_attention.default")
def _sdpa(recorder: Recorder, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = {
        "attn_mask": None,
        "is_causal": False,
        **dict(zip(names, args, strict=False)),
        **kwargs,
    }
    q, k, v, mask = (arguments[name] for name in names[:4])
    if q.dim() != FUSED_AXES:
        math = torch.ops.aten._scaled_dot_product_attention_math  # noqa: SLF001  (no public name)
        return math(*args, **kwargs)[0]
    return _AttentionFunction.apply(recorder, q, k, v, mask, bool(arguments["is_causal"]))


@_instead("aten.dropout.default", "aten.dropout_.default", "aten.feature_dropout.default")
def _dropout(_: Recorder, __: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = {**dict(zip(("input", "p", "train"), args, strict=False)), **kwargs}
    if not arguments["train"] or arguments["p"] == 0:
        return arguments["input"]
    return torch.native_dropout(arguments["input"], arguments["p"], True)[0]


@final
class _RmsNorm(torch.autograd.Function):
    """One kernel forward, one backward for the rows and one for the weight."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, x: Any, shape: Any, weight: Any) -> Any:
        out = torch.empty_like(x)
        rows = x.new_empty(x.shape[: x.dim() - len(shape)], dtype=torch.float32)
        weights = () if weight is None else (weight,)
        recorder.record("silicast.rms_norm", None, (x, shape, *weights), {}, (out, rows))
        ctx.save_for_backward(x, rows, *weights)
        ctx.recorder = recorder
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        saved = ctx.saved_tensors
        results = tuple(torch.empty_like(t) for t in (saved[0], *saved[2:]))
        operands = (gradient, *saved)
        ctx.recorder.record("silicast.rms_norm_backward", None, operands, {}, results)
        return None, results[0], None, results[1] if len(results) > 1 else None


@_instead("aten.rms_norm.default")
def _rms_norm(recorder: Recorder, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    weight = args[2] if len(args) > 2 else kwargs.get("weight")
    return _RmsNorm.apply(recorder, args[0], tuple(args[1]), weight)


@final
class _WideSoftmax(torch.autograd.Function):
    """One kernel that reads 16-bit scores and writes fp32, and one backward the other way."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, x: Any, axis: int) -> Any:
        out = torch.empty_like(x, dtype=torch.float32)
        recorder.record("silicast.softmax", None, (x, axis), {}, out)
        ctx.save_for_backward(out)
        ctx.recorder, ctx.like = recorder, torch.empty_like(x)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (out,) = ctx.saved_tensors
        result = torch.empty_like(ctx.like)
        ctx.recorder.record("silicast.softmax_backward", None, (gradient, out), {}, result)
        return None, result, None


@_instead("aten.softmax.int", "aten.log_softmax.int")
def _softmax(recorder: Recorder, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, axis = args[:2]
    dtype = args[2] if len(args) > 2 else kwargs.get("dtype")
    if dtype is torch.float32 and x.dtype in (torch.bfloat16, torch.float16):
        return _WideSoftmax.apply(recorder, x, axis)
    return target(*args, **kwargs)


@final
class _Recurrence(torch.autograd.Function):
    """All steps of a layer in one direction: one call forward, one backward."""

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, kind: str, through: Any, *weights: Any) -> Any:
        width = weights[-1].shape[0] if len(weights) > 1 else weights[0].shape[1]
        out = through.new_empty(*through.shape[:2], width)
        states = torch.empty_like(through)  # the states, and gates for the backward pass
        recorder.record("silicast.recurrence", None, (through, *weights, kind), {}, (out, states))
        ctx.save_for_backward(through, *weights, out, states)
        ctx.recorder, ctx.kind = recorder, kind
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        through, *weights, out, states = ctx.saved_tensors
        results = tuple(torch.empty_like(x) for x in (through, *weights))
        operands = (through, *weights, out, states, gradient, len(weights) > 1, ctx.kind)
        ctx.recorder.record("silicast.recurrence_backward", None, operands, {}, results)
        return None, None, *results


@_instead("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def _recurrent(recorder: Recorder, target: Any, args: tuple[Any, ...], __: dict[str, Any]) -> Any:
    """Of each layer and direction one product for the inputs of all steps, then the steps."""
    kind = str(target).split(".")[1]
    x, hidden, weights, biased, layers, _dropout, _train, both, batch_first = args
    rows = x.transpose(0, 1) if batch_first else x
    directions = 2 if both else 1
    per = len(weights) // (layers * directions)
    for layer in range(layers):
        outs = []
        for side in range(layer * directions, (layer + 1) * directions):
            weight = weights[side * per : (side + 1) * per]
            projection = weight[4 if biased else 2 :]  # of an LSTM's states
            bias = weight[2] if biased else None
            through = torch.nn.functional.linear(rows, weight[0], bias)
            outs.append(_Recurrence.apply(recorder, kind, through, weight[1], *projection))
        rows = outs[0] if directions == 1 else torch.cat(outs, dim=-1)
    out = rows.transpose(0, 1) if batch_first else rows
    last = tuple(torch.empty_like(h) for h in (hidden if kind == "lstm" else (hidden,)))
    return (out, *last)


Inner = Callable[..., Any]
"""Runs a graph on values."""


def _inline(run: Inner, *args: Any) -> Any:
    """A graph that is wrapped, behind flags or without: it runs."""
    index = next(i for i, x in enumerate(args) if isinstance(x, torch.nn.Module))
    return run(*args[index:])


def _recomputed(run: Inner, module: Any, *inputs: Any) -> Any:
    """A checkpointed graph: it keeps its inputs, and runs again in the backward pass."""
    if not torch.is_grad_enabled():
        return run(module, *inputs)
    return torch.utils.checkpoint.checkpoint(
        lambda *operands: run(module, *operands),
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
    )


def _without_gradients(run: Inner, enabled: bool, module: Any, *inputs: Any) -> Any:
    with torch.set_grad_enabled(enabled and torch.is_grad_enabled()):
        return run(module, *inputs)


def _branches(run: Inner, _: Any, yes: Any, no: Any, operands: Any) -> Any:
    """The branch with more operators: which one is taken depends on values."""
    sizes = [len(list(module.graph.nodes)) for module in (yes, no)]
    return run(yes if sizes[0] >= sizes[1] else no, *operands)


def _loop(*_: Any) -> Any:
    raise unsupported(
        "how often a while_loop runs depends on values",
        "while_loop",
        "export one pass of its body, or a loop with a fixed count",
    )


def _mapped(run: Inner, body: Any, slices: Any, operands: Any) -> Any:
    """The body once for each slice along the first axis."""
    made = [run(body, *(x[i] for x in slices), *operands) for i in range(slices[0].shape[0])]
    return tree_map(lambda *parts: torch.stack(parts), *made)


def _scanned(run: Inner, body: Any, state: Any, slices: Any, *operands: Any) -> Any:
    """The body once for each slice, which passes its state on."""
    made = []
    for i in range(slices[0].shape[0]):
        result = run(body, *state, *(x[i] for x in slices), *(operands[0] if operands else ()))
        state, out = result[: len(state)], result[len(state) :]
        made.append(out)
    return [*state, *(torch.stack(parts) for parts in zip(*made, strict=True))]


AUTOCAST = "wrap_with_autocast"
"""Higher-order operator whose graph runs under automatic casts; whoever runs it knows them."""

LOOPS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("wrap", "invoke_subgraph", "strict_mode", "hints_wrapper"), _inline),
    **dict.fromkeys(("wrap_activation_checkpoint", "tag_activation_checkpoint"), _recomputed),
    "wrap_with_set_grad_enabled": _without_gradients,
    "cond": _branches,
    "while_loop": _loop,
    "map_impl": _mapped,
    "scan": _scanned,
}
"""Higher-order operator -> how it runs its graphs."""
