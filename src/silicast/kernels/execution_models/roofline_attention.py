"""Attention on devices that are not SIMT: two chained products and a softmax over live scores.

Exact work is shared with the SIMT models (:mod:`silicast.kernels.attention.attention_work`). An
execution
model says how many operations its matrix units issue for one head's products.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_decode import AttentionDecode
from silicast.kernels.attention.attention_prefill import AttentionPrefill
from silicast.kernels.attention.attention_work import (
    AttentionSequences,
    column,
    compute_format,
    element_bytes,
    live_keys,
    live_scores,
    useful,
    windows,
)
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.roofline import Rates, RooflineKernel, RooflineWork, analyse_work
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch


class RooflineAttention(RooflineKernel):
    """Prefill or decode attention of one execution model.

    Class attributes:
        decode: the cache does not yet hold the new tokens.
        fetches_cache: software fills the on-chip memory, so that every call reads keys and values
            anew.
    """

    fetches_cache: ClassVar[bool] = False
    decode: ClassVar[bool]
    takes_numbers: ClassVar[bool] = True
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})

    @abstractmethod
    def rates(self, device: Device, dtype: str) -> Rates:
        """The device's rates for products in ``dtype``."""

    @abstractmethod
    def issued(self, device: Device, dtype: str, rows: F64, keys: F64, width: F64) -> F64:
        """Operations that matrix units issue for ``rows`` queries x ``keys`` of one head, twice:
        scores and weighted values, padding included.
        """

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        c = load_physics(self.group).constants(device.architecture)
        variant = batch.variant
        dtype = compute_format(variant.dtype)
        rates = self.rates(device, dtype)
        work = AttentionSequences.from_batch(batch, decode=self.decode)
        causal = variant.flag("causal", default=True)
        heads, groups = column(batch, "num_heads", 1), column(batch, "num_kv_heads", 1)
        width = column(batch, "head_dim", 128)
        window = windows(batch, work)
        group = xp.float64(work.spread(xp.maximum(1, heads // xp.maximum(groups, 1))))
        keys = xp.float64(live_keys(work.q, work.kv, window))
        scores = xp.float64(live_scores(work.q, work.kv, window, causal=causal))
        queries = xp.float64(work.q)
        # A block of queries visits every key that any of its rows sees: live scores and half a
        # block beyond the diagonal.
        dense = queries * keys
        visited = xp.minimum(scores + queries * (0.5 * c["attention_block"]), dense)
        share = visited / xp.maximum(dense, 1.0)
        spread_width = xp.float64(work.spread(width))
        issued = self.issued(device, dtype, queries * group, keys, spread_width) * share
        live = work.total(scores) * heads
        kv_size = element_bytes(variant.kv_dtype or variant.dtype)
        q_size = element_bytes(variant.dtype)
        tokens = work.total(queries)
        cached = 2.0 * work.total(keys) * groups * width * kv_size
        blocks = xp.ceil(queries * group / c["attention_block"])
        sweeps = xp.where(keys * spread_width * 4.0 > 0.25 * rates.chip_bytes, blocks, 1.0)
        # A block reads the keys that it visits: of each, all of a window and half a triangle.
        seen = xp.where(sweeps > 1.0, xp.maximum(visited / queries * sweeps, keys), keys)
        readers = heads if c.get("each_head_reads") else groups
        swept = 2.0 * work.total(seen) * readers * width * kv_size * c["paged_read"]
        mask = column(batch, "mask_bytes", 0)
        read, written = tokens * heads * width * q_size + cached, tokens * heads * width * 2.0
        read = read + mask
        tasks = work.total(blocks) * groups
        shared_out = work.total(xp.maximum(queries * group / c["attention_block"], 1.0)) * groups
        none = xp.full_like(read, 0.0)
        return analyse_work(
            RooflineWork(
                matrix_ops=4.0 * live * width,
                matrix_issued=work.total(issued) * groups * c["attention_slowdown"],
                vector_ops=work.total(visited) * heads * c["softmax_ops"],
                vector_useful=none,
                special_ops=work.total(visited) * heads,
                read_bytes=read,
                write_bytes=written,
                moved_bytes=read - cached + swept + written,
                serial_s=xp.ceil(tasks / rates.units) * c["attention_task_s"]
                + c["attention_launch_s"],
                tasks=tasks,
                pieces=shared_out * c["attention_splits"],
                fresh_bytes=cached if self.fetches_cache else 0.0,
            ),
            rates,
            variant,
        )

    @final
    def flops(self, op: Op) -> int:
        """Exact useful FLOPs: live scores only."""
        return useful(op, decode=self.decode)[0]

    @final
    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes moved once."""
        return useful(op, decode=self.decode)[1]


def register_both(kind: type[RooflineAttention]) -> type[RooflineAttention]:
    """Class decorator: makes prefill and decode attention of an execution model known."""
    for decode, dims in ((False, AttentionPrefill.dims), (True, AttentionDecode.dims)):
        family = "attention_decode" if decode else "attention_prefill"
        attributes = {"family": family, "decode": decode, "dims": dims, "__doc__": kind.__doc__}
        register(type(f"{kind.__name__}_{family}", (kind,), attributes))
    return kind
