"""Exact work of latent attention: live scores, FLOPs, bytes and the physical bound.

Widths of a batch are its dimensions ``kv_lora_rank``, ``qk_nope_head_dim``, ``qk_rope_head_dim``
and ``v_head_dim``; a cached token is one vector of ``kv_lora_rank + qk_rope_head_dim`` elements
for all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import numpy as np
from msgspec import Struct

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_kernel import AttentionKernel
from silicast.kernels.attention.attention_memory import L2_BYTES_PER_CLOCK_AND_CORE
from silicast.kernels.attention.attention_work import (
    AttentionSequences,
    column,
    element_bytes,
    exact_sum,
    live_scores,
)
from silicast.kernels.attention.mla_schemes import mla_constants, mla_scheme
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.registry import implementation_for
from silicast.workload.graphs.op import Op, OpBatch, Variant

MLA_DIMS = {
    "num_heads": (1, 1 << 12),
    "kv_lora_rank": (16, 1 << 13),
    "qk_nope_head_dim": (8, 1024),
    "qk_rope_head_dim": (8, 1024),
    "v_head_dim": (8, 1024),
}


@final
class Widths(Struct, frozen=True):
    """Head counts and widths of a batch of ops, int64 arrays of shape (ops,)."""

    heads: I64
    rank: I64
    nope: I64
    rope: I64
    value: I64

    @staticmethod
    def from_batch(batch: OpBatch) -> Widths:
        """The widths of ``batch``; DeepSeek-V3's where a dimension is left out."""
        return Widths(
            column(batch, "num_heads", 128),
            column(batch, "kv_lora_rank", 512),
            column(batch, "qk_nope_head_dim", 128),
            column(batch, "qk_rope_head_dim", 64),
            column(batch, "v_head_dim", 128),
        )

    @property
    def query(self) -> I64:
        """Width of a query and a key of one head."""
        return self.nope + self.rope

    @property
    def cached(self) -> I64:
        """Elements of a cached token."""
        return self.rank + self.rope


@final
class MlaWork(Struct, frozen=True):
    """What a batch of ops must do, float64 arrays of shape (ops,).

    Attributes:
        flops: useful floating-point operations.
        reads, writes: bytes that must move.
        keys: bytes among ``reads`` that come from the cache or from the expanded keys and values.
        moved: reads and writes.
    """

    flops: F64
    reads: F64
    writes: F64
    keys: F64

    @property
    def moved(self) -> F64:
        return self.reads + self.writes

    @staticmethod
    def from_batch(
        batch: OpBatch, work: AttentionSequences, *, decode: bool, causal: bool
    ) -> MlaWork:
        """The work of ``batch``. Sums over sequences are of whole numbers below 2**53."""
        w = Widths.from_batch(batch)
        none = work.q * 0
        scores = work.total(xp.float64(live_scores(work.q, work.kv, none, causal=causal)))
        queries, keys = work.total(xp.float64(work.q)), work.total(xp.float64(work.kv))
        q_bytes = element_bytes(batch.variant.dtype)
        kv_bytes = element_bytes(batch.variant.kv_dtype or batch.variant.dtype)
        q_width = w.cached if decode else w.query
        out = w.rank if decode else w.value
        cached = w.cached * kv_bytes
        if not decode:
            # a kernel reads expanded keys and values, or the latent, whichever is less
            cached = xp.minimum(
                cached, (w.heads * (w.nope + w.value) + w.rope) * min(q_bytes, kv_bytes)
            )
        key_bytes = keys * cached
        return MlaWork(
            flops=2.0 * scores * w.heads * (q_width + out),
            reads=queries * w.heads * q_width * q_bytes + key_bytes,
            writes=queries * w.heads * out * 2.0,
            keys=key_bytes,
        )

    def bound(self, device: Device, pipe: str, math: str, cache: str) -> dict[str, F64]:
        """Resource -> seconds that it needs alone at its largest rate; the maximum is the bound."""
        l2_bytes = device.l2.capacity_bytes
        outside = self.reads if cache == "cold" else xp.maximum(0.0, self.moved - l2_bytes)
        inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
        return {
            "tensor": self.flops / device.bound_per_s(pipe, math),
            "dram": outside / device.dram.bandwidth_bytes_per_s,
            "l2": self.moved / inner,
        }


