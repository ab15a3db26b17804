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
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64, I64, ceil_div, smooth_max
from silicast.kernels.attention.attention_kernel import HEADS, PREFILL_LENGTHS, tensor_rate
from silicast.kernels.attention.attention_memory import (
    AttentionTraffic,
    attention_bound,
    prefill_traffic,
)
from silicast.kernels.attention.attention_scheduled import AttentionBatch, ScheduledAttention
from silicast.kernels.attention.attention_schemes import (
    key_rows,
    padded_width,
    query_rows,
    resident_ctas,
    token_tile,
)
from silicast.kernels.attention.attention_work import (
    element_bytes,
    live_blocks,
    live_keys,
    live_scores,
    longest_row,
    row_rest,
    shape_features,
    useful,
)
from silicast.kernels.implementation import Analysis, Demand
from silicast.kernels.physics.device_rates import softmax_rates
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op

WHOLE_PARTS = 0.5
"""Weight of a whole number of parts against an even share of the device: no rule is preferred."""

ROUNDING = 2.0**-30
"""A share that is a whole number but for rounding counts as that number."""

WAVE_EDGE = 2.0
"""How fast one more wave of planned parts sets in: whole once a third of it is filled. The number
of parts is an expectation, so that its ceiling is one too."""


@register
@final
class AttentionPrefill(ScheduledAttention):
    """``attention_prefill``: q_len new tokens attend to kv_len = past + new tokens.

    ``mask_bytes`` of a mask or of biases are read besides, each once; 0 = none.
    """

    family: ClassVar[str] = "attention_prefill"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        **PREFILL_LENGTHS,
        **HEADS,
        "mask_bytes": (0, 1 << 42),
    }

    @property
    def model(self) -> type[AttentionBatch]:
        return PrefillModel

    def useful(self, op: Op) -> tuple[int, int]:
        return useful(op, decode=False)


