"""Attention in one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.products import format_of, product
from silicast.workload.operators.table import (
    STREAMED,
    LaunchedKernel,
    OperatorCall,
    TensorValue,
    lowers,
    movement,
)

NARROWEST_HEAD, WIDEST_HEAD, MOST_HEADS = 8, 1024, 1 << 12
"""Sizes that kernel models take."""
GRADIENT_PASSES = 5
"""Halves of a forward pass of attention in its gradient: five products where forward has two."""

CAUSAL = {
    f"aten.{name}": position
    for name, position in {
        "scaled_dot_product_attention": 5,
        "_scaled_dot_product_flash_attention": 4,
        "_scaled_dot_product_flash_attention_for_cpu": 4,
        "_scaled_dot_product_efficient_attention": 6,
        "_scaled_dot_product_cudnn_attention": 6,
        "_scaled_dot_product_fused_attention_overrideable": 5,
    }.items()
}
"""Operators of PyTorch's attention -> position of ``is_causal``."""


def attention(  # the sizes of one call
    batch: int,
    heads: int,
    kv_heads: int,
    q_len: int,
    kv_len: int,
    widths: tuple[int, int],
    dtype: str,
    *,
    causal: bool,
    backward: bool = False,
    mask_bytes: int = 0,
) -> Op:
    """Scores, softmax and weighted values in one kernel.

    Args:
        widths: of a head of the queries and of the values; the mean counts.
        backward: the gradients of all three operands instead: five products of the same sizes,
            which count as two and a half forward passes.
        mask_bytes: of a mask or of biases that are read besides, what is broadcast once.
    """
    width = -(-sum(widths) // 2)
    sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": max(width, NARROWEST_HEAD)}
    if dtype not in STREAMED or sizes["head_dim"] > WIDEST_HEAD or heads > MOST_HEADS:
        sizes_of_scores = (batch, heads, q_len, kv_len, width)
        return _plain_attention(*sizes_of_scores, dtype, backward=backward, mask_bytes=mask_bytes)
    variant = Variant(dtype, flags=(("causal", causal),))
    if q_len == 1 and not backward:
        unmasked = Variant(dtype)  # the mask of a single query hides nothing
        return Op.make("attention_decode", unmasked, batch=batch, kv_len=kv_len - 1, **sizes)
    if backward and batch * heads % 2 == 0:
        part = "batch" if batch % 2 == 0 else "heads"
        batch = batch * GRADIENT_PASSES // 2 if part == "batch" else batch
        if part == "heads":
            sizes["num_heads"] = heads * GRADIENT_PASSES // 2
            sizes["num_kv_heads"] = -(-kv_heads * GRADIENT_PASSES // 2)
    elif backward:
        batch, sizes["head_dim"] = batch * GRADIENT_PASSES, max(-(-width // 2), NARROWEST_HEAD)
    keys = max(kv_len, q_len) if causal else kv_len
    if mask_bytes:
        sizes["mask_bytes"] = mask_bytes
    return Op.make("attention_prefill", variant, batch=batch, q_len=q_len, kv_len=keys, **sizes)


def _plain_attention(
    batch: int,
    heads: int,
    q_len: int,
    kv_len: int,
    width: int,
    dtype: str,
    *,
    backward: bool,
    mask_bytes: int,
) -> Op:
    """Attention in a format or size that no fused kernel takes, by bytes and operations."""
    size = 8 if dtype == "fp64" else 4
    scores = batch * heads * q_len * kv_len
    operations = scores * width * (10 if backward else 4)
    ends = batch * heads * width * (q_len + kv_len) * 2 * size
    return movement(
        ends + mask_bytes + 2 * scores * size, 2 * scores * size, operations, unmodelled=True
    )


def _of_tensors(
    tensors: Sequence[TensorValue], mask: object, *, causal: bool, backward: bool = False
) -> Op:
    """Queries, keys and values of shape (..., heads, tokens, width); a mask if it is a tensor."""
    q, k, v = tensors
    heads, kv_heads = (x.shape[-3] if len(x.shape) > 2 else 1 for x in (q, k))
    batch = q.elements // (heads * q.shape[-2] * q.shape[-1])
    return attention(
        batch,
        heads,
        kv_heads,
        q.shape[-2],
        k.shape[-2],
        (q.shape[-1], v.shape[-1]),
        q.dtype,
        causal=causal,
        backward=backward,
        mask_bytes=mask.nbytes if isinstance(mask, TensorValue) else 0,
    )


@lowers("silicast: attention attention_backward")
def _attention(call: OperatorCall) -> Op:
    causal, backward = bool(call.arg(3, "is_causal", False)), call.name.endswith("backward")
    mask = call.arg(7 if backward else 4, "mask")
    return _of_tensors(call.inputs[:3], mask, causal=causal, backward=backward)


@lowers(*CAUSAL)
def _library_attention(call: OperatorCall) -> Op:
    position = CAUSAL[".".join(call.name.split(".")[:2])]
    mask = None if "flash" in call.name else call.arg(3, "attn_mask")
    return _of_tensors(call.inputs[:3], mask, causal=call.arg(position, "is_causal") is True)


@lowers("onnx: Attention", "com.microsoft: MultiHeadAttention GroupQueryAttention")
def _heads_attention(call: OperatorCall) -> Op:
    """Queries, keys and values with heads as an axis, or beside each other in the last one."""
    options = call.kwargs
    q, k, v = (*call.args, None, None)[:3]
    heads = int(options.get("q_num_heads", options.get("num_heads", 0)))
    groups = int(options.get("kv_num_heads", 0)) or heads
    if len(q.shape) == 4:  # (batch, heads, tokens, width)
        batch, heads, q_len, width = q.shape
        groups, kv_len, of_values = k.shape[1], k.shape[2], v.shape[3]
    else:
        batch, q_len = q.shape[:2]
        width = (call.out if len(call.out.shape) == 3 else q).shape[-1] // heads
        kv_len, of_values = (k.shape[1] if k is not None and len(k.shape) == 3 else q_len), width
    causal = bool(options.get("is_causal", options.get("unidirectional", 0)))
    causal = causal or call.name.endswith("GroupQueryAttention")
    return attention(
        batch,
        heads,
        groups,
        q_len,
        kv_len + _past(call),
        (width, of_values),
        q.dtype,
        causal=causal,
    )


def _past(call: OperatorCall) -> int:
    """Tokens already in the cache that is handed in, of shape (batch, heads, tokens, width)."""
    positions = {"onnx.Attention": 4, "com.microsoft.MultiHeadAttention": 6}
    position = positions.get(call.name, 3)
    cache: Any = call.args[position] if position < len(call.args) else None
    return int(cache.shape[2]) if isinstance(cache, TensorValue) and len(cache.shape) == 4 else 0


@lowers("com.microsoft: Attention")
def _fused_attention(call: OperatorCall) -> Iterable[LaunchedKernel]:
    """The product that makes queries, keys and values, then attention."""
    x, weights = call.args[:2]
    heads = int(call.kwargs["num_heads"])
    batch, length, hidden = x.shape
    dtype = format_of(call, x)
    yield LaunchedKernel(product(batch * length, weights.shape[1], hidden, 1, dtype), "qkv", ())
    width = call.out.shape[-1] // heads
    causal = bool(call.kwargs.get("unidirectional", 0))
    sizes = (batch, heads, heads, length, length, (width, width))
    yield LaunchedKernel(attention(*sizes, x.dtype, causal=causal))
