"""Attention on designs: two products a head with a softmax between, fused where scores stay.

Scores stay on the chip where a block of them fits the largest memory on it twice; else they go
through main memory.
"""

from __future__ import annotations

from typing import ClassVar, cast, final

import numpy as np
from numpy.typing import NDArray

from silicast.accelerator.counting.einsum import OUTPUTS
from silicast.accelerator.design.architecture import Memory
from silicast.accelerator.design.chip import GROUP, chip_of
from silicast.accelerator.kernels.mapped import (
    ChipDemand,
    ChipFormat,
    MappedKernel,
    analysed,
    format_of,
    load_of,
    products,
    vector_cost,
)
from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import (
    AttentionSequences,
    column,
    element_bytes,
    live_keys,
    live_scores,
    windows,
)
from silicast.kernels.implementation import Analysis, Implementation
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.registry import implementation_for, register
from silicast.workload.graphs.op import OpBatch

BLOCK_ROWS, BLOCK_KEYS = 64.0, 256.0
"""Queries and keys of a block of scores, where there are so many."""


class NestAttention(MappedKernel):
    """Prefill or decode attention.

    Class attributes:
        decode: the cache does not yet hold the new tokens.
    """

    decode: ClassVar[bool]
    group: ClassVar[str] = GROUP
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})

    @final
    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        variant = batch.variant
        c = load_physics(GROUP).constants(device.architecture)
        fmt = format_of(device, variant.dtype, variant.kv_dtype or "")
        work = AttentionSequences.from_batch(batch, decode=self.decode)
        causal = variant.flag("causal", default=True)
        heads, groups = column(batch, "num_heads", 1), column(batch, "num_kv_heads", 1)
        width = column(batch, "head_dim", 128)
        window = windows(batch, work)
        keys = xp.float64(live_keys(work.q, work.kv, window))
        scores = xp.float64(live_scores(work.q, work.kv, window, causal=causal))
        queries = xp.float64(work.q)
        group = xp.float64(work.spread(np.maximum(1, heads // np.maximum(groups, 1))))
        dense = queries * keys
        visited = np.minimum(scores + queries * (0.5 * c["attention_block"]), dense)
        # Heads of all sequences run side by side: an entry has its share of what all take.
        pairs = work.spread(work.sequences * xp.float64(groups))
        load = _both_products(
            device, fmt, pairs, queries * group, keys, xp.float64(work.spread(width))
        ).times(visited / np.maximum(dense, 1.0) / pairs)
        mask = xp.float64(column(batch, "mask_bytes", 0))
        load = _summed(load, work, xp.float64(groups)).reading(device, mask)
        scores_visited = work.total(visited) * heads
        vector_s, joules = vector_cost(device, scores_visited * c["softmax_ops"], scores_visited)
        q_size, kv_size = (
            element_bytes(variant.dtype),
            element_bytes(variant.kv_dtype or variant.dtype),
        )
        tokens = work.total(queries)
        cached = 2.0 * work.total(keys) * groups * width * kv_size
        return analysed(
            device,
            variant,
            load,
            flops=4.0 * work.total(scores) * heads * width,
            read=tokens * heads * width * q_size + cached + mask,
            written=tokens * heads * width * q_size,
            vector_s=vector_s,
            vector_joules=joules,
        )


def _both_products(
    device: Device, fmt: ChipFormat, pairs: F64, rows: F64, keys: F64, width: F64
) -> ChipDemand:
    """Scores and weighted values of ``pairs`` heads, (entries,)."""
    stays = scores_stay(device, fmt, rows, keys)
    ones, left = np.ones_like(rows), np.where(stays, 0.0, 1.0)
    scores = products(device, fmt, pairs, rows, keys, width, np.stack([ones, ones, left]))
    values = products(device, fmt, pairs, rows, width, keys, np.stack([ones, left, ones]))
    return load_of(device, fmt, scores).plus(load_of(device, fmt, values))


def scores_stay(device: Device, fmt: ChipFormat, rows: F64, keys: F64) -> NDArray[np.bool_]:
    """Whether a block of scores, in two buffers, fits the largest memory on the chip."""
    arch = chip_of(device).in_format(fmt.compute, fmt.bits)
    room = max((_room(memory) for memory in arch.memories[1:]), default=0.0)
    block = np.minimum(rows, BLOCK_ROWS) * np.minimum(keys, BLOCK_KEYS)
    scores_stay: NDArray[np.bool_] = 2.0 * block <= room
    return scores_stay


def _room(memory: Memory) -> float:
    return memory.usable_words if memory.may_keep(OUTPUTS) else 0.0


def _summed(load: ChipDemand, work: AttentionSequences, groups: F64) -> ChipDemand:
    """Over the sequences of each op, for all its key-value heads."""

    def total(values: F64) -> F64:
        value: F64 = work.total(values) * groups
        return value

    return load.changed(total)


@register
@final
class NestAttentionPrefill(NestAttention):
    """New tokens attend to themselves and what is cached."""

    family: ClassVar[str] = "attention_prefill"
    decode: ClassVar[bool] = False
    original = cast("Implementation", implementation_for("attention_prefill", "simt"))
    dims = original.dims


@register
@final
class NestAttentionDecode(NestAttention):
    """One new token a sequence, or a few, attend to a cache."""

    family: ClassVar[str] = "attention_decode"
    decode: ClassVar[bool] = True
    original = cast("Implementation", implementation_for("attention_decode", "simt"))
    dims = original.dims
