"""Attention of new tokens over a cache (prefill, chunked prefill) on SIMT devices.

Tasks are (sequence, head or head group, query tile); each walks the key-value tiles its queries
see. A step costs matrix products, exponentials and softmax arithmetic, which overlap as far as the
kernel's main loop lets them (FlashAttention-2: in line; FlashAttention-3: ping-pong). Cores take
tasks in waves, or longest first where the library orders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, ceil_div, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.attention_bound import attention_bound
from silicast.kernels.attention_schemes import (
    Scheme,
    key_rows,
    query_rows,
    resident_ctas,
    scheme_for,
    token_tile,
)
from silicast.kernels.attention_work import (
    Sequences,
    column,
    compute_format,
    element_bytes,
    live_blocks,
    live_keys,
    live_scores,
    longest_row,
    useful_bytes,
    useful_flops,
)
from silicast.kernels.implementation import Analysis, Demand, Implementation, positive, register
from silicast.kernels.physics import load_physics
from silicast.workload.op import Op, OpBatch


@register
@final
class AttentionPrefill(Implementation):
    """``attention_prefill``: q_len new tokens attend to kv_len = past + new tokens."""

    family: ClassVar[str] = "attention_prefill"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 20),
        "q_len": (1, 1 << 24),
        "kv_len": (1, 1 << 24),
        "num_heads": (1, 1 << 12),
        "num_kv_heads": (1, 1 << 12),
        "head_dim": (8, 1024),
        "window": (0, 1 << 24),
    }
    ragged: ClassVar[frozenset[str]] = frozenset({"q_len", "kv_len"})

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        """See :class:`~silicast.kernels.implementation.Implementation`."""
        variant = batch.variant
        scheme = scheme_for(variant.library, variant.kernel, device)
        c = attention_constants("attention_prefill", device, scheme.library)
        return _Prefill(batch, device, scheme, c).analysis()

    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
        """Log sd of the family's and the device's error factors."""
        return shared_errors("attention_prefill", batch, device)

    def flops(self, op: Op) -> int:
        """Exact useful FLOPs: live scores only."""
        return useful_flops(op, decode=False)

    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes moved once."""
        return useful_bytes(op, decode=False)


def attention_constants(group: str, device: Device, library: str) -> Mapping[str, float]:
    """Constants of an architecture with those of ``library`` ("fa3.launch_s") put over them."""
    found = load_physics(group).constants(device.architecture)
    prefix = library + "."
    own = {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}
    return {**found, **own}


def shared_errors(group: str, batch: OpBatch, device: Device) -> Mapping[str, float]:
    """Error factors all rows share; wider where the architecture was never measured."""
    scheme = scheme_for(batch.variant.library, batch.variant.kernel, device)
    c = attention_constants(group, device, scheme.library)
    measured = load_physics(group).is_measured(device.architecture)
    wider = 1.0 if measured else c["unmeasured_widening"]
    return {f"family:{group}": c["family_log_sd"], "device": c["device_log_sd"] * wider}


