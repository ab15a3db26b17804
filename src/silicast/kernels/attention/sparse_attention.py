"""Attention of a latent cache over the entries that each query may see: selected, compressed, near.

One shared entry of ``head_dim`` numbers is key and, its first ``value_dim`` numbers, value of all
heads. A block takes a query with a tile of its heads and gathers that query's entries, so that the
work does not depend on the length of the cache once more than ``selected`` entries can be seen.
In a decode (flag ``decode``) blocks share a walk where there are too few of them. Where a library
has no kernel for an architecture's matrix instructions, one on its FMA lanes takes each head alone
and every slot of the index ("lane_cycles"). Short prefills may run as dense attention of heads
instead, where a library has that path.
docs/explanation/attention.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import (
    AttentionSequences,
    column,
    compute_format,
    element_bytes,
    exact_sum,
)
from silicast.kernels.attention.sparse_constants import (
    GROUP,
    memory_bounds,
    sparse_constants,
    sparse_errors,
)
from silicast.kernels.attention.sparse_work import in_rounds, seen
from silicast.kernels.execution_models.row_counts import CountsRows
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.device_rates import data_rate
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant

KEY_TILE = 64
LATENT_WIDTH = 576
"""Elements of an entry of DeepSeek's latent cache, 512 and 64 with a position: the width that
"entry_cycles" is stated for, and of ops that do not state theirs (``head_dim``)."""
INDEX_BYTES = 4


@register
@final
class SparseAttention(Implementation, CountsRows):
    """Dimensions: batch, q_len, kv_len, num_heads, head_dim, selected (0 = all), and with defaults
    value_dim (head_dim), ratio (1), window (0 = none), dense_width (0 = none).

    kv_len counts past and new tokens; in a decode it does not hold the new ones (q_len, default 1).
    ``ratio`` tokens share an entry of the compressed cache; ``window`` adds the last tokens
    uncompressed. ``dense_width``: width of a head's key and value together in the dense path, which
    prefills take that see no more than ``selected`` tokens.
    """

    family: ClassVar[str] = "sparse_attention"
    group: ClassVar[str] = GROUP
    dtypes: ClassVar[tuple[str, ...]] = ("bf16", "fp8")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 16),
        "q_len": (1, 1 << 20),
        "kv_len": (1, 1 << 22),
        "num_heads": (1, 512),
        "head_dim": (16, 1024),
        "selected": (0, 1 << 14),
    }
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})
    takes_numbers: ClassVar[bool] = True

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        c = sparse_constants(self.family, device.architecture, style_of(batch))
        return self.analyse_with(batch, device, c)

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        size = _Sizes(batch, c["dense_tokens"] if c["dense_efficiency"] > 0.0 else 0.0)
        work = size.work
        dtype = compute_format(batch.variant.dtype)
        pipe = device.matrix_pipe(dtype)
        clock = device.clocks.boost_hz
        tile = c["head_tile"]
        heads = xp.float64(size.heads)
        tiles = xp.ceil(heads / tile)
        tokens = work.total(xp.float64(work.q))
        slots = device.cores / c["cores_per_block"]
        rate = device.rate_per_core(pipe, dtype) * clock * c["cores_per_block"] * c["efficiency"]
        pad = c["head_pad"]
        multiplied = xp.minimum(xp.ceil(heads / tiles / pad) * pad, tile)
        entry_s = 2.0 * multiplied * (size.width + size.value) / rate
        # one entry of one query is fetched by itself, however few heads use it
        entry_s = entry_s + size.width / LATENT_WIDTH * c["entry_cycles"] / clock
        live = work.total(size.entries) / tokens
        walked = xp.maximum(live + KEY_TILE / 2.0, c["least_entries"])
        # indices beyond the visible entries are masked, not skipped, where the kernel is so made
        most = xp.float64(size.selected) + size.window
        walked = xp.where(size.selected > 0, walked + c["padded"] * (most - walked), walked)
        blocks = tokens * tiles
        splits = xp.full_like(blocks, 1.0)
        if batch.variant.flag("decode"):
            most = xp.minimum(walked / KEY_TILE, c["most_splits"])
            splits = xp.maximum(xp.minimum(slots / blocks, most), 1.0)
        if c.get("lane_cycles"):
            blocks, walked, entry_s = _on_lanes(size, batch, c, clock)
            splits, multiplied = xp.full_like(blocks, 1.0), xp.full_like(blocks, 1.0)
        rounds = in_rounds(blocks * splits, slots, c["tail"])
        core_s = rounds * (c["block_s"] + walked / splits * entry_s)
        merge_s = xp.where(splits > 1.0, c["merge_s"], 0.0)
        dense_s = self._dense(size, rate / c["efficiency"], slots, c)
        core_s = xp.where(size.dense, dense_s, core_s)
        stored = element_bytes(batch.variant.kv_dtype or batch.variant.dtype)
        element = element_bytes(batch.variant.dtype)
        both = xp.float64(size.width * element + size.value * 2.0)
        both = xp.where(size.short, xp.minimum(both, size.dense_width * 2.0), both)
        written = tokens * heads * size.value * 2.0
        written = xp.where(size.short, xp.minimum(written, tokens * heads * both / 2.0), written)
        read = tokens * heads * both - written + size.distinct * size.width * stored
        gathered = blocks * walked * size.width * stored
        forced, memory = memory_bounds(device, read, written, batch.variant.cache)
        dram_s = forced / (data_rate(device) * c["dram_efficiency"])
        time = c["launch_s"] + merge_s + xp.maximum(core_s, dram_s) + c["serial"] * dram_s
        wide = xp.float64(size.width + size.value)
        wide = xp.where(size.short, xp.minimum(wide, size.dense_width), wide)
        flops = 2.0 * work.total(size.entries) * heads * wide
        resource_s = {"tensor": flops / device.bound_per_s(pipe, dtype), **memory}
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        padded = 2.0 * blocks * multiplied * walked * (size.width + size.value)
        return Analysis(
            time_s=time,
            bound_s=bound,
            resource_s={**resource_s, "launch": xp.full_like(time, c["launch_s"])},
            demand=Demand(
                tasks=blocks * splits,
                waves=blocks * splits / slots,
                occupancy=xp.minimum(blocks * splits / slots, 1.0),
                pipe_work={"fma" if c.get("lane_cycles") else pipe: padded},
                level_bytes={"dram": forced, "l2": gathered + written},
            ),
            features={
                "core_share": core_s / time,
                "dram_share": dram_s / time,
                "padding": padded / xp.maximum(flops, 1.0),
                "waves": blocks * splits / slots,
            },
            independent_log_sd=xp.full_like(time, c["independent_log_sd"]),
        )

    @staticmethod
    def _dense(size: _Sizes, rate: float, slots: float, c: Mapping[str, float]) -> F64 | float:
        """Keys and values of heads instead of the latent, where a library has that path."""
        if c["dense_efficiency"] <= 0.0:
            return 0.0
        ops = 2.0 * size.work.total(size.entries) * size.heads * size.dense_width
        dense: F64 = ops / (rate * slots * c["dense_efficiency"])
        return dense

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """See :meth:`Implementation.style`: a library's own kernel, which modules alone show."""
        return variant.library

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        return sparse_errors(self.family, device)

    def flops(self, op: Op) -> int:
        """2 x (head_dim + value_dim) a head for every query and entry it sees."""
        size = _Sizes(OpBatch.single(op))
        pairs = exact_sum(size.entries_exact, size.work.count)
        return int(2 * pairs * size.heads * (size.width + size.value))

    def compulsory_bytes(self, op: Op) -> int:
        """Queries and entries that can be seen at all in, results out."""
        size = _Sizes(OpBatch.single(op))
        tokens, entries = (exact_sum(x, size.work.count) for x in (size.work.q, size.reach))
        stored = element_bytes(op.variant.kv_dtype or op.variant.dtype)
        element = element_bytes(op.variant.dtype)
        heads, width, value = size.heads, size.width, size.value
        return int(tokens * heads * (width * element + value * 2) + entries * width * stored)

    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        size, variant = _Sizes(batch), batch.variant
        pairs, tokens, entries = (
            size.work.total(amounts)
            for amounts in (size.entries, xp.float64(size.work.q), size.reach)
        )
        stored = element_bytes(variant.kv_dtype or variant.dtype)
        line = size.heads * (size.width * element_bytes(variant.dtype) + size.value * 2)
        moved = tokens * line + entries * size.width * stored
        return 2.0 * pairs * size.heads * (size.width + size.value), np.floor(moved)


