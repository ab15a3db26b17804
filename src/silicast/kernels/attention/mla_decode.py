"""Absorbed latent attention of one new token (or a few) a sequence on SIMT devices.

All heads attend to one cached vector a token: 576 elements are keys, the first 512 of them values
(DeepSeek's widths). Tasks are (sequence, tile of heads, split); each reads its keys once, so that
a tile of heads has the arithmetic of its rows for each byte and many heads are bound by tensor
cores. Few sequences are split over the cores, where the library can, and merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from silicast.core import xp
from silicast.core.numerics import F64, I64, ceil_div, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_kernel import DECODE_LENGTHS
from silicast.kernels.attention.attention_memory import outside_l2
from silicast.kernels.attention.attention_work import AttentionSequences
from silicast.kernels.attention.mla_schemes import MlaScheme, mla_scheme
from silicast.kernels.attention.mla_work import (
    MLA_DIMS,
    LatentAttention,
    MlaWork,
    Widths,
    projected_s,
)
from silicast.kernels.attention.sparse_work import whole_rounds
from silicast.kernels.implementation import Analysis, Demand
from silicast.kernels.physics.device_rates import cache_rate, data_rate
from silicast.kernels.registry import register
from silicast.workload.graphs.op import OpBatch

KEY_TILE = 64
"""Keys of one inner step; a split is at least one."""
USUAL_TILES = [(64, 64)]
"""(rows up to which, rows of a tile); rows are heads x new tokens, and more than all take the last.
"""


@register
@final
class MlaDecode(LatentAttention):
    """``mla_decode``: q_len new tokens (1) over kv_len cached ones and themselves."""

    family: ClassVar[str] = "mla_decode"
    decode: ClassVar[bool] = True
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {**DECODE_LENGTHS, **MLA_DIMS}

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        return _LatentDecodeBatch(batch, device, mla_scheme(batch.variant, device), c).analysis()


@final
class _LatentDecodeBatch:
    """One batch on one device."""

    def __init__(
        self, batch: OpBatch, device: Device, scheme: MlaScheme, c: Mapping[str, float]
    ) -> None:
        self.batch, self.device, self.scheme, self.c = batch, device, scheme, c
        self.work = work = AttentionSequences.from_batch(batch, decode=True)
        self.widths = w = Widths.from_batch(batch)
        causal = batch.variant.flag("causal", default=True)
        self.useful = MlaWork.from_batch(batch, work, decode=True, causal=causal)
        self.pipe = device.matrix_pipe(scheme.math)
        self.key_bytes = w.cached * (1.0 if scheme.narrow else 2.0)
        rows = work.q * work.spread(w.heads)
        group, self.parts = scheme.style.group.get(device.architecture, (0, 1))
        self.grouped = rows >= group if group and scheme.narrow else rows < 0
        self.tile = xp.where(self.grouped, group, _tile(rows, scheme, device))
        self.tiles = xp.float64(ceil_div(rows, self.tile))
        self._plan()

    def _plan(self) -> None:
        """Splits caches so that there is a task for every core, if sequences are too few."""
        work, c = self.work, self.c
        self.grouping = work.largest(xp.float64(self.grouped)) > 0.0
        self.slots = self.device.cores * xp.where(self.grouping, 1.0, c["ctas_per_core"])
        self.sequences = work.total(xp.full_like(self.tiles, 1.0))
        self.visits = work.total(work.kv * self.tiles)
        base = work.total(self.tiles)
        chunk = xp.maximum(self.visits / self.slots, c["split_tiles"] * KEY_TILE)
        chunk = xp.where(base < self.slots, chunk, float(1 << 40))
        even = xp.maximum(work.kv / work.spread(chunk), 1.0)
        splits_on = self.scheme.style.splits_on
        can = not splits_on or self.device.architecture in splits_on
        split = xp.minimum(even, c["most_splits"]) if can else 1.0
        self.splits = xp.where(self.grouped, float(self.parts), split)
        self.tasks = work.total(self.splits * self.tiles)
        self.longest = work.largest(work.kv / self.splits)
        merges = xp.minimum(xp.maximum(work.largest(self.splits) - 1.0, 0.0), 1.0)
        self.merges = xp.where(self.grouping, 0.0, merges)  # its parts meet on the chip

    def analysis(self) -> Analysis:
        c, device, work = self.c, self.device, self.work
        cores, clock = device.cores, device.clocks.boost_hz
        inner = cache_rate(device) * c["l2_efficiency"]
        key_cycles = self._key_cycles()
        waves = self.tasks / self.slots
        whole = whole_rounds(waves)
        rounds = xp.maximum(1.0, waves + c["tail"] * (whole - waves))
        compute = work.total(work.kv * self.tiles * key_cycles) / cores
        ragged = compute + c["tail"] * (whole / xp.maximum(waves, 1.0) - 1.0) * compute
        longest = self.longest * work.largest(key_cycles)
        task_cycles = xp.where(self.grouping, c["grouped_task_cycles"], c["task_cycles"])
        core_s = (rounds * task_cycles + xp.maximum(ragged, longest)) / clock

        outside = outside_l2(self.useful.moved, device, c, self.batch.variant.cache)
        bandwidth: F64 | float = data_rate(device) * c["dram_efficiency"]
        if self.scheme.narrow:
            bandwidth = bandwidth * xp.where(self.grouping, 1.0, c["narrow_dram"])
        # Tiles of one sequence run after those of all others: where the sequences alone fill the
        # device, its keys have left the L2 by then.
        apart = xp.minimum(xp.maximum(self.sequences / self.slots - 1.0, 0.0), 1.0)
        again = self.visits * self.key_bytes - self.useful.keys
        fetched = self.useful.moved + again * apart * c["reread_share"]
        dram_s = fetched * outside / bandwidth
        busiest = xp.maximum(self.longest, self.visits / cores)
        load_s = busiest * self.key_bytes / (c["core_bytes_per_cycle"] * clock)
        l2_s = (self.useful.moved + again) / inner
        memory_s = xp.maximum(xp.maximum(dram_s, l2_s), load_s)
        # a kernel of its own for narrow caches loads beside its products
        serial = xp.where(self.grouping, 0.0, c["serial"])
        together = xp.maximum(core_s, memory_s) + serial * xp.minimum(core_s, memory_s)
        merge_s = self.merges * c["merge_s"] + self._partial_s(bandwidth, inner)
        launch_s = xp.full_like(together, c["launch_s"])
        if self.scheme.narrow:
            launch_s = launch_s * c["narrow_launch"]
        around_s = self._around_s(outside, bandwidth, inner)
        time_s = xp.maximum(launch_s + together + merge_s + around_s, 0.25 * launch_s)
        if self.scheme.projects:
            # launched one by one: the host needs this long for the call's kernels
            time_s = smooth_max((time_s, xp.full_like(time_s, c["call_s"])))
        shares = {
            "core_share": core_s / time_s,
            "dram_share": dram_s / time_s,
            "l2_share": l2_s / time_s,
            "load_share": load_s / time_s,
            "launch_share": launch_s / time_s,
            "merge_share": merge_s / time_s,
            "around_share": abs(around_s) / time_s,
            "resident": 1.0 - outside,
            "waves": waves,
        }
        return self._result(time_s, shares, outside, busiest * self.key_bytes)

    def _partial_s(self, bandwidth: F64 | float, inner: float) -> F64:
        """Results of the parts, in fp32, written and read again; some kernels move those of as many
        parts as a cache may have, used or not.
        """
        c, w, work = self.c, self.widths, self.work
        parts = self.splits - 1.0
        if self.scheme.style.fixed_parts:
            parts = xp.maximum(parts, c["idle_parts"])
        parts = xp.where(self.grouped, 0.0, parts)
        moved = work.total(parts * work.q) * w.heads * w.rank * 8.0
        outside = outside_l2(moved, self.device, c, "")
        return moved * (outside / bandwidth + (1.0 - outside) / inner)

    def _key_cycles(self) -> F64:
        """Core cycles of one key for one tile of heads: products, softmax, widening."""
        c, device, work, w = self.c, self.device, self.work, self.widths
        rate: F64 | float = device.rate_per_core(self.pipe, self.scheme.math)
        rate = rate * c["tensor_efficiency"]
        if self.scheme.narrow:
            rate = rate * c["narrow_rate"]
        rate = xp.where(self.grouped, rate * c["grouped_rate"], rate)
        width = work.spread(xp.float64(w.cached + w.rank))
        mma = 2.0 * self.tile * width / rate
        xu = device.rate_per_core("xu", "fp32") or 16.0
        fma = device.rate_per_core("fma", "fp32") or 128.0
        softmax = self.tile * (1.0 / xu + c["softmax_ops"] / fma)
        cycles: F64 = mma + softmax + c["key_cycles"]
        if self.scheme.narrow and self.scheme.math != "fp8":
            cycles = cycles + work.spread(xp.float64(w.cached)) * (c["convert_ops"] / fma)
        return cycles

    def _around_s(self, outside: F64, bandwidth: F64 | float, inner: float) -> F64:
        """What an engine's call does beside the kernel."""
        c, w, scheme = self.c, self.widths, self.scheme
        if not scheme.engine:
            return xp.full_like(outside, -c["append_launch_s"])
        tokens = self.work.total(xp.float64(self.work.q))
        moved = tokens * (w.heads * w.cached * 4.0 * c["append_bytes"] + w.cached * 4.0)
        if scheme.narrow:
            moved = moved + self.useful.keys * c["widened_bytes"]
        around = moved * (outside / bandwidth + (1.0 - outside) / inner)
        if scheme.projects:
            rows = xp.int64(tokens)
            around = around + projected_s(w, rows, self.batch.variant, self.device, absorbed=True)
        return around

    def _result(
        self, time_s: F64, shares: Mapping[str, F64], outside: F64, busiest_bytes: F64
    ) -> Analysis:
        """The analysis with its bound and demand."""
        device, work = self.device, self.work
        resource_s = self.useful.bound(
            device, self.pipe, self.scheme.math, self.batch.variant.cache
        )
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        issued = work.total(work.kv * self.tiles * self.tile)
        padded = issued * 2.0 * (self.widths.cached + self.widths.rank)
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": xp.full_like(time_s, self.c["launch_s"])},
            demand=Demand(
                tasks=self.tasks,
                waves=shares["waves"],
                occupancy=xp.minimum(self.tasks / device.cores, self.c["ctas_per_core"]),
                pipe_work={self.pipe: padded, "xu": issued},
                level_bytes={"dram": self.useful.moved * outside, "l2": self.useful.moved},
                core_level_bytes={"l2": busiest_bytes},
            ),
            features={**shares, "padding": self.useful.flops / padded},
            independent_log_sd=xp.full_like(time_s, self.c["independent_log_sd"]),
        )


def _tile(rows: I64, scheme: MlaScheme, device: Device) -> I64:
    """Rows of a task's products."""
    tiles = scheme.style.tiles
    sizes = tiles.get(device.architecture) or tiles.get("default") or USUAL_TILES
    tile = xp.full_like(rows, sizes[-1][1])
    for limit, size in reversed(sizes):
        tile = xp.where(rows <= limit, size, tile)
    return tile
