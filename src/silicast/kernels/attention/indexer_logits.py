"""Scores of a lightning indexer: every query against every key of a narrow index cache.

``logits[t, s] = sum over heads of weight[t, head] x relu(q[t, head] . k[s])``, one fp32 number a
pair. In a prefill a block takes as many queries as fill the matrix unit's 128 rows with their heads
and walks over the keys; in a decode (flag ``decode``) the walk is shared out evenly instead.
docs/explanation/attention.md derives the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.dtypes import BITS, RECIPES
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import AttentionSequences, column
from silicast.kernels.attention.sparse_constants import (
    GROUP,
    library_style,
    memory_bounds,
    sparse_constants,
    sparse_errors,
)
from silicast.kernels.attention.sparse_work import in_rounds, seen
from silicast.kernels.implementation import Analysis, Demand, Implementation
from silicast.kernels.physics.device_rates import data_rate
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant

ROWS = 128
"""Rows of the matrix unit that queries and their heads fill."""
KEY_TILE = 256
INDEX_HEADS = 64
INDEX_DIM = 128
"""Heads of DeepSeek-V3.2's indexer and their width, of ops that do not state theirs."""
SCORE_BYTES = 4
SCALE_BYTES = 4


@register
@final
class IndexerLogits(Implementation):
    """Dimensions: batch, q_len, kv_len, and with defaults heads (64) and head_dim (128), those of
    DeepSeek-V3.2, and ratio.

    kv_len counts past and new tokens; in a decode it does not hold the new ones (q_len, default 1).
    ``ratio`` (default 1): tokens that share one index key; ``pool`` (default 1): keys of which only
    the best score is written.
    """

    family: ClassVar[str] = "indexer_logits"
    group: ClassVar[str] = GROUP
    dtypes: ClassVar[tuple[str, ...]] = ("fp8", "bf16")
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 16),
        "q_len": (1, 1 << 20),
        "kv_len": (1, 1 << 22),
        "heads": (1, 256),
        "head_dim": (16, 512),
    }
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})
    takes_numbers: ClassVar[bool] = True

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        c = sparse_constants(self.family, device.architecture, library_style(batch))
        return self.analyse_with(batch, device, c)

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        work = AttentionSequences.from_batch(batch, decode=batch.variant.flag("decode"))
        heads, width = column(batch, "heads", INDEX_HEADS), column(batch, "head_dim", INDEX_DIM)
        ratio = work.spread(column(batch, "ratio", 1))
        scores = xp.float64(seen(work.q, work.kv, ratio))
        pairs, keys = work.total(scores), work.kv // ratio
        compute, size = _format(batch.variant.dtype)
        pipe = device.matrix_pipe(compute)
        clock = device.clocks.boost_hz
        rate = device.rate_per_core(pipe, compute) * clock * c["efficiency"]
        pair_s = heads * (2.0 * width / rate + c["score_cycles"] / clock)
        tokens = work.total(xp.float64(work.q))
        if batch.variant.flag("decode"):
            # a schedule made beforehand gives every core its share of the tiles of keys
            tiles = work.total(xp.ceil(xp.maximum(keys, 1) / KEY_TILE) * work.q)
            rounds = in_rounds(tiles, device.cores, c["tail"])
            core_s = xp.maximum(pairs / device.cores, rounds * (pairs / tiles)) * pair_s
            core_s = core_s * c["paged"] + rounds * c["tile_s"]
            waves = tiles / device.cores
        else:
            block = xp.maximum(1, ROWS // heads)
            waves = xp.maximum(tokens / block, 1.0) / device.cores
            # a block that spans sequences walks over the keys of each of them
            spans = xp.minimum(work.spread(block), work.spread(tokens)) / work.q
            spans = xp.maximum(spans, 1.0)
            mean = work.total(scores * spans) / tokens
            rounds = in_rounds(waves * device.cores, device.cores, c["tail"])
            walked = rounds * mean + xp.maximum(work.largest(keys * spans) - mean, 0.0)
            core_s = walked * block * pair_s + rounds * c["task_s"]
        read = tokens * heads * (width * size + SCALE_BYTES)
        read = read + work.total(xp.float64(keys)) * (width * size + SCALE_BYTES)
        written = xp.ceil(pairs / column(batch, "pool", 1)) * SCORE_BYTES
        forced, memory = memory_bounds(device, read, written, batch.variant.cache)
        dram_s = xp.maximum(forced, written * c["write_share"]) / (
            data_rate(device) * c["dram_efficiency"]
        )
        if c.get("eager"):
            core_s, dram_s = core_s * 0.0, self._eager_s(batch, work, device, c)
        busy = xp.maximum(core_s, dram_s)
        time = c["launch_s"] + busy
        flops = 2.0 * pairs * heads * width
        resource_s = {"tensor": flops / device.bound_per_s(pipe, compute), **memory}
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        return Analysis(
            time_s=time,
            bound_s=bound,
            resource_s={**resource_s, "launch": xp.full_like(time, c["launch_s"])},
            demand=Demand(
                tasks=xp.maximum(waves * device.cores, 1.0),
                waves=waves,
                occupancy=xp.minimum(waves, 1.0),
                pipe_work={pipe: flops},
                level_bytes={"dram": forced, "l2": read + written},
            ),
            features={"core_share": core_s / time, "dram_share": dram_s / time, "waves": waves},
            independent_log_sd=xp.full_like(time, c["independent_log_sd"]),
        )

    @staticmethod
    def _eager_s(
        batch: OpBatch, work: AttentionSequences, device: Device, c: Mapping[str, float]
    ) -> F64:
        """A chain of tensor operations instead of one kernel, each through main memory.

        Keys with scales are gathered (2 bytes moved a byte), made contiguous (2), widened to fp32
        (1 + 4) and multiplied (4); scores of all heads are written once, and by rectifying and
        weighting once more each way (20), and summed (4). Every query has its own copy of as many
        keys as its index has room for.
        """
        heads, width = column(batch, "heads", INDEX_HEADS), column(batch, "head_dim", INDEX_DIM)
        longest = work.largest(xp.float64(work.kv))
        if batch.variant.flag("decode"):
            longest = xp.full_like(longest, c["index_tokens"])
        keys = work.total(xp.float64(work.q)) * xp.ceil(longest / column(batch, "ratio", 1))
        moved = keys * (13.0 * width + 24.0 * heads + 2.0 * SCALE_BYTES)
        eager_s: F64 = moved / (data_rate(device) * c["dram_efficiency"])
        return eager_s

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """See :meth:`Implementation.style`: a library's own kernel, which modules alone show."""
        return variant.library

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        return sparse_errors(self.family, device)

    def flops(self, op: Op) -> int:
        """2 x heads x head_dim for every query and key it sees; the weighting is not counted."""
        size = _Exact(op)
        return 2 * size.heads * size.width * size.pairs

    def compulsory_bytes(self, op: Op) -> int:
        """Queries and keys with their scales in, one fp32 number a pair out."""
        size = _Exact(op)
        line = int(size.width * _format(op.variant.dtype)[1]) + SCALE_BYTES
        return (size.queries * size.heads + size.keys) * line + -(
            -size.pairs // size.pool
        ) * SCORE_BYTES


@final
class _Exact:
    """Sizes of one op as whole numbers of any size."""

    def __init__(self, op: Op) -> None:
        batch = OpBatch.from_ops([op])
        work = AttentionSequences.from_batch(batch, decode=batch.variant.flag("decode"))
        ratio = int(column(batch, "ratio", 1)[0])
        self.pool = int(column(batch, "pool", 1)[0])
        self.heads = int(column(batch, "heads", INDEX_HEADS)[0])
        self.width = int(column(batch, "head_dim", INDEX_DIM)[0])
        rows = list(zip(work.q.tolist(), work.kv.tolist(), work.count.tolist(), strict=True))
        self.queries: int = sum(q * n for q, _, n in rows)
        self.keys: int = sum(kv // ratio * n for _, kv, n in rows)
        self.pairs: int = sum(seen(q, kv, ratio) * n for q, kv, n in rows)


def _format(dtype: str) -> tuple[str, float]:
    """Format of the product and bytes of an element."""
    compute = RECIPES[dtype].compute if dtype in RECIPES else dtype
    return compute, BITS[compute] / 8.0
