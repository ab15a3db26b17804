"""Attention of one new token (or a few) a sequence over a paged cache (decode) on SIMT devices.

The kernel streams keys and values once. Work is cut into (sequence, key-value head, split) so that
every core has some; more than one split needs a merge. Time is what the slowest of these takes:
DRAM, L2, the busiest core's loads and its arithmetic on rows padded to the matrix instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, final

from silicast.core import xp
from silicast.core.numerics import F64
from silicast.kernels.attention.attention_kernel import DECODE_LENGTHS, HEADS, tensor_rate
from silicast.kernels.attention.attention_memory import attention_bound, prefill_traffic
from silicast.kernels.attention.attention_scheduled import AttentionBatch, ScheduledAttention
from silicast.kernels.attention.attention_schemes import decode_tasks
from silicast.kernels.attention.attention_work import (
    column,
    live_keys,
    live_scores,
    shape_features,
    useful,
)
from silicast.kernels.implementation import Analysis, Demand
from silicast.kernels.physics.device_rates import softmax_rates
from silicast.kernels.registry import register
from silicast.workload.graphs.op import Op

KEY_TILE = 64
"""Keys of one inner step; a split is at least one."""


@register
@final
class AttentionDecode(ScheduledAttention):
    """``attention_decode``: q_len new tokens (1) over kv_len cached ones and themselves."""

    family: ClassVar[str] = "attention_decode"
    implied_flags: ClassVar[frozenset[str]] = frozenset({"causal"})
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {**DECODE_LENGTHS, **HEADS}

    @property
    def model(self) -> type[AttentionBatch]:
        return _DecodeBatch

    def useful(self, op: Op) -> tuple[int, int]:
        return useful(op, decode=True)


@final
class _PlanTimes(NamedTuple):
    """Seconds of a plan: all that the plan changes, cores, loads of the busiest and merge; and the
    keys that the busiest core reads. Shape (ops,).
    """

    seconds: F64
    core_s: F64
    load_s: F64
    merge_s: F64
    busiest: F64


@final
class _DecodeBatch(AttentionBatch):
    """One batch on one device."""

    decode: ClassVar[bool] = True

    def prepare(self) -> None:
        batch, device, scheme, c, work = self.batch, self.device, self.scheme, self.c, self.work
        group = xp.maximum(1, self.heads // xp.maximum(self.groups, 1))
        self.keys = live_keys(work.q, work.kv, self.window)
        cache_per_s = self.rates_of_clock.cache_per_s
        self.traffic = prefill_traffic(batch, work, device, scheme, c, self.keys, cache_per_s)
        self.narrow = self.traffic.kv_bytes < 2.0
        group_of = work.spread(group)
        blocks = work.total(xp.float64(xp.maximum(work.kv // 128, 1))) * self.groups
        self.tasking = decode_tasks(
            scheme,
            group_of,
            # FlashAttention-2 decides by the argument, before it sees that it masks nothing.
            work.spread(column(batch, "window", 0)),
            work.q,
            work.spread(blocks),
            narrow=self.narrow,
            cores=device.cores,
        )
        self.rows = self.tasking.rows
        self.reread = group_of / self.tasking.shared
        self.any_scalar = xp.any_of(self.tasking.scalar)
        self.scalar = work.largest(xp.float64(self.tasking.scalar)) > 0.0
        self.tokens = work.total(self.keys * self.reread) * self.groups
        fixed = c["task_cycles"] + c["task_width_cycles"] * (self.width / 128.0)
        if self.any_scalar:
            fixed = xp.where(self.scalar, c["scalar_task_cycles"], fixed)
        self.fixed = fixed * (c["narrow_task"] if self.narrow else 1.0)
        cycles = self._token_cycles()
        self.most_cycles = work.largest(cycles)
        self.compute = work.total(self.keys * self.reread * cycles) * self.groups / device.cores
        self.token_bytes = 2.0 * self.width * self.traffic.kv_bytes
        again = self.tokens * self.token_bytes - self.traffic.cached
        self.l2_s = (self.traffic.moved + again) / (cache_per_s * c["l2_efficiency"])
        self._plan()

    def _plan(self) -> None:
        """Splits caches so that there is a task for every slot, if sequences are too few, where
        that is quicker than whole ones.
        """
        work, device, c = self.work, self.device, self.c
        self.slots = device.cores * c["ctas_per_core"]
        base = work.total(self.reread) * self.groups
        planned = device.cores * c["plan_ctas"]
        chunk = xp.maximum(self.tokens / planned, c["split_tiles"] * KEY_TILE)
        parts = xp.maximum(self.keys / work.spread(chunk), 1.0)
        parts = xp.where(work.spread(base) >= planned, 1.0, parts)
        self._split(xp.minimum(parts, self.tasking.most_splits))
        if xp.any_of(self.split):
            split_s, splits = self._parts().seconds, self.splits
            whole = xp.minimum(splits, 1.0)
            self._split(whole)
            self._split(xp.where(work.spread(self._parts().seconds < split_s), whole, splits))

    def _split(self, splits: F64) -> None:
        """Tasks where caches are cut into so many parts, one value an entry."""
        work, self.splits = self.work, splits
        self.tasks = work.total(self.splits * self.reread) * self.groups
        self.longest = work.largest(self.keys / xp.maximum(self.splits, 1.0))
        self.split = work.largest(self.splits) > 1.0

    def _parts(self) -> _PlanTimes:
        """What the splits change."""
        c, device, work, traffic = self.c, self.device, self.work, self.traffic
        cores, (clock, cache_per_s, _) = device.cores, self.rates_of_clock
        # A core's CTAs hide each other's fixed latencies: slots, not cores, take tasks.
        waves = self.tasks / self.slots
        rounds = xp.maximum(1.0, waves + c["tail"] * (xp.ceil(waves) - waves))
        longest = self.longest * self.most_cycles
        core_s = (rounds * self.fixed + xp.maximum(self.compute, longest)) / clock
        busiest = xp.maximum(self.longest, self.tokens / cores)
        load_s = busiest * self.token_bytes / (c["core_bytes_per_cycle"] * clock)
        memory_s = xp.maximum(xp.maximum(traffic.dram_s, self.l2_s), load_s)
        together = xp.maximum(core_s, memory_s) + c["serial"] * xp.minimum(core_s, memory_s)
        partial = work.total(self.splits * work.q) * self.heads * self.width * 8.0
        inner = cache_per_s * c["l2_efficiency"]
        merge_s = xp.where(self.split, c["merge_s"] + partial / inner, 0.0)
        return _PlanTimes(together + merge_s, core_s, load_s, merge_s, busiest)

    def analysis(self) -> Analysis:
        c, device, traffic = self.c, self.device, self.traffic
        parts, clock = self._parts(), self.rates_of_clock.clock_hz
        self.launch_s = c["launch_cycles"] / clock
        launch = self.launch_s * xp.where(
            self.scalar,
            c["scalar_launch"],
            c["narrow_launch"] if self.narrow and self.scheme.casts else 1.0,
        )
        omitted = self.scheme.omitted * c["append_launch_cycles"] / clock
        launch = xp.maximum(launch - omitted, 0.25 * launch)
        launch = launch + c["irregular_launch_s"] * (self.width & (self.width - 1) != 0)
        time_s = launch + parts.seconds + traffic.append_s
        shares = {
            "core_share": parts.core_s / time_s,
            "dram_share": traffic.dram_s / time_s,
            "l2_share": self.l2_s / time_s,
            "load_share": parts.load_s / time_s,
            "launch_share": launch / time_s,
            "merge_share": parts.merge_s / time_s,
            "resident": 1.0 - traffic.dram_bytes / traffic.moved,
            "waves": self.tasks / self.slots,
            "imbalance": parts.busiest * device.cores / self.tokens,
        }
        return self._result(time_s, shares, parts.busiest * self.token_bytes)

    def _token_cycles(self) -> F64:
        """Core cycles for one key and value: products, softmax, conversion of narrow formats."""
        c, device = self.c, self.device
        width = self.work.spread(self.width)
        rate = tensor_rate(device, self.pipe, self.dtype, c)
        mma = 4.0 * self.rows * width / rate
        xu, fma = softmax_rates(device)
        softmax = self.rows * (1.0 / xu + c["softmax_ops"] / fma)
        convert = 2.0 * width * c["convert_ops"] / fma if self.narrow else 0.0
        grouped: F64 = mma + softmax + convert
        if not self.any_scalar:
            return grouped
        scalar_ops = (
            4.0 * width * (c["scalar_ops"] + (c["scalar_convert_ops"] if self.narrow else 0.0))
        )
        return xp.where(self.tasking.scalar, scalar_ops / fma, grouped)

    def _result(self, time_s: F64, shares: Mapping[str, F64], busiest_bytes: F64) -> Analysis:
        """The analysis with its bound and demand."""
        work, device, traffic = self.work, self.device, self.traffic
        scores = live_scores(work.q, work.kv, self.window, causal=self.causal)
        flops = 4.0 * work.total(xp.float64(scores)) * self.heads * self.width
        resource_s = attention_bound(
            device, self.pipe, self.dtype, flops, traffic, self.batch.variant.cache
        )
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        issued = work.total(xp.float64(self.keys * self.rows)) * self.groups
        padded = issued * self.width * 4.0
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": xp.full_like(time_s, self.launch_s)},
            demand=Demand(
                tasks=self.tasks,
                waves=shares["waves"],
                occupancy=xp.minimum(self.tasks / device.cores, self.c["ctas_per_core"]),
                pipe_work={self.pipe: padded, "xu": issued},
                level_bytes={"dram": traffic.dram_bytes, "l2": traffic.moved},
                core_level_bytes={"l2": busiest_bytes},
            ),
            features={
                **shares,
                "padding": flops / padded,
                **shape_features(self.batch, work, self.heads, self.groups, device.cores),
            },
            independent_log_sd=xp.full_like(time_s, self.c["independent_log_sd"]),
        )
