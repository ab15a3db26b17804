"""Operators of ONNX and of ONNX Runtime's domain, in the table of all operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from silicast.workload.front_ends.builders import (
    Window,
    attention,
    convolution,
    moved,
    movement,
    pointwise,
    product,
    row_norm,
    row_softmax,
)
from silicast.workload.front_ends.call import Call, Kernel, Value
from silicast.workload.front_ends.operators import lowers
from silicast.workload.op import Op, Variant

KINDS = {
    "Relu": "relu", "LeakyRelu": "relu", "PRelu": "relu", "Clip": "relu", "Max": "relu",
    "Min": "relu", "Add": "add", "Sub": "add", "Sum": "add", "Neg": "add", "Abs": "add",
    "Equal": "add", "Less": "add", "LessOrEqual": "add", "Greater": "add", "Not": "add",
    "GreaterOrEqual": "add", "And": "add", "Or": "add", "Xor": "add", "Round": "add",
    "Floor": "add", "Ceil": "add", "Sign": "add", "IsNaN": "add", "Mul": "mul", "Div": "div",
    "Mod": "div", "Reciprocal": "div", "Sqrt": "sqrt", "Exp": "exp", "Log": "exp", "Sin": "exp",
    "Cos": "exp", "Elu": "exp", "Selu": "exp", "Celu": "exp", "Softplus": "exp",
    "Softsign": "div", "Sigmoid": "sigmoid", "HardSigmoid": "relu", "HardSwish": "mul",
    "Tanh": "tanh", "Mish": "silu", "Swish": "silu", "Gelu": "gelu", "Pow": "pow",
    "Cast": "cast", "Where": "copy", "Transpose": "copy", "CastLike": "cast",
    "QuantizeLinear": "div", "DequantizeLinear": "mul", "DynamicQuantizeLinear": "div",
    "Trilu": "copy", "BitShift": "add",
}  # fmt: skip
"""Operator -> kind of elementwise kernel."""


def _register_kinds() -> None:
    for name, kind in KINDS.items():

        def lower(call: Call, kind: str = kind) -> Iterable[Kernel]:
            return (Kernel(pointwise(_power(call) or kind, call.inputs, call.out)),)

        lowers(f"onnx.{name}")(lower)


def _power(call: Call) -> str:
    """A power with one exponent is a square nearly always."""
    short = call.name == "onnx.Pow" and call.inputs[-1].elements == 1
    return "mul" if short else ""


_register_kinds()


@lowers("onnx.Erf")
def _erf(call: Call) -> Iterable[Kernel]:
    yield Kernel(pointwise("gelu" if call.kwargs["gelu"] else "tanh", call.inputs, call.out))


@lowers(
    "com.microsoft.Gelu", "com.microsoft.FastGelu", "com.microsoft.BiasGelu",
    "com.microsoft.QuickGelu",
)  # fmt: skip
def _gelu(call: Call) -> Iterable[Kernel]:
    yield Kernel(pointwise("gelu", call.inputs, call.out))


def _format(call: Call, a: Value) -> str:
    """Of a product: int8 where both operands are dequantised for it, else that of weights alone."""
    stored: Sequence[Value | None] = call.kwargs.get("stored", ())
    left, right = (*stored, None, None)[:2]
    if left is not None and right is not None and left.dtype == right.dtype == "int8":
        return "sq"
    if right is not None and right.dtype in ("int8", "int4"):
        return f"{right.dtype}_wo"
    return a.dtype


@lowers("onnx.MatMul", "com.microsoft.FusedMatMul", "onnx.MatMulInteger", "onnx.QLinearMatMul")
def _matmul(call: Call) -> Iterable[Kernel]:
    """Stacks of matrices; a stack times one matrix is one long matrix."""
    a, b = call.args[0], call.args[3 if "QLinear" in call.name else 1]
    dtype = "sq" if call.name not in ("onnx.MatMul", "com.microsoft.FusedMatMul") else ""
    yield Kernel(_stacked(a.shape, b.shape, call.out.shape, dtype or _format(call, a)))


def _stacked(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], dtype: str) -> Op:
    k = a[-1]
    n = b[-1] if len(b) > 1 else 1
    m = a[-2] if len(a) > 1 else 1
    batch = max(math.prod(out) // max(m * n, 1), 1)
    if math.prod(b[:-2]) == 1:
        m, batch = m * batch, 1
    return product(m, n, k, batch, dtype)


@lowers("onnx.Gemm")
def _gemm(call: Call) -> Iterable[Kernel]:
    a, b = call.args[:2]
    m, k = a.shape[::-1] if call.kwargs.get("transA") else a.shape
    n = b.shape[0] if call.kwargs.get("transB") else b.shape[1]
    yield Kernel(product(m, n, k, 1, _format(call, a)))


@lowers("com.microsoft.MatMulNBits")
def _packed(call: Call) -> Iterable[Kernel]:
    n, k = int(call.kwargs["N"]), int(call.kwargs["K"])
    bits = int(call.kwargs.get("bits", 4))
    dtype = "int4_wo" if bits <= 4 else "int8_wo"
    yield Kernel(product(call.out.elements // n, n, k, 1, dtype))


@lowers("onnx.Einsum")
def _einsum(call: Call) -> Iterable[Kernel]:
    """Two operands: letters in both and in the result are a batch, those in both alone a sum."""
    equation = call.kwargs["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or "." in text:
        yield Kernel(movement(call.read_bytes, call.written_bytes, unmodelled=True))
        return
    sizes = dict(zip(terms[0], call.args[0].shape, strict=True))
    sizes |= dict(zip(terms[1], call.args[1].shape, strict=True))
    first, second, kept = (set(x) for x in (*terms, right))

    def of(letters: set[str]) -> int:
        return math.prod(sizes[x] for x in letters)

    batch, k = of(first & second & kept), of((first & second) - kept)
    yield Kernel(product(of(first - second), of(second - first), k, batch, call.args[0].dtype))


@lowers("onnx.Conv", "onnx.ConvTranspose", "onnx.ConvInteger", "onnx.QLinearConv")
def _conv(call: Call) -> Iterable[Kernel]:
    """A bias is part of the kernel, as runtimes fuse it."""
    quantized = call.name in ("onnx.ConvInteger", "onnx.QLinearConv")
    images, filters = call.args[0], call.args[3 if "QLinear" in call.name else 1]
    axes = len(images.shape) - 2
    given = call.kwargs
    stride = tuple(given.get("strides", (1,) * axes))
    dilation = tuple(given.get("dilations", (1,) * axes))
    padding = tuple(given.get("pads", (0,) * (2 * axes)))[:axes]
    window = Window(
        stride, padding, dilation, int(given.get("group", 1)), call.name.endswith("Transpose")
    )
    dtype = "int8" if quantized or _format(call, images) == "sq" else images.dtype
    yield Kernel(convolution(images.shape, filters.shape, call.out.shape, window, dtype))


@lowers("onnx.LayerNormalization")
def _layer_norm(call: Call) -> Iterable[Kernel]:
    x = call.inputs[0]
    axis = int(call.kwargs.get("axis", -1))
    yield Kernel(row_norm("layernorm", x, math.prod(x.shape[axis:])))


@lowers(
    "onnx.RMSNormalization", "com.microsoft.SimplifiedLayerNormalization",
    "onnx.SimplifiedLayerNormalization",
)  # fmt: skip
def _rms_norm(call: Call) -> Iterable[Kernel]:
    x = call.inputs[0]
    axis = int(call.kwargs.get("axis", -1))
    yield Kernel(row_norm("rmsnorm", x, math.prod(x.shape[axis:])))


@lowers("com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization")
def _skip_norm(call: Call) -> Iterable[Kernel]:
    family = "rmsnorm" if "Simplified" in call.name else "layernorm"
    x = call.inputs[0]
    yield Kernel(row_norm(family, x, x.shape[-1], residual=1))


@lowers("com.microsoft.EmbedLayerNormalization")
def _embed_norm(call: Call) -> Iterable[Kernel]:
    out = call.out
    yield Kernel(movement(3 * out.nbytes + call.inputs[0].nbytes, out.nbytes, 8 * out.elements))


@lowers("onnx.Softmax", "onnx.LogSoftmax")
def _softmax(call: Call) -> Iterable[Kernel]:
    yield Kernel(row_softmax(call.inputs[0], int(call.kwargs.get("axis", -1))))


@lowers("onnx.SoftmaxCrossEntropyLoss", "onnx.NegativeLogLikelihoodLoss")
def _loss(call: Call) -> Iterable[Kernel]:
    """Log-probabilities of all classes, then those of the targets."""
    logits, targets = call.inputs[:2]
    picked = targets.elements * max(logits.nbytes // max(logits.elements, 1), 1)
    if "Softmax" in call.name:
        yield Kernel(row_softmax(logits, 1), "softmax")
    yield Kernel(movement(targets.nbytes + picked, call.out.nbytes, targets.elements))


@lowers("onnx.BatchNormalization")
def _batch_norm(call: Call) -> Iterable[Kernel]:
    yield Kernel(pointwise("add", call.inputs[:1], call.out))


@lowers("onnx.InstanceNormalization", "onnx.GroupNormalization", "com.microsoft.GroupNorm")
def _group_norm(call: Call) -> Iterable[Kernel]:
    x = call.inputs[0]
    yield Kernel(movement(2 * x.nbytes, call.written_bytes, 8 * x.elements))


@lowers("onnx.Gather", "onnx.GatherElements", "onnx.GatherND")
def _gather(call: Call) -> Iterable[Kernel]:
    """A lookup of rows in a table of weights is an embedding."""
    table, out = call.inputs[0], call.out
    indices = call.inputs[1] if len(call.inputs) > 1 else Value((), "int64", 8)
    axis = int(call.kwargs.get("axis", 0))
    rows = table.parameter and len(table.shape) == 2 and axis == 0
    if rows and call.name == "onnx.Gather" and table.dtype in ("bf16", "fp16", "fp32"):
        sizes = {"tokens": max(indices.elements, 1), "hidden": table.shape[1]}
        op = Op.make("embedding", Variant(table.dtype), **sizes, vocab=table.shape[0])
        yield Kernel(op)
        return
    yield Kernel(movement(indices.nbytes + out.nbytes, out.nbytes))


@lowers(
    "onnx.Concat", "onnx.Slice", "onnx.Split", "onnx.Pad", "onnx.Expand", "onnx.Tile",
    "onnx.SpaceToDepth", "onnx.DepthToSpace", "onnx.ConstantOfShape", "onnx.Range",
    "onnx.ReverseSequence", "onnx.OneHot", "onnx.EyeLike", "onnx.Compress",
)  # fmt: skip
def _copied(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(min(call.read_bytes, call.written_bytes), call.written_bytes))


@lowers("onnx.ScatterND", "onnx.ScatterElements", "onnx.TensorScatter")
def _scattered(call: Call) -> Iterable[Kernel]:
    target, rest = call.inputs[0], sum(value.nbytes for value in call.inputs[1:])
    yield Kernel(pointwise("copy", (target,), call.out), "copy")
    yield Kernel(movement(rest, min(rest, target.nbytes)))


@lowers(
    "onnx.ReduceMean", "onnx.ReduceSum", "onnx.ReduceMax", "onnx.ReduceMin", "onnx.ReduceL2",
    "onnx.ReduceProd", "onnx.ReduceL1", "onnx.ReduceLogSumExp", "onnx.ReduceSumSquare",
    "onnx.GlobalAveragePool", "onnx.GlobalMaxPool", "onnx.ArgMax", "onnx.ArgMin",
)  # fmt: skip
def _reduced(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_input=1))


@lowers("onnx.CumSum")
def _scanned(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(2 * call.read_bytes, call.written_bytes, 2 * call.out.elements))


@lowers("onnx.MaxPool", "onnx.AveragePool", "onnx.LpPool")
def _pool(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_result=math.prod(call.kwargs.get("kernel_shape", (1,)))))


@lowers("onnx.Resize", "onnx.Upsample", "onnx.GridSample")
def _resize(call: Call) -> Iterable[Kernel]:
    mode = call.kwargs.get("mode", b"nearest")
    taps = {b"nearest": 0, b"linear": 4, b"cubic": 16}.get(mode, 4)
    read, written = call.inputs[0].nbytes, call.written_bytes
    yield Kernel(movement(read, written, 3 * taps * call.out.elements))


@lowers("onnx.RotaryEmbedding", "com.microsoft.RotaryEmbedding")
def _rotary(call: Call) -> Iterable[Kernel]:
    x = call.inputs[0]
    yield Kernel(movement(x.nbytes, call.out.nbytes, 3 * x.elements))


@lowers("onnx.Attention", "com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention")
def _attention(call: Call) -> Iterable[Kernel]:
    """Queries, keys and values with heads as an axis, or beside each other in the last one."""
    given = call.kwargs
    q, k, v = (call.args[i] if i < len(call.args) else None for i in range(3))
    assert isinstance(q, Value)
    heads = int(given.get("q_num_heads", given.get("num_heads", 0)))
    groups = int(given.get("kv_num_heads", 0)) or heads
    if len(q.shape) == 4:  # (batch, heads, tokens, width)
        assert k is not None
        assert v is not None
        batch, heads, q_len, width = q.shape
        groups, kv_len, of_values = k.shape[1], k.shape[2], v.shape[3]
    else:
        batch, q_len = q.shape[0], q.shape[1]
        width = call.out.shape[-1] // heads if len(call.out.shape) == 3 else q.shape[-1] // heads
        kv_len, of_values = (k.shape[1] if k is not None and len(k.shape) == 3 else q_len), width
    past = _past(call)
    causal = bool(given.get("is_causal", given.get("unidirectional", 0)))
    causal = causal or call.name.endswith("GroupQueryAttention")
    widths = (width, of_values)
    dtype = q.dtype
    yield Kernel(
        attention(batch, heads, groups, q_len, kv_len + past, widths, dtype, causal=causal)
    )


def _past(call: Call) -> int:
    """Tokens already in the cache that is handed in, of shape (batch, heads, tokens, width)."""
    places: dict[str, int] = {
        "onnx.Attention": 4, "com.microsoft.MultiHeadAttention": 6,
        "com.microsoft.GroupQueryAttention": 3,
    }  # fmt: skip
    place = places[call.name]
    cache: Any = call.args[place] if place < len(call.args) else None
    return int(cache.shape[2]) if isinstance(cache, Value) and len(cache.shape) == 4 else 0


@lowers("com.microsoft.Attention")
def _fused_attention(call: Call) -> Iterable[Kernel]:
    """The product that makes queries, keys and values, then attention."""
    x, weights = call.args[:2]
    heads = int(call.kwargs["num_heads"])
    batch, length, hidden = x.shape
    dtype = _format(call, x)
    yield Kernel(product(batch * length, weights.shape[1], hidden, 1, dtype), "qkv", ())
    width = call.out.shape[-1] // heads
    causal = bool(call.kwargs.get("unidirectional", 0))
    sizes = (batch, heads, heads, length, length, (width, width))
    yield Kernel(attention(*sizes, x.dtype, causal=causal))
