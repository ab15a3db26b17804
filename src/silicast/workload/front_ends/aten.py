"""Operators of PyTorch (aten) that stream tensors or multiply matrices.

Names are those that the dispatcher sees below autograd, which is what an eager program launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from silicast.workload.front_ends.builders import (
    MOST_ROWS,
    attention,
    moved,
    movement,
    pointwise,
    product,
    row_softmax,
)
from silicast.workload.front_ends.call import Call, Kernel, Value
from silicast.workload.front_ends.operators import lowers
from silicast.workload.op import Op

KINDS: dict[str, str] = {
    "clone": "copy", "copy": "copy", "contiguous": "copy", "fill": "copy", "masked_fill": "copy",
    "where": "copy", "tril": "copy", "triu": "copy", "flip": "copy", "roll": "copy",
    "repeat": "copy", "repeat_interleave": "copy", "_unsafe_copy": "copy", "view_copy": "copy",
    "expand_copy": "copy", "permute_copy": "copy", "lift_fresh_copy": "copy",
    "relu": "relu", "threshold_backward": "relu", "leaky_relu": "relu", "clamp": "relu",
    "clamp_min": "relu", "clamp_max": "relu", "hardtanh": "relu", "relu6": "relu",
    "_prelu_kernel": "relu", "_prelu_kernel_backward": "relu", "hardtanh_backward": "relu",
    "leaky_relu_backward": "relu", "prelu": "relu",
    "gelu": "gelu", "gelu_backward": "gelu", "silu": "silu", "silu_backward": "silu",
    "mish": "silu", "mish_backward": "silu", "hardswish": "sigmoid", "hardsigmoid": "sigmoid",
    "hardswish_backward": "sigmoid", "hardsigmoid_backward": "sigmoid", "elu": "exp",
    "elu_backward": "exp", "celu": "exp", "selu": "exp", "softplus": "exp",
    "softplus_backward": "exp", "log_sigmoid_forward": "exp", "logit": "exp",
    "sigmoid": "sigmoid", "sigmoid_backward": "mul", "tanh": "tanh", "tanh_backward": "mul",
    "erf": "tanh", "erfc": "tanh", "exp": "exp", "exp2": "exp", "expm1": "exp", "log": "exp",
    "log1p": "exp", "log2": "exp", "sin": "exp", "cos": "exp", "atan2": "exp",
    "sqrt": "sqrt", "rsqrt": "sqrt", "reciprocal": "div", "div": "div", "remainder": "div",
    "fmod": "div", "floor_divide": "div", "mul": "mul", "addcmul": "mul", "lerp": "mul",
    "addcdiv": "div", "glu": "silu", "square": "mul",
}  # fmt: skip
"""Operator -> kind of elementwise kernel; those that PyTorch calls pointwise are else "add"."""


def _register_kinds() -> None:
    for name, kind in KINDS.items():

        def lower(call: Call, kind: str = kind) -> Iterable[Kernel]:
            return (Kernel(pointwise(kind, _read(call), call.out)),)

        lowers(f"aten.{name}")(lower)


def _read(call: Call) -> tuple[Value, ...]:
    """What a pointwise operator reads: not the tensor that a copy or a fill writes over."""
    first = call.name.split(".")[1]
    over = first in ("copy_", "fill_", "copy")
    return call.inputs[1:] if over else call.inputs


_register_kinds()


@lowers("aten.pow")
def _pow(call: Call) -> Iterable[Kernel]:
    """A square or a cube is multiplications, a root is a root."""
    exponent = call.arg(1, "exponent")
    kind = {2: "mul", 3: "mul", 0.5: "sqrt", -0.5: "sqrt", -1: "div"}.get(_number(exponent), "pow")
    yield Kernel(pointwise(kind, call.inputs, call.out))


def _number(x: Any) -> Any:
    return x if isinstance(x, int | float) else None


@lowers("aten._to_copy", "aten.to", "aten.type_as")
def _to(call: Call) -> Iterable[Kernel]:
    yield Kernel(pointwise("cast", call.inputs, call.out))


@lowers(
    "aten.zeros", "aten.ones", "aten.full", "aten.zeros_like", "aten.ones_like", "aten.full_like",
    "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.arange", "aten.linspace", "aten.eye",
    "aten.zero", "aten.scalar_tensor", "aten.tril_indices", "aten.triu_indices",
    "aten.lift_fresh",
)  # fmt: skip
def _filled(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(0, call.written_bytes))


@lowers(
    "aten.rand", "aten.randn", "aten.rand_like", "aten.randn_like", "aten.bernoulli",
    "aten.randint", "aten.randint_like", "aten.normal", "aten.uniform", "aten.randperm",
    "aten.normal_functional", "aten.exponential", "aten.random",
)  # fmt: skip
def _random(call: Call) -> Iterable[Kernel]:
    """A counter-based generator runs ten rounds of two multiplications for four numbers."""
    yield Kernel(movement(0, call.written_bytes, 10 * call.out.elements))


@lowers("aten.native_dropout", "aten.native_dropout_backward")
def _dropout(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_result=10 if "backward" not in call.name else 2))


@lowers(
    "aten.cat", "aten.stack", "aten.constant_pad_nd", "aten.reflection_pad1d",
    "aten.as_strided_copy",
    "aten.reflection_pad2d", "aten.replication_pad2d", "aten.pixel_shuffle", "aten.pixel_unshuffle",
    "aten.channel_shuffle", "aten.slice_copy", "aten._local_scalar_dense", "aten.split_copy",
    "aten.split_with_sizes_copy", "aten.replication_pad3d", "aten.replication_pad1d",
)  # fmt: skip
def _gathered(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(min(call.read_bytes, max(call.written_bytes, 4)), call.written_bytes))


@lowers("aten.index", "aten.index_select", "aten.gather", "aten.take", "aten.masked_select")
def _picked(call: Call) -> Iterable[Kernel]:
    """Indices and the elements that they name in, those elements out."""
    indices = sum(value.nbytes for value in call.inputs[1:])
    yield Kernel(movement(indices + call.written_bytes, call.written_bytes))


@lowers(
    "aten.index_put", "aten._index_put_impl", "aten.index_add", "aten.scatter", "aten.scatter_add",
    "aten.scatter_reduce", "aten.index_copy", "aten._unsafe_index_put", "aten.index_fill",
    "aten.masked_scatter",
)  # fmt: skip
def _scattered(call: Call) -> Iterable[Kernel]:
    """Out of place the target is copied first; then each source is read, added and written."""
    target, *rest = call.inputs
    in_place = call.name.split(".")[1].endswith("_")
    if not in_place:
        yield Kernel(pointwise("copy", (target,), call.out), "copy")
    named = sum(value.nbytes for value in rest)
    sources = max((v.nbytes for v in rest if v.dtype == target.dtype), default=target.nbytes)
    yield Kernel(movement(named + sources, sources, sources // 4))


@lowers(
    "aten.slice_backward", "aten.select_backward", "aten.diagonal_backward", "aten.slice_scatter",
    "aten.select_scatter", "aten.as_strided_scatter", "aten.diagonal_scatter",
)  # fmt: skip
def _slice_backward(call: Call) -> Iterable[Kernel]:
    """Zeros of the whole (or a copy of it), then the part written into it."""
    part = call.inputs[-1].nbytes
    yield Kernel(movement(call.read_bytes - part, call.written_bytes), "fill")
    yield Kernel(movement(part, part))


@lowers(
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.max", "aten.min", "aten.prod",
    "aten.any", "aten.all", "aten.argmax", "aten.argmin", "aten.var", "aten.var_mean", "aten.std",
    "aten.norm", "aten.linalg_vector_norm", "aten.logsumexp", "aten.aminmax", "aten.std_mean",
    "aten.count_nonzero", "aten.dot", "aten.vdot",
)  # fmt: skip
def _reduced(call: Call) -> Iterable[Kernel]:
    if len(call.inputs) == 2 and call.name.split(".")[1] in ("max", "min"):
        yield Kernel(pointwise("relu", call.inputs, call.out))  # of two tensors
        return
    each = 3 if "var" in call.name or "std" in call.name else 1
    yield Kernel(moved(call, per_input=each))


@lowers("aten.binary_cross_entropy_with_logits", "aten.binary_cross_entropy")
def _binary_loss(call: Call) -> Iterable[Kernel]:
    """Losses of all elements, then their mean."""
    logits = call.inputs[0]
    yield Kernel(pointwise("exp", call.inputs[:2], logits), "each", ())
    yield Kernel(movement(logits.nbytes, call.out.nbytes, logits.elements))


@lowers("aten._fft_r2c", "aten._fft_c2r", "aten._fft_c2c")
def _fourier(call: Call) -> Iterable[Kernel]:
    """A transform of rows that stay on chip: once in, once out, 5 n log2 n operations each."""
    most = max((call.inputs[0], call.out), key=lambda value: value.elements)
    rounds = max(most.shape[-1] - 1, 1).bit_length() if most.shape else 1
    yield Kernel(moved(call, per_result=5 * rounds))


@lowers("aten._embedding_bag_forward_only", "aten._embedding_bag")
def _bags(call: Call) -> Iterable[Kernel]:
    """Rows that are named are read, sums of them written."""
    table, indices = call.inputs[:2]
    rows = indices.elements * (table.nbytes // max(table.shape[0], 1))
    yield Kernel(movement(indices.nbytes + rows, call.out.nbytes, rows // 4))


@lowers("aten.cumsum", "aten.cumprod", "aten.logcumsumexp", "aten.cummax")
def _scanned(call: Call) -> Iterable[Kernel]:
    """Blocks are summed, then their sums carried over: the input is read twice."""
    yield Kernel(movement(2 * call.read_bytes, call.written_bytes, 2 * call.out.elements))


@lowers("aten._softmax", "aten._log_softmax", "aten._safe_softmax")
def _softmax(call: Call) -> Iterable[Kernel]:
    axis = call.arg(1, "dim", -1)
    yield Kernel(row_softmax(call.inputs[0], axis))


@lowers("silicast.softmax")
def _wide_softmax(call: Call) -> Iterable[Kernel]:
    """Reads 16 bits and writes 32: counted as if both were 32."""
    yield Kernel(row_softmax(call.out, call.arg(1, "dim", -1)))


@lowers(
    "aten._softmax_backward_data", "aten._log_softmax_backward_data", "silicast.softmax_backward"
)
def _softmax_backward(call: Call) -> Iterable[Kernel]:
    yield Kernel(moved(call, per_result=4))


@lowers("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def _nll(call: Call) -> Iterable[Kernel]:
    """One logarithm a row is picked, and their mean taken."""
    rows = call.inputs[1]
    picked = rows.elements * max(call.inputs[0].nbytes // max(call.inputs[0].elements, 1), 1)
    yield Kernel(movement(rows.nbytes + picked, call.written_bytes, rows.elements))


@lowers("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def _nll_backward(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(0, call.written_bytes), "fill")
    rows = call.inputs[2]
    yield Kernel(movement(2 * rows.nbytes, rows.nbytes, rows.elements))


@lowers(
    "aten.mm", "aten.addmm", "aten.mv", "aten.addmv", "aten._addmm_activation", "aten.sparse_mm"
)
def _mm(call: Call) -> Iterable[Kernel]:
    """M x k times k x n; a bias or a sum is part of the kernel."""
    a, b = call.inputs[-2:] if "add" in call.name else call.inputs[:2]
    n = b.shape[1] if len(b.shape) > 1 else 1
    yield Kernel(product(a.shape[0], n, a.shape[1], 1, _format(call, a)))


@lowers("aten.bmm", "aten.baddbmm")
def _bmm(call: Call) -> Iterable[Kernel]:
    a, b = call.inputs[-2:] if "baddbmm" in call.name else call.inputs[:2]
    batch, m, k = a.shape
    yield Kernel(product(m, b.shape[2], k, batch, _format(call, a)))


@lowers("aten._scaled_mm", "aten._int_mm")
def _narrow_mm(call: Call) -> Iterable[Kernel]:
    a, b = call.inputs[:2]
    dtype = "fp8" if call.name.startswith("aten._scaled") else "int8"
    yield Kernel(product(a.shape[0], b.shape[1], a.shape[1], 1, dtype))


@lowers("aten._weight_int8pack_mm", "aten._weight_int4pack_mm")
def _packed_mm(call: Call) -> Iterable[Kernel]:
    a, out = call.inputs[0], call.out
    dtype = "int8_wo" if "int8" in call.name else "int4_wo"
    yield Kernel(product(a.shape[0], out.shape[1], a.shape[1], 1, dtype))


@lowers("aten._grouped_mm", "aten._scaled_grouped_mm")
def _grouped_mm(call: Call) -> Iterable[Kernel]:
    """Rows of each expert by its own matrix, in even shares: how many there are is data."""
    a, b = call.inputs[:2]
    dtype = "fp8" if "scaled" in call.name else _format(call, a)
    if len(call.out.shape) == 3:  # a gradient of the experts: rows are what is summed over
        experts, m, n = call.out.shape
        k = -(-a.shape[-1] // experts) if len(a.shape) == 2 else a.shape[-1]
        yield Kernel(_grouped(product(m, n, k, experts, dtype)))
        return
    experts = b.shape[0] if len(b.shape) == 3 else 1
    rows = -(-a.shape[0] // experts)
    yield Kernel(_grouped(product(rows, b.shape[-1], a.shape[-1], experts, dtype)))


def _grouped(op: Op) -> Op:
    """A product by its function's name, which tells it from a batch of products."""
    if op.family != "gemm":
        return op
    return replace(op, variant=replace(op.variant, kernel="grouped_mm"))


