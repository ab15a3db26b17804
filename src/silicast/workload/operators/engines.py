"""Operators that vLLM, SGLang and FlashAttention register with PyTorch.

Arguments stand as in the sources: engines write the result first, activations are (tokens, width).
Attention over packed sequences is left out: their lengths are in tensors, not in shapes.
"""

from __future__ import annotations

from dataclasses import replace

from silicast.workload.graphs.op import Op, Variant
from silicast.workload.operators.attention import attention
from silicast.workload.operators.products import product
from silicast.workload.operators.rows import row_norm
from silicast.workload.operators.table import STREAMED, OperatorCall, TensorValue, lowers, movement

LIBRARIES = {"_C": "vllm", "_C_cache_ops": "vllm", "sgl_kernel": "sglang", "flash_attn": "fa2"}


def _own(call: OperatorCall, op: Op, **flags: bool) -> Op:
    """The op as the engine's own kernel."""
    if op.family == "data_movement":
        return op
    library, new_flags = LIBRARIES[call.name.partition(".")[0]], tuple(sorted(flags.items()))
    return replace(
        op, variant=replace(op.variant, library=library, flags=op.variant.flags + new_flags)
    )


def _streamed(call: OperatorCall, family: str, x: TensorValue, dtype: str = "", **sizes: int) -> Op:
    """An op that streams a tensor in a format that kernel models know."""
    if x.dtype not in STREAMED:
        return movement(x.nbytes, x.nbytes)
    return _own(call, Op.make(family, Variant(dtype or x.dtype), **sizes))


@lowers("_C: rms_norm fused_add_rms_norm", "sgl_kernel: rmsnorm fused_add_rmsnorm")
def _rms_norm(call: OperatorCall) -> Op:
    """Result, input, weight; with a sum: input, residual, weight."""
    added = "fused_add" in call.name
    x = call.args[0 if added else 1]
    return _own(call, row_norm("rmsnorm", x, x.shape[-1], residual=int(added)))


@lowers("_C: silu_and_mul", "sgl_kernel: silu_and_mul")
def _silu_mul(call: OperatorCall) -> Op:
    """Result and input, gate and up beside each other."""
    x = call.args[1]
    width = x.shape[-1]
    return _streamed(call, "silu_mul", x, tokens=x.elements // width, width=width)


@lowers("_C: rotary_embedding")
def _rope(call: OperatorCall) -> Op:
    """Positions, queries, keys, width of a head."""
    positions, q, k, width = call.args[:4]
    tokens = positions.elements
    heads, kv_heads = (x.elements // max(tokens * width, 1) for x in (q, k))
    sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width}
    return _streamed(call, "rope", q, tokens=tokens, **sizes)


@lowers("_C_cache_ops: reshape_and_cache_flash reshape_and_cache")
def _append(call: OperatorCall) -> Op:
    """Keys (tokens, heads, width), values, then the cache."""
    keys = call.args[0]
    sizes = dict(zip(("tokens", "num_kv_heads", "head_dim"), keys.shape, strict=True))
    return _own(call, Op.make("kv_copy", Variant(keys.dtype), **sizes))


@lowers("_C: static_scaled_fp8_quant dynamic_scaled_fp8_quant dynamic_per_token_scaled_fp8_quant")
def _quantize(call: OperatorCall) -> Op:
    """Result in fp8, input."""
    x = call.args[1]
    hidden = x.shape[-1]
    return _streamed(call, "quantize", x, "fp8", tokens=x.elements // hidden, hidden=hidden)


@lowers("_C: cutlass_scaled_mm", "sgl_kernel: fp8_scaled_mm")
def _scaled_mm(call: OperatorCall) -> Op:
    """vLLM: result, rows, columns; SGLang: rows, columns. Activations are quantised before."""
    first = 1 if call.name.startswith("_C.") else 0
    a, b = call.args[first : first + 2]
    m, k = a.shape
    return _own(call, product(m, b.shape[1], k, 1, a.dtype), includes_quantize=False)


@lowers("flash_attn: _flash_attn_forward")
def _flash_attention(call: OperatorCall) -> Op:
    """Queries, keys and values (batch, tokens, heads, width), dropout, scale, causal, windows.

    Causal is aligned to the last query, as ours is.
    """
    q, k = call.args[:2]
    batch, q_len, heads, width = q.shape
    sizes = (batch, heads, k.shape[2], q_len, k.shape[1], (width, width))
    return _own(call, attention(*sizes, q.dtype, causal=call.args[5]))
