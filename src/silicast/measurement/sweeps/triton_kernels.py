"""Triton kernels that engines fuse and PyTorch does not.

This module imports Triton, so that it is imported only where a kernel runs. With
``TRITON_INTERPRET=1`` the kernels run slowly on a CPU, for tests without a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
import triton
import triton.language as tl

STREAM_BLOCK = 1024
COLUMNS = 64
DEPTHS = {2: 64, 4: 32}
"""Bytes of a number -> depth of a step; three stages fit into the shared memory of most GPUs."""
BLOCKS = (16, 32, 64, 128)
"""Rows of a block: the first that holds the rows of an expert, or else the last."""
STAGES = 3


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
def _rotate(x, cos, sin, row, table, half, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
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
        _rotate(q, cos, sin, token * heads + head, token, half, BLOCK)
    else:
        _rotate(k, cos, sin, token * groups + head - heads, token, half, BLOCK)


def rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    """Rotates queries and keys (tokens, heads, width) in place; tables are (tokens, 1, width)."""
    tokens, heads, width = q.shape
    groups, half = k.shape[1], width // 2
    block = triton.next_power_of_2(half)
    _rope[(tokens, heads + groups)](q, k, cos, sin, heads, groups, half, BLOCK=block)
    return q, k


@final
@dataclass(frozen=True)
class Routing:
    """Assignments of tokens to experts, sorted by expert and padded, so that each block of rows
    belongs to one expert.

    Attributes:
        slots: assignment of each row (token * topk + place), one past the last for padding; shape
            (blocks * rows,).
        experts: expert of each block; weights: of each assignment, shape (tokens * topk,).
        rows: of a block; topk: experts of a token; pairs: number of assignments.
    """

    slots: Any
    experts: Any
    weights: Any
    rows: int
    topk: int
    pairs: int


def routing(chosen: Any, weights: Any, experts: int, rows: int = 0) -> Routing:
    """Sorts assignments.

    Args:
        chosen: expert of each assignment, shape (tokens, topk); weights: of each.
        experts: their number; rows: of a block, 0 = the first that holds an expert's.
    """
    pairs, topk = chosen.numel(), chosen.shape[1]
    flat = chosen.reshape(-1).to(torch.int64)
    counts = torch.bincount(flat, minlength=experts)
    most = int(counts.max())
    rows = rows or next((size for size in BLOCKS if most <= size), BLOCKS[-1])
    ends = ((counts + rows - 1) // rows * rows).cumsum(0)
    order = flat.argsort(stable=True)
    owners = flat[order]
    begins = ends - (counts + rows - 1) // rows * rows
    position = torch.arange(pairs, device=flat.device) - (counts.cumsum(0) - counts)[owners]
    total = int(ends[-1])
    slots = torch.full((total,), pairs, dtype=torch.int32, device=flat.device)
    slots[begins[owners] + position] = order.to(torch.int32)
    starts = torch.arange(0, total, rows, device=flat.device)
    owner = torch.searchsorted(ends, starts, right=True).to(torch.int32)
    return Routing(slots, owner, weights.reshape(-1), rows, topk, pairs)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_up(  # type: ignore[no-untyped-def]
    x,
    w,
    h,
    slots,
    experts,
    hidden,
    inner,
    pairs,
    topk,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(0)
    expert = tl.load(experts + block).to(tl.int64)
    rows = block * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + rows)
    real = slot < pairs
    token = (slot // topk).to(tl.int64)
    cols = (tl.program_id(1) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = cols < inner
    base = w + expert * 2 * inner * hidden
    gate = tl.zeros((ROWS, COLS), dtype=tl.float32)
    up = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for k in range(0, hidden, DEPTH):
        at = k + tl.arange(0, DEPTH)
        valid = at < hidden
        a = tl.load(
            x + token[:, None] * hidden + at[None, :],
            mask=real[:, None] & valid[None, :],
            other=0.0,
        )
        wanted = valid[:, None] & inside[None, :]
        g = tl.load(base + cols[None, :] * hidden + at[:, None], mask=wanted, other=0.0)
        u = tl.load(base + (cols[None, :] + inner) * hidden + at[:, None], mask=wanted, other=0.0)
        gate += tl.dot(a, g, input_precision=PRECISION)
        up += tl.dot(a, u, input_precision=PRECISION)
    result = gate * tl.sigmoid(gate) * up
    tl.store(
        h + rows[:, None].to(tl.int64) * inner + cols[None, :],
        result.to(h.dtype.element_ty),
        mask=inside[None, :],
    )


@triton.jit  # type: ignore[untyped-decorator]
def _down(  # type: ignore[no-untyped-def]
    h,
    w,
    y,
    slots,
    experts,
    weights,
    hidden,
    inner,
    pairs,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(0)
    expert = tl.load(experts + block).to(tl.int64)
    rows = block * ROWS + tl.arange(0, ROWS)
    slot = tl.load(slots + rows)
    real = slot < pairs
    cols = (tl.program_id(1) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = cols < hidden
    base = w + expert * hidden * inner
    result = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for k in range(0, inner, DEPTH):
        at = k + tl.arange(0, DEPTH)
        valid = at < inner
        a = tl.load(
            h + rows[:, None].to(tl.int64) * inner + at[None, :], mask=valid[None, :], other=0.0
        )
        wanted = valid[:, None] & inside[None, :]
        b = tl.load(base + cols[None, :] * inner + at[:, None], mask=wanted, other=0.0)
        result += tl.dot(a, b, input_precision=PRECISION)
    factor = tl.load(weights + slot, mask=real, other=0.0).to(tl.float32)
    tl.store(
        y + slot[:, None].to(tl.int64) * hidden + cols[None, :],
        (result * factor[:, None]).to(y.dtype.element_ty),
        mask=real[:, None] & inside[None, :],
    )


def experts(x: Any, w13: Any, w2: Any, to: Routing, stated: Mapping[str, int] | None = None) -> Any:
    """A layer of experts in two kernels (gate and up with SiLU, then down), weighted and summed
    over each token's experts.

    Args:
        x: (tokens, hidden); w13: (experts, 2 inner, hidden), gates first; w2: (experts, hidden,
            inner).
        stated: COLS, DEPTH, num_warps and num_stages other than the usual ones.
    """
    tokens, hidden = x.shape
    inner = w2.shape[2]
    rows = to.rows
    settings: dict[str, Any] = {
        "ROWS": rows,
        "COLS": COLUMNS,
        "DEPTH": DEPTHS[x.element_size()],
        "PRECISION": "ieee",
        "num_warps": 8 if rows == BLOCKS[-1] else 4,
        "num_stages": STAGES,
        **(stated or {}),
    }
    columns = settings["COLS"]
    between = torch.empty((to.slots.numel(), inner), dtype=x.dtype, device=x.device)
    each = torch.empty((to.pairs, hidden), dtype=x.dtype, device=x.device)
    blocks = to.experts.numel()
    _gate_up[(blocks, triton.cdiv(inner, columns))](
        x, w13, between, to.slots, to.experts, hidden, inner, to.pairs, to.topk, **settings
    )
    _down[(blocks, triton.cdiv(hidden, columns))](
        between, w2, each, to.slots, to.experts, to.weights, hidden, inner, to.pairs, **settings
    )
    return each.view(tokens, to.topk, hidden).sum(1)
