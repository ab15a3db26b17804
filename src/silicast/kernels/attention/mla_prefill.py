"""Latent attention of new tokens over a cache (prefill) on SIMT devices.

Keys and values of all heads, made out of the latent before, are attended to as in any attention:
queries and keys are wider than values, so that a head of their mean width has the same work and
bytes. :class:`~silicast.kernels.attention.attention_prefill.PrefillModel` then has the tiles,
waves and
pipes. Calls that stay on the latent run one head group over one cached vector a token instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from silicast.core import xp
from silicast.core.numerics import F64, I64, smooth_max
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_kernel import PREFILL_LENGTHS
from silicast.kernels.attention.attention_memory import outside_l2
from silicast.kernels.attention.attention_prefill import PrefillModel
from silicast.kernels.attention.attention_schemes import Scheme, attention_rule
from silicast.kernels.attention.attention_work import AttentionSequences
from silicast.kernels.attention.mla_schemes import MlaScheme, mla_constants, mla_scheme
from silicast.kernels.attention.mla_work import (
    MLA_DIMS,
    LatentAttention,
    MlaWork,
    Widths,
    projected_s,
)
from silicast.kernels.implementation import Analysis
from silicast.kernels.physics.device_rates import cache_rate, data_rate
from silicast.kernels.registry import register
from silicast.workload.graphs.op import OpBatch, Variant
from silicast.workload.libraries.library_file import AttentionRule, RuleFacts

GROUP = "mla_prefill"
LAUNCHES = ("launch", "append_launch")
"""Constants in seconds here that :class:`PrefillModel` takes in cycles."""


@register
@final
class MlaPrefill(LatentAttention):
    """``mla_prefill``: q_len new tokens attend to kv_len = past + new tokens."""

    family: ClassVar[str] = "mla_prefill"
    decode: ClassVar[bool] = False
    dims: ClassVar[Mapping[str, tuple[int, int]]] = {**PREFILL_LENGTHS, **MLA_DIMS}

    def analyse(self, batch: OpBatch, device: Device) -> Analysis:
        scheme = mla_scheme(batch.variant, device)
        return _Prefill(batch, device, scheme, _constants(batch.variant, device)).analysis()

    def analyse_with(self, batch: OpBatch, device: Device, c: Mapping[str, float]) -> Analysis:
        scheme = mla_scheme(batch.variant, device)
        return _Prefill(batch, device, scheme, _in_cycles(c, device)).analysis()


@final
class _Prefill:
    """One batch on one device."""

    def __init__(
        self, batch: OpBatch, device: Device, scheme: MlaScheme, c: Mapping[str, float]
    ) -> None:
        self.batch, self.device, self.scheme, self.c = batch, device, scheme, c
        self.widths = Widths.from_batch(batch)
        self.work = AttentionSequences.from_batch(batch, decode=False)
        self.tokens = self.work.total(xp.float64(self.work.q))
        causal = batch.variant.flag("causal", default=True)
        self.useful = MlaWork.from_batch(batch, self.work, decode=False, causal=causal)

    def analysis(self) -> Analysis:
        longest = self.work.largest(xp.float64(self.work.q))
        limit = float(self.scheme.absorbed_up_to)
        if xp.all_of(longest > limit):
            return self._result(self._expanded(), self._around_s(absorbed=False))
        if xp.all_of(longest <= limit):
            return self._result(self._absorbed(), self._around_s(absorbed=True))
        wide, latent = self._expanded(), self._absorbed()
        around = xp.where(
            longest > limit, self._around_s(absorbed=False), self._around_s(absorbed=True)
        )
        return self._result(_chosen(longest > limit, wide, latent), around)

    def _expanded(self) -> Analysis:
        """Keys and values of every head; narrow ones where the products are."""
        w = self.widths
        dims = {"num_heads": w.heads, "num_kv_heads": w.heads, "head_dim": (w.query + w.value) // 2}
        return self._attention(dims, absorbed=False)

    def _absorbed(self) -> Analysis:
        """One latent head that all query heads share."""
        w = self.widths
        dims = {
            "num_heads": w.heads,
            "num_kv_heads": xp.full_like(w.heads, 1),
            "head_dim": (w.cached + w.rank) // 2,
        }
        return self._attention(dims, absorbed=True)

    def _attention(self, dims: Mapping[str, I64], *, absorbed: bool) -> Analysis:
        batch, length_names = self.batch, ("batch", "q_len", "kv_len")
        lengths = {n: v for n, v in batch.dims.items() if n in length_names}
        stand_in = OpBatch(
            "attention_prefill",
            _in_format(batch.variant, self.scheme.math),
            {**lengths, **dims},
            batch.offsets,
            batch.ragged & frozenset(length_names),
            batch.numbers,
        )
        scheme = _scheme(batch.variant, self.device, absorbed=absorbed)
        return PrefillModel(stand_in, self.device, scheme, self.c).analysis()

    def _around_s(self, *, absorbed: bool) -> F64:
        """What an engine's call does beside the kernel: rotation, cache update, conversion to
        narrow operands, and for some the products from and to the latent.
        """
        c, device, w, scheme = self.c, self.device, self.widths, self.scheme
        if not scheme.engine:
            return xp.full_like(self.tokens, -c["append_launch_s"])
        stored = 1.0 if scheme.narrow else 2.0
        per_head = 4.0 * (w.cached if absorbed else w.query + w.query)
        moved = self.tokens * w.heads * per_head * c["append_bytes"]
        if scheme.narrow and scheme.math == "fp8":
            moved = (
                moved
                + self.tokens * w.heads * 3.0 * (w.query + w.query + w.value) * (c["narrow_bytes"])
            )
        moved = moved + self.tokens * w.cached * (2.0 + stored)
        outside = outside_l2(moved + self.useful.moved, device, c, self.batch.variant.cache)
        slow = data_rate(device) * c["dram_efficiency"]
        fast = cache_rate(device) * c["l2_efficiency"]
        around = moved * (outside / slow + (1.0 - outside) / fast)
        if scheme.narrow:
            around = around + c["narrow_s"]
        if scheme.projects:
            kv_tokens = self.work.total(xp.float64(self.work.kv))
            rows = xp.int64(self.tokens if absorbed else kv_tokens)
            around = around + projected_s(w, rows, self.batch.variant, device, absorbed=absorbed)
        return around

    def _result(self, analysis: Analysis, around_s: F64) -> Analysis:
        """The kernel's analysis with the whole call's time and latent attention's own bound."""
        scheme, c, device = self.scheme, self.c, self.device
        launch = analysis.resource_s["launch"]
        time_s = xp.maximum(analysis.time_s + around_s, 0.25 * launch)
        if scheme.projects:
            # launched one by one: the host needs this long for the call's kernels
            time_s = smooth_max((time_s, xp.full_like(time_s, c["call_s"])))
        pipe = device.matrix_pipe(scheme.math)
        resource_s = self.useful.bound(device, pipe, scheme.math, self.batch.variant.cache)
        bound = xp.maximum(xp.maximum(resource_s["tensor"], resource_s["dram"]), resource_s["l2"])
        return msgspec.structs.replace(
            analysis,
            time_s=time_s,
            bound_s=bound,
            resource_s={**resource_s, "launch": launch},
            features={**analysis.features, "around_share": abs(around_s) / time_s},
            independent_log_sd=xp.full_like(time_s, c["independent_log_sd"]),
        )