@final
class PrefillModel(AttentionBatch):
    """One batch on one device: the steps of the model, each a few array operations."""

    decode: ClassVar[bool] = False

    def prepare(self) -> None:
        variant = self.batch.variant
        self.converts = element_bytes(variant.kv_dtype or variant.dtype) < element_bytes(
            variant.dtype
        )
        self._tiling()

    def _tiling(self) -> None:
        """Tiles and tasks: rows of a tile, tokens they hold, key-value tiles they visit."""
        work, scheme = self.work, self.scheme
        group = xp.maximum(1, self.heads // xp.maximum(self.groups, 1))
        packs = group
        if not scheme.packs:
            single = scheme.packs_single & (work.largest(xp.float64(work.q)) <= 1.0)
            packs = xp.where(single, group, 1)
        packed, width = work.spread(packs), work.spread(self.width)
        brought = work.q * packed
        judged = brought
        if scheme.plans:
            from silicast.kernels.attention.attention_plan import mean_rows

            judged = mean_rows(brought, work)
        self.rows = query_rows(scheme, width, judged, self.device)
        self.tile_kv = key_rows(scheme, width)
        self.tile_q = token_tile(self.rows, packed)
        self.blocks = live_blocks(
            work.q, work.kv, self.window, self.tile_q, self.tile_kv, causal=self.causal
        )
        self.longest = longest_row(work.q, work.kv, self.window, self.tile_q, self.tile_kv)
        self.tiles = ceil_div(work.q, self.tile_q)
        # A tile holds rows // group tokens, not a power of two: fewer tiles, as full as they come.
        self.row_tiles = ceil_div(brought, self.rows)
        self.fill: F64 = xp.where(
            self.tiles > 1, self.tile_q * packed / self.rows, xp.float64(self.row_tiles)
        )
        self.units = xp.float64(self.heads // packs)
        resident = resident_ctas(scheme, width, self.rows, self.tile_kv, self.device)
        self.resident = work.largest(xp.float64(resident))
        self._split()

    def _split(self) -> None:
        """Cuts long rows into parts where tiles are too few to fill the device.

        Planners look for the most parts that still run in one wave. FlashInfer's is known; of
        FlashAttention-3's, whose rules differ by release, the model takes the middle between a
        whole number of parts and an even share, so that neither a second, nearly empty wave nor a
        lost part hangs on one token.
        """
        work, scheme, cores = self.work, self.scheme, self.device.cores
        self.parts: F64 | float = 1.0
        self.tasks = work.total(self.tiles * self.fill) * self.units
        self.merges = xp.full_like(self.tasks, 0.0)
        self.planned: NDArray[np.bool_] | None = None
        self.furthest: F64 = xp.float64(self.longest)
        slots = cores * self.resident
        if scheme.plans:
            self._plan()
        elif scheme.splits and xp.any_of(
            self.tasks < slots
        ):  # rows with more tasks stay as they are
            every = work.total(self.fill * self.blocks) * self.units
            chunk = xp.maximum(every / slots, self.c["split_tiles"])
            chunk = xp.where(self.tasks < slots, chunk, float(1 << 40))
            even = xp.maximum(self.blocks / self.tiles / work.spread(chunk), 1.0)
            whole = xp.floor(even + ROUNDING)
            self.parts = (1.0 - WHOLE_PARTS) * even + WHOLE_PARTS * whole
            longest = work.largest(self.furthest)
            self.merges = xp.minimum(xp.maximum(longest / chunk - 1.0, 0.0), 1.0)
            self.furthest = self.furthest / self.parts
            planned = work.total(self.tiles * self.fill * self.parts) * self.units
            self.planned = self.tasks < slots
            self.tasks = xp.where(self.planned, xp.minimum(planned, slots), self.tasks)
        self.share = xp.minimum(xp.maximum(self.tasks / cores, 1.0), self.resident)

    def _plan(self) -> None:
        """FlashInfer's parts: chunks of one length for all sequences of a batch."""
        from silicast.kernels.attention.attention_plan import chunk_keys

        work, cores = self.work, self.device.cores
        seen = xp.where(self.window > 0, xp.minimum(work.kv, self.window + self.tile_q), work.kv)
        heads = xp.maximum(self.units, 1.0)
        chunk = work.spread(chunk_keys(self.tiles * self.fill, seen, heads, work, cores))
        self.parts = xp.maximum(seen / chunk, 1.0)
        self.merges = xp.minimum(work.largest(self.parts) - 1.0, 1.0)
        self.furthest = xp.minimum(self.furthest, xp.maximum(chunk / self.tile_kv, 1.0))
        tasks = work.total(self.tiles * self.fill * self.parts) * self.units
        self.planned = tasks > self.tasks
        self.tasks = tasks

    def analysis(self) -> Analysis:
        """Time, bound, demand and features of the batch."""
        c, device, work = self.c, self.device, self.work
        cores, (clock, cache_per_s, _) = device.cores, self.rates_of_clock
        step = self._step_cycles(work.spread(self.share))
        fixed: F64 | float = c["task_cycles"]
        longest_fixed = fixed
        if xp.any_of(self.window):
            fixed = fixed + c["window_steps"] * step * (self.window > 0)
            longest_fixed = work.largest(fixed)
        visited, longest_visit = self._visited()
        total = (
            work.total(self.fill * (visited * step + self.tiles * self.parts * fixed)) * self.units
        )
        longest = work.largest(longest_visit * step) * self.share
        merge_s = self.merges * c["merge_s"]
        busiest = self._makespan(total, longest + longest_fixed)
        core_s = busiest / clock

        keys = live_keys(work.q, work.kv, self.window)
        traffic = prefill_traffic(self.batch, work, device, self.scheme, c, keys, cache_per_s)
        # A tile loads no key beyond the cache's end.
        keys_loaded = xp.minimum(self.blocks * self.tile_kv, self.tiles * work.kv)
        loads = work.total(self.fill * keys_loaded)
        l2_bytes = traffic.moved + loads * self.units * 2.0 * self.width * traffic.kv_bytes
        l2_s = l2_bytes / (cache_per_s * c["l2_efficiency"])
        memory_s = xp.maximum(traffic.dram_s, l2_s)
        together = xp.maximum(core_s, memory_s) + c["serial"] * xp.minimum(core_s, memory_s)
        self.launch_s = c["launch_cycles"] / clock
        casts = traffic.kv_bytes < 2.0 and self.scheme.casts
        launch = self.launch_s * (c["narrow_launch"] if casts else 1.0)
        omitted_s = self.scheme.omitted * c["append_launch_cycles"] / clock
        launch = xp.maximum(launch - omitted_s, 0.25 * launch)
        time_s = launch + together + traffic.append_s + merge_s
        return self._result(time_s, core_s, l2_s, traffic, busiest * cores / total)

    def _visited(self) -> tuple[F64, F64]:
        """Steps in all and of the longest task, in units of a live step."""
        live, longest = xp.float64(self.blocks), self.furthest
        if not self.scheme.visits_masked:
            return live, longest
        work, none = self.work, xp.full_like(self.window, 0.0)
        tiles = (self.tile_q, self.tile_kv)
        every = live_blocks(work.q, work.kv, none, *tiles, causal=self.causal)
        furthest = longest_row(work.q, work.kv, none, *tiles)
        masked = self.c["masked_step"]
        return live + masked * (every - live), longest + masked * (furthest - longest)

    def _step_cycles(self, share: F64) -> F64:
        """Cycles of one key-value step on a core that ``share`` CTAs keep busy."""
        c, device = self.c, self.device
        width = self.work.spread(self.width)
        scores = xp.float64(self.rows * self.tile_kv)
        rate = tensor_rate(device, self.pipe, self.dtype, c) * self.scheme.matrix_share
        if self.dtype == "fp8":
            rate = rate * c["fp8_efficiency"]
        mma = 4.0 * scores * padded_width(self.scheme, width) / rate * self._width_factor(width)
        xu, fma = softmax_rates(device)
        softmax = scores * (1.0 / xu + c["softmax_ops"] / fma)
        if self.converts:
            softmax = softmax + 2.0 * self.tile_kv * width * (c["convert_ops"] / fma)
        if self.scheme.encoder:
            tuned = self._encoder_factor(width)
            mma, softmax = mma * tuned, softmax * tuned
        floor: F64 = xp.maximum(mma, softmax)
        serial = mma + softmax + c["step_cycles"]
        exposed = c["exposed"] * (serial - floor)
        if self.scheme.mainloop == "mma":  # another CTA computes while one waits
            return smooth_max((floor, (floor + exposed) / share))
        return floor + exposed / share

    def _width_factor(self, width: I64) -> F64:
        """Cost of a step beyond that of heads 128 wide: kernels are tuned one width at a time."""
        prefix = "fp8_step" if self.dtype == "fp8" else "step"
        factor: F64 = xp.full_like(width, 1.0)
        if xp.all_of(width == 128):
            return factor
        for low, high, name in ((0, 95, "64"), (129, 192, "192"), (193, 256, "256")):
            factor = xp.where((width >= low) & (width <= high), self.c[f"{prefix}_{name}"], factor)
        return xp.where(width > 256, self.c["step_512"], factor)

    def _encoder_factor(self, width: I64) -> F64:
        """Cost of a step beyond that of a causal one, by the widths that encoders have."""
        factor = xp.full_like(width, self.c["encoder_128"])
        for limit, name in ((96, "80"), (79, "72"), (64, "64")):
            factor = xp.where(width <= limit, self.c[f"encoder_{name}"], factor)
        return factor

    def _makespan(self, total: F64, longest: F64) -> F64:
        """Cycles of the busiest core: whole waves of equal tasks, less tail of unequal ones."""
        cores = float(self.device.cores)
        waves = self.tasks / cores
        mean = total / self.tasks
        evenness = xp.minimum(xp.maximum(2.0 * mean / longest - 1.0, 0.0), 1.0)
        idle = xp.ceil(waves) - waves
        if self.planned is not None:
            begun = WAVE_EDGE * (waves - xp.floor(waves))
            idle = xp.where(self.planned & (waves > 1.0), xp.minimum(idle, begun), idle)
        quantum = idle * mean
        tail = self.c["tail_sorted"] if self.scheme.longest_first else self.c["tail"]
        ragged = tail * longest * xp.minimum(1.0, waves)
        spread = total / cores + evenness * quantum + (1.0 - evenness) * ragged
        return xp.maximum(xp.minimum(longest, total), spread)

    def _result(
        self, time_s: F64, core_s: F64, l2_s: F64, traffic: AttentionTraffic, imbalance: F64
    ) -> Analysis:
        """The analysis with its bound, demand and features."""
        work, device = self.work, self.device
        scores = live_scores(work.q, work.kv, self.window, causal=self.causal)
        flops = 4.0 * work.total(xp.float64(scores)) * self.heads * self.width
        resource_s = attention_bound(
            device, self.pipe, self.dtype, flops, traffic, self.batch.variant.cache
        )
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        issued = work.total(self.fill * (self.blocks * self.rows * self.tile_kv)) * self.units
        padded = issued * self.width * 4.0
        waves = self.tasks / (device.cores * self.resident)
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": xp.full_like(time_s, self.launch_s)},
            demand=Demand(
                tasks=self.tasks,
                waves=waves,
                occupancy=self.share,
                pipe_work={self.pipe: padded, "xu": issued},
                level_bytes={"dram": traffic.dram_bytes, "l2": traffic.moved},
                core_pipe_work={self.pipe: padded * imbalance / device.cores},
            ),
            features={
                "core_share": core_s / time_s,
                "tensor_share": resource_s["tensor"] / time_s,
                "dram_share": traffic.dram_s / time_s,
                "l2_share": l2_s / time_s,
                "launch_share": self.launch_s / time_s,
                "padding": flops / padded,
                "waves": waves,
                "imbalance": imbalance,
                "row_rest": row_rest(work, self.heads, self.groups),
                **shape_features(self.batch, work, self.heads, self.groups, device.cores),
            },
            independent_log_sd=xp.full_like(time_s, self.c["independent_log_sd"]),
        )
