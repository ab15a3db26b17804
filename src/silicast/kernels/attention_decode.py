"""Attention of one new token (or a few) a sequence over a paged cache (decode) on SIMT devices.

The kernel streams keys and values once. Work is cut into (sequence, key-value head, split) so that
every core has some; more than one split needs a merge. Time is what the slowest of these takes:
DRAM, L2, the busiest core's loads and its arithmetic on rows padded to the matrix instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np

from silicast.core.numerics import F64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.attention_bound import attention_bound
from silicast.kernels.attention_prefill import attention_constants, shared_errors
from silicast.kernels.attention_schemes import Scheme, padded_rows, scheme_for
from silicast.kernels.attention_work import (
    Sequences,
    column,
    compute_format,
    element_bytes,
    live_keys,
    live_scores,
    useful_bytes,
    useful_flops,
)
from silicast.kernels.implementation import Analysis, Demand, Implementation, positive, register
from silicast.workload.op import Op, OpBatch

KEY_TILE = 64
"""Keys of one inner step; a split is at least one."""


@register
@final
class AttentionDecode(Implementation):
    """``attention_decode``: q_len new tokens (1) over kv_len cached ones and themselves."""

    family: ClassVar[str] = "attention_decode"
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {
        "batch": (1, 1 << 20),
        "q_len": (1, 1 << 10),
        "kv_len": (0, 1 << 24),
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
        c = attention_constants("attention_decode", device, scheme.library)
        return _Decode(batch, device, scheme, c).analysis()

    def shared_log_sd(self, batch: OpBatch, device: Device) -> Mapping[str, float]:
        """Log sd of the family's and the device's error factors."""
        return shared_errors("attention_decode", batch, device)

    def flops(self, op: Op) -> int:
        """Exact useful FLOPs: live scores only."""
        return useful_flops(op, decode=True)

    def compulsory_bytes(self, op: Op) -> int:
        """Exact bytes moved once."""
        return useful_bytes(op, decode=True)


@final
class _Decode:
    """One batch on one device."""

    def __init__(
        self, batch: OpBatch, device: Device, scheme: Scheme, c: Mapping[str, float]
    ) -> None:
        self.batch, self.device, self.scheme, self.c = batch, device, scheme, c
        self.causal = batch.variant.flag("causal", default=True)
        self.work = Sequences.of(batch, decode=True)
        self.heads = column(batch, "num_heads", 1)
        self.groups = column(batch, "num_kv_heads", 1)
        self.width = column(batch, "head_dim", 128)
        self.window = column(batch, "window", 0)
        self.dtype = compute_format(batch.variant.dtype)
        self.pipe = device.matrix_pipe(self.dtype)
        self.kv_bytes = element_bytes(batch.variant.kv_dtype or batch.variant.dtype)
        self.q_bytes = element_bytes(batch.variant.dtype)

    def analysis(self) -> Analysis:
        c, device, work = self.c, self.device, self.work
        cores, clock = device.cores, device.clocks.boost_hz
        group = np.maximum(1, self.heads // np.maximum(self.groups, 1))
        keys = live_keys(work.q, work.kv, work.spread(self.window), causal=self.causal)
        rows = padded_rows(work.q * work.spread(group), 16)

        slots = cores * c["ctas_per_core"]
        base = work.total(np.ones_like(work.q, dtype=np.float64)) * self.groups
        tokens = work.total(keys.astype(np.float64)) * self.groups
        chunk = np.maximum(np.ceil(tokens / slots / KEY_TILE), 1.0) * KEY_TILE
        chunk = np.where(base >= slots, float(1 << 40), chunk)
        splits = np.ceil(keys / work.spread_f(chunk))
        tasks = work.total(splits) * self.groups
        longest = work.largest(np.minimum(keys, work.spread_f(chunk)))

        token_bytes = 2.0 * self.width * self.kv_bytes
        token_cycles = self._token_cycles(rows)
        total_cycles = work.total(keys * token_cycles + splits * c["task_cycles"]) * self.groups
        longest_cycles = longest * work.largest(token_cycles) + c["task_cycles"]
        waves = tasks / cores
        even = total_cycles / positive(tasks) * np.ceil(waves)
        busiest = np.maximum(
            longest_cycles,
            total_cycles / cores + c["tail"] * (np.maximum(even - total_cycles / cores, 0.0)),
        )
        core_s = busiest / clock
        busiest_tokens = np.maximum(longest, tokens / cores)
        load_s = busiest_tokens * token_bytes / (c["core_bytes_per_cycle"] * clock)

        queries = work.total(work.q.astype(np.float64)) * self.heads * self.width * self.q_bytes
        cached = tokens * token_bytes
        moved = cached + 2.0 * queries
        l2 = device.l2
        usable = c["l2_usable"] * l2.capacity_bytes
        resident = np.clip((usable * c["l2_fade"] - moved) / (usable * (c["l2_fade"] - 1.0)), 0, 1)
        dram_s = (
            moved * (1.0 - resident) / (device.dram.bandwidth_bytes_per_s * c["dram_efficiency"])
        )
        l2_s = moved / (l2.bandwidth_bytes_per_s * c["l2_efficiency"])
        merging = (work.largest(splits) > 1.0) * 1.0
        merge_bytes = work.total(splits * work.q) * self.heads * self.width * 8.0
        merge_s = merging * (c["merge_s"] + merge_bytes / (l2.bandwidth_bytes_per_s * 0.5))
        time_s = c["launch_s"] + merge_s + smooth_max((core_s, load_s, dram_s, l2_s))

        scores = live_scores(work.q, work.kv, work.spread(self.window), causal=self.causal)
        flops = 4.0 * work.total(scores.astype(np.float64)) * self.heads * self.width
        resource_s = attention_bound(
            device,
            self.pipe,
            self.dtype,
            flops,
            cached + queries,
            queries,
            self.batch.variant.cache,
        )
        bound = np.maximum(np.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        padded = work.total(keys * rows * 1.0) * self.groups * self.width * 4.0
        return Analysis(
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": np.full_like(time_s, c["launch_s"])},
            demand=Demand(
                tasks=tasks,
                waves=tasks / slots,
                occupancy=np.minimum(waves, c["ctas_per_core"]),
                pipe_work={self.pipe: padded, "xu": padded / (4.0 * self.width)},
                level_bytes={"dram": moved * (1.0 - resident), "l2": moved},
                core_level_bytes={"l2": busiest_tokens * token_bytes},
            ),
            features={
                "core_share": core_s / time_s,
                "dram_share": dram_s / time_s,
                "l2_share": l2_s / time_s,
                "launch_share": c["launch_s"] / time_s,
                "merge_share": merge_s / time_s,
                "resident": resident,
                "waves": waves,
                "padding": flops / positive(padded),
                "imbalance": busiest * cores / positive(total_cycles),
            },
            independent_log_sd=np.full_like(time_s, c["independent_log_sd"]),
        )

    def _token_cycles(self, rows: F64) -> F64:
        """Core cycles for one key and value: products, softmax, conversion of narrow formats."""
        c, device = self.c, self.device
        width = self.work.spread(self.width)
        rate = device.rate_per_core(self.pipe, self.dtype)
        mma = 4.0 * rows * width / (rate * c["tensor_efficiency"])
        xu = device.rate_per_core("xu", "fp32") or 16.0
        fma = device.rate_per_core("fma", "fp32") or 128.0
        softmax = rows * (1.0 / xu + c["softmax_ops"] / fma)
        convert = 2.0 * width * c["convert_ops"] / fma if self.kv_bytes < self.q_bytes else 0.0
        return mma + softmax + convert