def style_of(batch: OpBatch) -> str:
    """Whose constants: kernels over compressed entries and a window, or over selected tokens; of a
    library for a cache format and phase.
    """
    variant = batch.variant
    kind = "compressed" if "window" in batch.dims else ""
    if not variant.library:
        return kind
    narrow = element_bytes(variant.kv_dtype or variant.dtype) < 2.0
    phase = "decode" if variant.flag("decode") else "prefill"
    words = (kind, variant.library, "fp8" if narrow else "bf16", phase)
    return "_".join(word for word in words if word)


def runs_dense(batch: OpBatch, device: Device) -> NDArray[np.bool_]:
    """Which prefills the library runs as dense attention of heads."""
    c = sparse_constants(SparseAttention.family, device.architecture, style_of(batch))
    if batch.variant.flag("decode") or c["dense_efficiency"] <= 0.0:
        none: NDArray[np.bool_] = batch.filled(False)
        return none
    return _Sizes(batch, c["dense_tokens"]).dense


def _on_lanes(
    size: _Sizes, batch: OpBatch, c: Mapping[str, float], clock: float
) -> tuple[F64, F64, F64]:
    """Blocks, slots that each walks and seconds of a slot, of a kernel without matrix instructions.

    A block takes one query and head, heads padded, and walks over every slot of the index whether
    it names an entry or not. A decode step's index has room for the longest context
    ("index_tokens"), because a graph captures it; a prefill's for the longest of its sequences.
    """
    ratio = column(batch, "ratio", 1)
    longest = size.work.largest(xp.float64(size.work.kv))
    if batch.variant.flag("decode"):
        longest = xp.full_like(longest, c["index_tokens"])
    visible = xp.ceil(xp.floor(longest / ratio) / KEY_TILE) * KEY_TILE
    slots = xp.where(size.selected > 0, size.selected, visible) + size.window
    heads = xp.ceil(size.heads / c["head_pad"]) * c["head_pad"]
    blocks = size.work.total(xp.float64(size.work.q)) * heads
    return blocks, xp.float64(slots), size.width / LATENT_WIDTH * c["lane_cycles"] / clock


