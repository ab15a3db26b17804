"""Gradients of fused attention on SIMT devices: of queries, keys and values at once.

A kernel keeps a tile of keys and values in a core and walks the queries that see them: scores
again, dV and dP, then dQ and dK: five products where forward has two (2205.14135, 2307.08691).
Passes before and after it sum dO x O over rows, convert the fp32 sums of dQ, and add the gradients
of heads that share keys. Kernels that multiply with warps' own instructions have few measured rows:
they cost their forward kernel by the operations, and somewhat more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64, ceil_div
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_kernel import HEADS, PREFILL_LENGTHS, AttentionKernel
from silicast.kernels.attention.attention_prefill import AttentionPrefill
from silicast.kernels.attention.attention_schemes import scheme_for, style_of
from silicast.kernels.attention.attention_work import (
    ROWS,
    AttentionSequences,
    column,
    compute_format,
    element_bytes,
    exact_sum,
    live_keys,
    live_scores,
    windows,
)
from silicast.kernels.implementation import Analysis, Demand
from silicast.kernels.physics.constants import load_physics
from silicast.kernels.physics.device_rates import cache_rate, data_rate, softmax_rates
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op, OpBatch, Variant

SUM_BYTES = 4.0
"""Of one element of dQ while it is summed."""
WIDE = 128
"""Heads that are wider have kernels of their own."""


@register
@final
class AttentionBackward(AttentionKernel):
    """``attention_backward``: dimensions and flags of ``attention_prefill``, whose gradient it is.

    ``value_dim``: width of values where it is not ``head_dim`` (0). Flag ``deterministic``: sums of
    dQ are made in one order.
    """

    family: ClassVar[str] = "attention_backward"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        **PREFILL_LENGTHS,
        **HEADS,
        "value_dim": (0, 1024),
    }

    def constants(self, variant: Variant, device: Device) -> Mapping[str, float]:  # noqa: ARG002
        return load_physics(self.family).constants(device.architecture)

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        backward_model = BackwardModel(batch, device, c)
        scheme = scheme_for(batch.variant, device)
        if scheme.mainloop == "mma":
            forward = AttentionPrefill().analyse(batch, device)
            return backward_model.after_forward(forward, scheme.backward_cost or c["mma_cost"])
        return backward_model.analysis()

    def style(self, variant: Variant, device: Device) -> str:
        return style_of(variant, device)

    def useful(self, op: Op) -> tuple[int, int]:
        batch = OpBatch.single(op)
        work = AttentionSequences.from_batch(batch, decode=False)
        window = windows(batch, work)
        causal = op.variant.flag("causal", default=True)
        scores = exact_sum(live_scores(work.q, work.kv, window, causal=causal), work.count)
        keys = exact_sum(live_keys(work.q, work.kv, window), work.count)
        queries = exact_sum(work.q, work.count)
        heads, groups, width = (
            int(batch.dims[n]) for n in ("num_heads", "num_kv_heads", "head_dim")
        )
        values = int(batch.dims.get("value_dim", 0)) or width
        rows = 2 * (queries * heads + keys * groups) * (width + values)
        return 2 * heads * (3 * width + 2 * values) * scores, int(rows * _size(op.variant))


def _size(variant: Variant) -> float:
    return max(element_bytes(variant.dtype), 1.0)


@final
class BackwardModel:
    """One batch on one device."""

    def __init__(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> None:
        self.batch, self.device, self.c = batch, device, c
        self.work = work = AttentionSequences.from_batch(batch, decode=False)
        self.heads = xp.float64(column(batch, "num_heads", 1))
        self.groups = xp.float64(column(batch, "num_kv_heads", 1))
        width, value_dim = column(batch, "head_dim", 128), column(batch, "value_dim", 0)
        values = xp.where(value_dim > 0, value_dim, width)
        self.width, self.values = xp.float64(width), xp.float64(values)
        self.dtype = compute_format(batch.variant.dtype)
        self.pipe = device.matrix_pipe(self.dtype)
        window = windows(batch, work)
        causal = batch.variant.flag("causal", default=True)
        live = xp.float64(live_scores(work.q, work.kv, window, causal=causal))
        dense = xp.float64(work.q) * work.kv
        self.live = work.total(live) * self.heads
        edge = 0.5 * ROWS * ((1.0 if causal else 0.0) + xp.float64(window > 0))
        visited = xp.minimum(live + edge * work.q, dense)
        self.visited = work.total(visited) * self.heads
        self.queries = work.total(work.q) * self.heads
        self.keys = work.total(live_keys(work.q, work.kv, window))
        self.tiles = work.total(ceil_div(work.kv, ROWS)) * self.heads
        self.longest = work.largest(xp.minimum(xp.float64(work.q), visited / work.kv * 2.0)) * ROWS
        self.products = 2.0 * (3.0 * self.width + 2.0 * self.values)

    def after_forward(self, forward: Analysis, cost: float) -> Analysis:
        """From the forward kernel of the same library: by its operations, at another cost."""
        ratio = self.products / (2.0 * (self.width + self.values))
        return self._analysis(forward.time_s * ratio * cost)

    def analysis(self) -> Analysis:
        """From the rates of the device."""
        c, device = self.c, self.device
        clock = device.clocks.boost_hz
        reached = device.rate_per_core(self.pipe, self.dtype) * c["tensor_share"]
        xu, fma = softmax_rates(device)
        rate = reached * xp.where(self.width > WIDE, c["wide"], 1.0)
        step = self.products / rate + c["softmax_share"] * (1.0 / xu + 8.0 / fma)  # cycles a score
        fixed = c["task_cycles"] * self.tiles / device.cores
        main = self.visited * step / device.cores + c["tail"] * self.longest * step + fixed
        if self.batch.variant.flag("deterministic"):
            main = main * xp.where(self.width > WIDE, c["ordered_wide"], c["ordered"])
        busy_s = main / clock + self._passes_s()
        # short calls end before the board's controller answers to what they draw
        hot = 1.0 + c["hot"] * busy_s / (busy_s + c["heat_s"])
        return self._analysis(busy_s * hot + c["launch_s"])

    def _passes_s(self) -> F64:
        """Before and after: dO x O; dQ set to zero and converted; heads of a group summed."""
        size = _size(self.batch.variant)
        summed = self.queries * self.width * (2.0 * SUM_BYTES + size)
        both = self.queries * 2.0 * self.values * size
        shared = xp.where(self.heads > self.groups, 2.0 * self.heads + self.groups, 0.0)
        shared = self.keys * shared * (self.width + self.values) * size
        rate = data_rate(self.device) * self.c["dram_efficiency"]
        passes_s: F64 = (summed + both + shared) / rate
        return passes_s

    def _analysis(self, time_s: F64) -> Analysis:
        """With its bound, demand and features."""
        device, batch = self.device, self.batch
        size = _size(batch.variant)
        flops = self.live * self.products
        rows = self.queries + self.keys * self.groups
        moved = 2.0 * rows * (self.width + self.values) * size
        resident = device.l2.capacity_bytes
        outside = (
            0.5 * moved if batch.variant.cache == "cold" else xp.maximum(0.0, moved - resident)
        )
        resource_s = {
            "tensor": flops / device.bound_per_s(self.pipe, self.dtype),
            "dram": outside / device.dram.bandwidth_bytes_per_s,
        }
        bound = xp.maximum(resource_s["tensor"], resource_s["dram"])
        issued = self.visited * self.products
        summed = self.visited / ROWS * self.width * SUM_BYTES
        waves = self.tiles / device.cores
        launch_s = xp.full_like(time_s, self.c["launch_s"])
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": launch_s},
            demand=Demand(
                tasks=self.tiles,
                waves=waves,
                occupancy=xp.full_like(time_s, 1.0),
                pipe_work={self.pipe: issued, "xu": self.visited},
                level_bytes={"dram": moved, "l2": moved + summed},
                core_pipe_work={self.pipe: issued / device.cores},
            ),
            features={
                "tensor_share": resource_s["tensor"] / time_s,
                "waves": waves,
                "padding": self.live / self.visited,
                "launch_share": launch_s / time_s,
                "l2_share": moved / cache_rate(device) / time_s,
            },
            independent_log_sd=xp.full_like(time_s, self.c["independent_log_sd"]),
        )