@lowers("aten.sort", "aten.argsort")
def _sorted(call: Call) -> Iterable[Kernel]:
    """A radix sort passes over keys and places once for each byte of a key."""
    keys = call.inputs[0]
    passes = max(keys.nbytes // max(keys.elements, 1), 1)
    yield Kernel(movement(passes * call.written_bytes, passes * call.written_bytes))


@lowers("aten.topk", "aten.kthvalue", "aten.histc", "aten.bincount", "aten._unique2")
def _selected(call: Call) -> Iterable[Kernel]:
    """A radix select reads its rows a few times and writes little."""
    yield Kernel(movement(4 * call.read_bytes, call.written_bytes, 4 * call.inputs[0].elements))


@lowers("aten._weight_norm_interface", "aten._weight_norm_interface_backward")
def _weight_norm(call: Call) -> Iterable[Kernel]:
    yield Kernel(movement(2 * call.read_bytes, call.written_bytes, 4 * call.inputs[0].elements))


def _format(call: Call, a: Value) -> str:
    """Of matrix arithmetic: fp32 tensors may be multiplied in TF32."""
    return call.product if a.dtype == "fp32" else a.dtype


@lowers("aten.embedding")
def _embedding(call: Call) -> Iterable[Kernel]:
    from silicast.workload.op import Op, Variant

    table, indices = call.inputs
    if table.dtype not in ("bf16", "fp16", "fp32") or indices.elements > MOST_ROWS:
        yield Kernel(movement(indices.nbytes + call.out.nbytes, call.out.nbytes))
        return
    sizes = {"tokens": indices.elements, "hidden": table.shape[1], "vocab": table.shape[0]}
    yield Kernel(Op.make("embedding", Variant(table.dtype), **sizes))


@lowers("aten.embedding_dense_backward")
def _embedding_backward(call: Call) -> Iterable[Kernel]:
    """Indices are sorted, the whole table's gradient is zeroed, rows are added into it."""
    grads, indices = call.inputs[:2]
    yield Kernel(movement(0, call.written_bytes), "fill")
    yield Kernel(movement(8 * indices.nbytes, 8 * indices.nbytes), "sort")
    yield Kernel(movement(2 * grads.nbytes + indices.nbytes, grads.nbytes, grads.elements))


@lowers("silicast.attention", "silicast.attention_backward")
def _attention(call: Call) -> Iterable[Kernel]:
    """Queries, keys and values of shape (..., heads, tokens, width), one kernel."""
    q, k, v = call.inputs[:3]
    heads = q.shape[-3] if len(q.shape) > 2 else 1
    kv_heads = k.shape[-3] if len(k.shape) > 2 else 1
    batch = q.elements // (heads * q.shape[-2] * q.shape[-1])
    yield Kernel(
        attention(
            batch, heads, kv_heads, q.shape[-2], k.shape[-2], (q.shape[-1], v.shape[-1]),
            q.dtype,
            causal=bool(call.arg(3, "is_causal", False)),
            backward=call.name.endswith("backward"),
        )
    )  # fmt: skip


@lowers(
    "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention", "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten.scaled_dot_product_attention", "aten._scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip
def _library_attention(call: Call) -> Iterable[Kernel]:
    q, k, v = call.inputs[:3]
    causal = any(x is True for x in call.args) or call.kwargs.get("is_causal") is True
    yield from _attention(
        Call("silicast.attention", (q, k, v, causal), {}, (q, k, v), call.outputs)
    )