@final
class _Sizes:
    """Sizes of a batch; arrays of shape (ops,) or, of sequences, (entries,).

    Attributes:
        entries: query-entry pairs of each sequence, exact and as floats.
        reach: entries of each sequence that at least one query must read: those that one query
            sees where an indexer selects (others may select the same).
        distinct: their number in each op.
        short: prefills of which all that is seen would be selected, so that they may be dense.
        dense: those of them that are, for they hold at most ``dense_tokens`` in all.
    """

    def __init__(self, batch: OpBatch, dense_tokens: float = 0.0) -> None:
        decode = batch.variant.flag("decode")
        self.work = work = AttentionSequences.from_batch(batch, decode=decode)
        self.heads = column(batch, "num_heads", 1)
        self.width = column(batch, "head_dim", LATENT_WIDTH)
        value = column(batch, "value_dim", 0)
        self.value = xp.where(value > 0, value, self.width)
        self.window = column(batch, "window", 0)
        self.selected = column(batch, "selected", 0)
        self.dense_width = column(batch, "dense_width", 0)
        ratio = work.spread(column(batch, "ratio", 1))
        cap, window = work.spread(self.selected), work.spread(self.window)
        near = xp.where(window > 0, seen(work.q, work.kv, 1, xp.maximum(window, 1)), 0)
        self.entries_exact = seen(work.q, work.kv, ratio, cap) + near
        self.entries: F64 = xp.float64(self.entries_exact)
        keys = work.kv // ratio
        self.reach = xp.where(cap > 0, xp.minimum(cap, keys), keys) + xp.minimum(window, work.kv)
        self.distinct = work.total(xp.float64(self.reach))
        longest = work.largest(xp.float64(work.kv))
        self.short = (longest <= self.selected) & (self.dense_width > 0) & (not decode)
        self.dense = self.short & (work.total(xp.float64(work.kv)) <= dense_tokens)