@final
class _Prefill:
    """One batch on one device: the steps of the model, each a few array operations."""

    def __init__(
        self, batch: OpBatch, device: Device, scheme: Scheme, c: Mapping[str, float]
    ) -> None:
        self.batch, self.device, self.scheme, self.c = batch, device, scheme, c
        self.causal = batch.variant.flag("causal", default=True)
        self.work = Sequences.of(batch, decode=False)
        self.heads = column(batch, "num_heads", 1)
        self.groups = column(batch, "num_kv_heads", 1)
        self.width = column(batch, "head_dim", 128)
        self.window = column(batch, "window", 0)
        self.dtype = compute_format(batch.variant.dtype)
        self.pipe = device.matrix_pipe(self.dtype)

    def analysis(self) -> Analysis:
        c, device, work = self.c, self.device, self.work
        cores, clock = device.cores, device.clocks.boost_hz
        group = np.maximum(1, self.heads // np.maximum(self.groups, 1))
        packs = group if self.scheme.packs else np.ones_like(group)
        width, window = work.spread(self.width), work.spread(self.window)
        rows = query_rows(self.scheme, width, work.q * work.spread(packs))
        tile_kv = key_rows(self.scheme, width)
        tile_q = token_tile(rows, work.spread(packs))
        tiles = ceil_div(work.q, tile_q)
        blocks = live_blocks(work.q, work.kv, window, tile_q, tile_kv, causal=self.causal)
        longest = longest_row(work.q, work.kv, window, tile_q, tile_kv, causal=self.causal)
        resident = resident_ctas(self.scheme, width, rows, tile_kv, device)

        units = (self.heads // packs).astype(np.float64)
        tasks = work.total(tiles.astype(np.float64)) * units
        share = np.clip(tasks / cores, 1.0, work.largest(resident.astype(np.float64)))
        pipes = self._step_cycles(rows, tile_kv, width)
        step = self._overlapped(pipes, work.spread_f(share))
        total_cycles = work.total(blocks * step + tiles * c["task_cycles"]) * units
        longest_cycles = work.largest(longest * step + c["task_cycles"])
        busiest = self._makespan(tasks, total_cycles, longest_cycles)
        core_s = busiest / clock

        demand_bytes, l2_bytes = self._bytes(blocks, tile_kv, units)
        l2 = device.l2
        missing = np.maximum(0.0, demand_bytes - c["l2_usable"] * l2.capacity_bytes)
        dram_s = missing / (device.dram.bandwidth_bytes_per_s * c["dram_efficiency"])
        l2_s = l2_bytes / (l2.bandwidth_bytes_per_s * c["l2_efficiency"])
        time_s = c["launch_s"] + smooth_max((core_s, dram_s, l2_s))

        scores = live_scores(work.q, work.kv, window, causal=self.causal)
        flops = 4.0 * work.total(scores.astype(np.float64)) * self.heads * self.width
        useful = self._useful_bytes()
        resource_s = attention_bound(
            device, self.pipe, self.dtype, flops, useful[0], useful[1], self.batch.variant.cache
        )
        bound = np.maximum(np.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        waves = tasks / (cores * work.largest(resident.astype(np.float64)))
        padded = work.total((blocks * rows * tile_kv).astype(np.float64)) * units * self.width * 4.0
        demand = Demand(
            tasks=tasks,
            waves=waves,
            occupancy=share,
            pipe_work={self.pipe: padded, "xu": padded / (4.0 * self.width)},
            level_bytes={"dram": demand_bytes, "l2": l2_bytes},
            core_pipe_work={self.pipe: padded * busiest * cores / positive(total_cycles) / cores},
        )
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": np.full_like(time_s, c["launch_s"])},
            demand=demand,
            features={
                "tensor_share": resource_s["tensor"] / time_s,
                "dram_share": dram_s / time_s,
                "l2_share": l2_s / time_s,
                "launch_share": c["launch_s"] / time_s,
                "padding": flops / positive(padded),
                "waves": waves,
                "imbalance": busiest * cores / positive(total_cycles),
            },
            independent_log_sd=np.full_like(time_s, c["independent_log_sd"]),
            choice=(),
        )

    def _step_cycles(self, rows: F64, tile_kv: F64, width: F64) -> tuple[F64, F64]:
        """Cycles of one key-value step on an idle core: matrix products, softmax."""
        c, device = self.c, self.device
        scores = (rows * tile_kv).astype(np.float64)
        mma = (
            4.0
            * scores
            * width
            / (device.rate_per_core(self.pipe, self.dtype) * c["tensor_efficiency"])
        )
        xu = device.rate_per_core("xu", "fp32") or 16.0
        fma = device.rate_per_core("fma", "fp32") or 128.0
        softmax = scores * (1.0 / xu + c["softmax_ops"] / fma)
        return mma, softmax

    def _overlapped(self, pipes: tuple[F64, F64], share: F64) -> F64:
        """Cycles between step ends on a core that ``share`` CTAs keep busy."""
        mma, softmax = pipes
        floor = np.maximum(mma, softmax)
        serial = mma + softmax + self.c["step_cycles"]
        return floor + self.c["exposed"] * (serial - floor) / share

    def _makespan(self, tasks: F64, total: F64, longest: F64) -> F64:
        """Cycles of the busiest core: whole waves of equal tasks, less tail of unequal ones."""
        cores = float(self.device.cores)
        waves = tasks / cores
        mean = total / positive(tasks)
        evenness = np.clip(2.0 * mean / positive(longest) - 1.0, 0.0, 1.0)
        quantum = (np.ceil(waves) - waves) * mean
        tail = self.c["tail_sorted"] if self.scheme.longest_first else self.c["tail"]
        ragged = tail * longest * np.minimum(1.0, waves)
        return np.maximum(longest, total / cores + evenness * quantum + (1.0 - evenness) * ragged)

    def _useful_bytes(self) -> tuple[F64, F64]:
        """Compulsory bytes read and written, shape (ops,)."""
        work, variant = self.work, self.batch.variant
        window = work.spread(self.window)
        keys = live_keys(work.q, work.kv, window, causal=self.causal)
        q_bytes = element_bytes(variant.dtype)
        kv_bytes = element_bytes(variant.kv_dtype or variant.dtype)
        queries = work.total(work.q.astype(np.float64)) * self.heads * self.width
        cached = 2.0 * work.total(keys.astype(np.float64)) * self.groups * self.width
        return queries * q_bytes + cached * kv_bytes, queries * q_bytes

    def _bytes(self, blocks: F64, tile_kv: F64, units: F64) -> tuple[F64, F64]:
        """Bytes the kernel needs once, and bytes it moves between L2 and the cores."""
        reads, writes = self._useful_bytes()
        kv_bytes = element_bytes(self.batch.variant.kv_dtype or self.batch.variant.dtype)
        steps = self.work.total((blocks * tile_kv).astype(np.float64))
        return reads + writes, steps * units * 2.0 * self.width * kv_bytes + writes * 2.0
