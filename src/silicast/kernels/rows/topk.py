"""Selecting the k largest of a row of scores: one block a row, by histograms of leading bits.

A row that has no more than k entries is copied. Scores are as an indexer's: they differ (where all
are the same, atomic additions of the histogram collide and the kernel is two to four times slower).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_work import AttentionSequences, column, exact_sum
from silicast.kernels.attention.sparse_constants import (
    GROUP,
    library_style,
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

SCORE_BYTES = 4
INDEX_BYTES = 4
SELECTED = 2048
"""Tokens that DeepSeek-V3.2 selects, of ops that do not state ``k``."""


@register
@final
class TopK(Implementation, CountsRows):
    """Dimensions: batch, q_len, kv_len, and with defaults k (2048) and ratio (1): a row for every
    query, of the scores that it has.

    kv_len counts past and new tokens; in a decode (flag ``decode``) it does not hold the new ones
    (q_len, default 1). ``ratio``: tokens that share one score; ``pool``: keys of which the best
    counts.
    """

    family: ClassVar[str] = "topk"
    group: ClassVar[str] = GROUP
    dtypes: ClassVar[tuple[str, ...]] = ("fp32",)
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 16),
        "q_len": (1, 1 << 20),
        "kv_len": (1, 1 << 22),
        "k": (1, 1 << 14),
    }
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})
    takes_numbers: ClassVar[bool] = True

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        c = sparse_constants(self.family, device.architecture, library_style(batch))
        return self.analyse_with(batch, device, c)

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        work = AttentionSequences.from_batch(batch, decode=batch.variant.flag("decode"))
        ratio = work.spread(column(batch, "ratio", 1) * column(batch, "pool", 1))
        k = xp.float64(column(batch, "k", SELECTED))
        rows = work.total(xp.float64(work.q))
        scores = work.total(xp.float64(seen(work.q, work.kv, ratio)))
        cols = scores / rows
        selected = xp.minimum(cols, k)
        clock = device.clocks.boost_hz
        sorting = c["row_cycles"] + cols * c["score_cycles"]
        row_s = (
            xp.where(cols > k, sorting, c["copy_cycles"]) / clock
            + selected * c["kept_cycles"] / clock
        )
        rounds = in_rounds(rows, device.cores, c["tail"])
        read, written = scores * SCORE_BYTES, rows * selected * INDEX_BYTES
        forced, memory = memory_bounds(device, read, written, batch.variant.cache)
        passes = xp.where(cols > k, c["passes"], 0.0)
        dram_s = forced * passes / (data_rate(device) * c["dram_efficiency"])
        time = c["launch_s"] + xp.maximum(rounds * row_s, dram_s)
        resource_s = memory
        return Analysis(
            time_s=time,
            bound_s=xp.maximum(resource_s["dram"], resource_s["l2"]),
            resource_s={**resource_s, "launch": xp.full_like(time, c["launch_s"])},
            demand=Demand(
                tasks=rows,
                waves=rows / device.cores,
                occupancy=xp.minimum(rows / device.cores, 1.0),
                pipe_work={},
                level_bytes={"dram": forced, "l2": read + written},
            ),
            features={"row_share": rounds * row_s / time, "dram_share": dram_s / time},
            independent_log_sd=xp.full_like(time, c["independent_log_sd"]),
        )

    def style(self, variant: Variant, device: Device) -> str:  # noqa: ARG002
        """See :meth:`Implementation.style`: a library's own kernel, which modules alone show."""
        return variant.library

    def shared_log_sd(self, variant: Variant, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        return sparse_errors(self.family, device)

    def flops(self, op: Op) -> int:  # noqa: ARG002
        """Comparisons are no floating-point operations."""
        return 0

    def compulsory_bytes(self, op: Op) -> int:
        """Scores in, indices out."""
        work, sequence_bytes = _bytes(OpBatch.single(op))
        return exact_sum(sequence_bytes, work.count)

    def counts(self, batch: OpBatch) -> tuple[F64, F64]:
        work, sequence_bytes = _bytes(batch)
        return xp.float64(batch.filled(0)), work.total(sequence_bytes)


def _bytes(batch: OpBatch) -> tuple[AttentionSequences, I64]:
    """The sequences, and the bytes of one of each: scores it reads, indices it writes."""
    work = AttentionSequences.from_batch(batch, decode=batch.variant.flag("decode"))
    ratio = work.spread(column(batch, "ratio", 1) * column(batch, "pool", 1))
    scores = seen(work.q, work.kv, ratio)
    selected = seen(work.q, work.kv, ratio, work.spread(column(batch, "k", SELECTED)))
    sequence_bytes: I64 = scores * SCORE_BYTES + selected * INDEX_BYTES
    return work, sequence_bytes