def useful(op: Op, *, decode: bool) -> tuple[int, int]:
    """FLOPs and bytes of one op, exactly."""
    batch = OpBatch.single(op)
    work = AttentionSequences.from_batch(batch, decode=decode)
    flops, moved = _useful(batch, work, lambda values: exact_sum(values, work.count), decode=decode)
    return int(flops), int(moved)


def useful_rows(batch: OpBatch, *, decode: bool) -> tuple[F64, F64]:
    """FLOPs and bytes of many ops, (ops,)."""
    work = AttentionSequences.from_batch(batch, decode=decode)
    flops, moved = _useful(batch, work, work.total, decode=decode)
    return xp.float64(flops), xp.float64(moved)


def _useful(
    batch: OpBatch, work: AttentionSequences, total: Callable[[I64], Any], *, decode: bool
) -> tuple[Any, Any]:
    variant, w = batch.variant, Widths.from_batch(batch)
    heads, rank, nope, rope, value = w.heads, w.rank, w.nope, w.rope, w.value
    live = live_scores(work.q, work.kv, work.q * 0, causal=variant.flag("causal", default=True))
    scores, queries, keys = total(live), total(work.q), total(work.kv)
    q_bits = round(8 * element_bytes(variant.dtype))
    kv_bits = round(8 * element_bytes(variant.kv_dtype or variant.dtype))
    cached = (rank + rope) * kv_bits
    if decode:
        q_width, out = rank + rope, rank
    else:
        q_width, out = nope + rope, value
        cached = xp.minimum(cached, (heads * (nope + value) + rope) * min(q_bits, kv_bits))
    bits = queries * heads * (q_width * q_bits + out * 16) + keys * cached
    return 2 * scores * heads * (q_width + out), -(-bits // 8)


def projected_s(w: Widths, rows: I64, variant: Variant, device: Device, *, absorbed: bool) -> F64:
    """Time of the products between heads and the latent, shape (ops,).

    Args:
        rows: tokens of each op.
        absorbed: queries to the latent and results back, one product a head each; else keys and
            values of all heads out of the latent.
    """
    gemm = implementation_for("gemm", device.execution_model)
    assert gemm is not None
    plain = Variant("bf16", launch=variant.launch, cache=variant.cache)
    rows = xp.maximum(rows, 1)

    def seconds(**sizes: I64) -> F64:
        numbers = not isinstance(rows, np.ndarray)
        return gemm.estimates(OpBatch("gemm", plain, sizes, numbers=numbers), device).estimate_s

    if not absorbed:
        return seconds(m=rows, n=w.heads * (w.nope + w.value), k=w.rank)
    to = seconds(batch=w.heads, m=rows, n=w.rank, k=w.nope)
    return to + seconds(batch=w.heads, m=rows, n=w.value, k=w.rank)


class LatentAttention(AttentionKernel, CountsRows):
    """Attention over cached latent vectors; work is counted with queries, keys and results as they
    are multiplied: in the latent, or of each head.

    Class attributes:
        decode: whether every sequence brings one new token, or a few.
    """

    decode: ClassVar[bool]
    implied_flags: ClassVar[frozenset[str]] = frozenset({"causal"})
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")

    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:
        return mla_constants(self.family, device, mla_scheme(variant, device))

    def style(self, variant: Variant, device: Device) -> str:
        """See :meth:`Implementation.style`: whose call of which kernel."""
        return mla_scheme(variant, device).label

    def useful(self, op: Op) -> tuple[int, int]:
        return useful(op, decode=self.decode)

    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        return useful_rows(batch, decode=self.decode)
