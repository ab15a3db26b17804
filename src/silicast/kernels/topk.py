"""Selecting the k largest of a row of scores: one block a row, by histograms of leading bits.

A row that has no more than k entries is copied. Scores are as an indexer's: they differ (where all
are the same, atomic additions of the histogram collide and the kernel is two to four times slower).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.hardware.device import Device
from silicast.kernels.data_rate import data_rate
from silicast.kernels.implementation import Analysis, Demand, Implementation, register
from silicast.kernels.sparse_constants import (
    GROUP,
    memory_bounds,
    sparse_constants,
    sparse_errors,
)
from silicast.kernels.sparse_work import in_rounds
from silicast.workload.op import Op, OpBatch

SCORE_BYTES = 4
INDEX_BYTES = 4


@register
@final
class TopK(Implementation):
    """Dimensions: rows, cols (scores of a row), k."""

    family: ClassVar[str] = "topk"
    group: ClassVar[str] = GROUP
    dtypes: ClassVar[tuple[str, ...]] = ("fp32",)
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "rows": (1, 1 << 22), "cols": (1, 1 << 22), "k": (1, 1 << 14),
    }  # fmt: skip

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """See :meth:`Implementation.analyse`."""
        c = sparse_constants(self.family, device.architecture)
        return self.analyse_with(batch, device, c)

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        """As :meth:`analyse`, with given constants: for fitting them."""
        rows, cols, k = (batch.dims[name].astype(np.float64) for name in ("rows", "cols", "k"))
        kept = np.minimum(cols, k)
        clock = device.clocks.boost_hz
        sorting = c["row_cycles"] + cols * c["score_cycles"]
        row_s = (
            np.where(cols > k, sorting, c["copy_cycles"]) / clock + kept * c["kept_cycles"] / clock
        )
        rounds = in_rounds(rows, device.cores, c["tail"])
        read, written = rows * cols * SCORE_BYTES, rows * kept * INDEX_BYTES
        forced, memory = memory_bounds(device, read, written, batch.variant.cache)
        passes = np.where(cols > k, c["passes"], 0.0)
        dram_s = forced * passes / (data_rate(device) * c["dram_efficiency"])
        time = c["launch_s"] + np.maximum(rounds * row_s, dram_s)
        resource_s = memory
        return Analysis(
            time_s=time,
            bound_s=np.maximum(resource_s["dram"], resource_s["l2"]),
            resource_s={**resource_s, "launch": np.full_like(time, c["launch_s"])},
            demand=Demand(
                tasks=rows,
                waves=rows / device.cores,
                occupancy=np.minimum(rows / device.cores, 1.0),
                pipe_work={},
                level_bytes={"dram": forced, "l2": read + written},
            ),
            features={"row_share": rounds * row_s / time, "dram_share": dram_s / time},
            independent_log_sd=np.full_like(time, c["independent_log_sd"]),
        )

    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
        """See :meth:`Implementation.shared_log_sd`."""
        return sparse_errors(batch.family, device)

    def flops(self, op: Op) -> int:  # noqa: ARG002
        """Comparisons are no floating-point operations."""
        return 0

    def compulsory_bytes(self, op: Op) -> int:
        """Scores in, indices out."""
        d = dict(op.dims)
        rows, cols, k = (d[name] for name in ("rows", "cols", "k"))
        assert isinstance(rows, int)
        assert isinstance(cols, int)
        assert isinstance(k, int)
        return rows * (cols * SCORE_BYTES + min(cols, k) * INDEX_BYTES)
