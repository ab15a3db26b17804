"""Triton kernels of our own: what engines run fused and PyTorch does not.

Triton is imported with this module, which is therefore imported only where a kernel runs. Under
``TRITON_INTERPRET=1`` the kernels run on a CPU, slowly, which is how they can be checked without a
GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

STREAM_BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _silu_mul(x, out, half, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < half
    gate = tl.load(x + row * 2 * half + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * half + half + cols, mask=inside, other=0.0).to(tl.float32)
    result = gate * tl.sigmoid(gate) * up
    tl.store(out + row * half + cols, result.to(out.dtype.element_ty), mask=inside)


def silu_mul(x: Any) -> Any:
    """SiLU of the first half of each row times the second; (tokens, 2 n) to (tokens, n)."""
    tokens, half = x.shape[0], x.shape[1] // 2
    out = torch.empty((tokens, half), dtype=x.dtype, device=x.device)
    grid = (tokens, triton.cdiv(half, STREAM_BLOCK))
    _silu_mul[grid](x, out, half, BLOCK=STREAM_BLOCK)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _turn(x, cos, sin, row, table, half, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    cols = tl.arange(0, BLOCK)
    inside = cols < half
    first = tl.load(x + row * 2 * half + cols, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + row * 2 * half + half + cols, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + table * 2 * half + cols, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + table * 2 * half + cols, mask=inside, other=0.0).to(tl.float32)
    kind = x.dtype.element_ty
    tl.store(x + row * 2 * half + cols, (first * c - second * s).to(kind), mask=inside)
    tl.store(x + row * 2 * half + half + cols, (second * c + first * s).to(kind), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _rope(q, k, cos, sin, heads, groups, half, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if head < heads:
        _turn(q, cos, sin, token * heads + head, token, half, BLOCK)
    else:
        _turn(k, cos, sin, token * groups + head - heads, token, half, BLOCK)


def rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Turns queries and keys (tokens, heads, width) in place; tables are (tokens, 1, width)."""
    tokens, heads, width = q.shape
    groups, half = k.shape[1], width // 2
    block = triton.next_power_of_2(half)
    _rope[(tokens, heads + groups)](q, k, cos, sin, heads, groups, half, BLOCK=block)
    return q, k
