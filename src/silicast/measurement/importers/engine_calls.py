"""Operators that vLLM, SGLang and FlashAttention register with PyTorch, as ``kernel`` tables.

Their tensors come as the sources write them: of engines the result first, of two-dimensional
activations (tokens, width). Attention over packed sequences is left out: their lengths are in
tensors, not in shapes.
"""

from __future__ import annotations

import math

from silicast.measurement.importers.aten_calls import STREAMED, AtenCall, NotAKernelError, reads
from silicast.measurement.records import Columns

_LIBRARIES = {
    "_C": "vllm", "_C_cache_ops": "vllm", "sgl_kernel": "sglang", "flash_attn": "fa2",
}  # fmt: skip


def _table(call: AtenCall, op: str, **columns: object) -> Columns:
    """A table with the engine as its library."""
    return {"op": op, **columns, "library": _LIBRARIES[call.name.partition("::")[0]]}


def _rows(call: AtenCall, index: int) -> tuple[int, int, str]:
    """Rows, width and format of a tensor."""
    *outer, width = call.shape(index)
    dtype = call.dtype(index)
    if dtype not in STREAMED:
        raise NotAKernelError(f"streams {dtype}, which no kernel model has")
    return math.prod(outer), width, dtype


@reads("_C::rms_norm", "sgl_kernel::rmsnorm")
def _rms_norm(call: AtenCall) -> Columns:
    """Result, input, weight."""
    tokens, hidden, dtype = _rows(call, 1)
    return _table(call, "rmsnorm", tokens=tokens, hidden=hidden, dtype=dtype)


@reads("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm")
def _add_norm(call: AtenCall) -> Columns:
    """Input, residual, weight."""
    tokens, hidden, dtype = _rows(call, 0)
    return _table(call, "rmsnorm", tokens=tokens, hidden=hidden, residual=True, dtype=dtype)


@reads("_C::silu_and_mul", "sgl_kernel::silu_and_mul")
def _silu_mul(call: AtenCall) -> Columns:
    """Result and input, gate and up beside each other."""
    tokens, width, dtype = _rows(call, 1)
    return _table(call, "silu_mul", tokens=tokens, width=width, dtype=dtype)


@reads("_C::rotary_embedding")
def _rope(call: AtenCall) -> Columns:
    """Positions, queries, keys, width of a head."""
    width = call.value(3)
    if not isinstance(width, int) or width < 1:
        raise NotAKernelError("rope: the width of a head was not recorded")
    tokens = math.prod(call.shape(0))
    heads, kv_heads = (math.prod(call.shape(index)) // max(tokens * width, 1) for index in (1, 2))
    return _table(
        call, "rope", tokens=tokens, num_heads=heads, num_kv_heads=kv_heads, head_dim=width,
        dtype=_rows(call, 1)[2],
    )  # fmt: skip


@reads("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache")
def _append(call: AtenCall) -> Columns:
    """Keys (tokens, heads, width), values, then the cache."""
    tokens, heads, width = call.shape(0)
    return _table(
        call, "kv_copy", tokens=tokens, num_kv_heads=heads, head_dim=width, dtype=call.dtype(0)
    )


@reads(
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant",
    "_C::dynamic_per_token_scaled_fp8_quant",
)  # fmt: skip
def _quantize(call: AtenCall) -> Columns:
    """Result in fp8, input."""
    tokens, hidden, _ = _rows(call, 1)
    return _table(call, "quantize", tokens=tokens, hidden=hidden, dtype="fp8")


@reads("_C::cutlass_scaled_mm", "sgl_kernel::fp8_scaled_mm")
def _scaled_mm(call: AtenCall) -> Columns:
    """vLLM: result, rows, columns; SGLang: rows, columns. Activations are quantised before."""
    first = 1 if call.name.startswith("_C::") else 0
    left, right = call.shape(first), call.shape(first + 1)
    return _table(
        call, "gemm", m=left[0], n=right[1], k=left[1], includes_quantize=False,
        dtype=call.dtype(first),
    )  # fmt: skip


@reads("flash_attn::_flash_attn_forward")
def _flash_attention(call: AtenCall) -> Columns:
    """Queries, keys and values (batch, tokens, heads, width), dropout, scale, causal, windows.

    Causal is aligned to the last query, as ours is.
    """
    batch, q_len, heads, width = call.shape(0)
    _, kv_len, kv_heads, _ = call.shape(1)
    causal, window = call.value(5), call.value(6)
    if not isinstance(causal, bool) or window not in (None, -1):
        raise NotAKernelError("attention in a window, or whether it is causal was not recorded")
    sizes = {"batch": batch, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width}
    dtype = call.dtype(0)
    if q_len == 1:
        return _table(call, "attention_decode", kv_len=kv_len - 1, **sizes, dtype=dtype)
    return _table(
        call, "attention_prefill", q_len=q_len, kv_len=kv_len, **sizes, causal=causal, dtype=dtype
    )