@lru_cache(maxsize=1024)
def _constants(variant: Variant, device: Device) -> Mapping[str, float]:
    return _in_cycles(mla_constants(GROUP, device, mla_scheme(variant, device)), device)


def _in_cycles(c: Mapping[str, float], device: Device) -> Mapping[str, float]:
    """Constants, with those of launches in cycles besides."""
    clock = device.clocks.boost_hz
    return {**c, **{f"{name}_cycles": c[f"{name}_s"] * clock for name in LAUNCHES}}


@lru_cache(maxsize=1024)
def _in_format(variant: Variant, math: str) -> Variant:
    return replace(variant, dtype=math, kv_dtype=math)


@lru_cache(maxsize=1024)
def _scheme(variant: Variant, device: Device, *, absorbed: bool) -> Scheme:
    """The attention kernel that stands for a prefill's: it has the tiles of another library's."""
    scheme, architecture = mla_scheme(variant, device), device.architecture
    like = scheme.style.tiles_of.get(scheme.mainloop)
    tiles = attention_rule(RuleFacts(like, architecture=architecture)) if like else AttentionRule()
    return Scheme(
        library=scheme.label,
        caller=scheme.style.constants,
        mainloop=scheme.mainloop,
        packs=absorbed,
        packs_single=absorbed,
        longest_first=scheme.mainloop != "mma",
        splits=absorbed and scheme.mainloop == "wgmma",
        small_tiles=tiles.small_tiles,
        widths=tuple(tiles.widths),
        casts=True,
    )


def _chosen(first: NDArray[np.bool_], a: Analysis, b: Analysis) -> Analysis:
    """Row by row one of two analyses of the same rows."""

    def pick(x: Mapping[str, F64], y: Mapping[str, F64]) -> dict[str, F64]:
        return {name: xp.where(first, x[name], y[name]) for name in x}

    one, two = a.demand, b.demand
    demand = msgspec.structs.replace(
        one,
        tasks=xp.where(first, one.tasks, two.tasks),
        waves=xp.where(first, one.waves, two.waves),
        occupancy=xp.where(first, one.occupancy, two.occupancy),
        pipe_work=pick(one.pipe_work, two.pipe_work),
        level_bytes=pick(one.level_bytes, two.level_bytes),
        core_pipe_work=pick(one.core_pipe_work, two.core_pipe_work),
    )
    return msgspec.structs.replace(
        a,
        time_s=xp.where(first, a.time_s, b.time_s),
        resource_s=pick(a.resource_s, b.resource_s),
        demand=demand,
        features=pick(a.features, b.features),
    )
