"""Bytes of attention: what must move, what L2 keeps between calls, and the physical bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from msgspec import Struct

from silicast.core import xp
from silicast.core.numerics import F64, I64
from silicast.hardware.device import Device
from silicast.kernels.attention.attention_schemes import Scheme
from silicast.kernels.attention.attention_work import AttentionSequences, column, element_bytes
from silicast.kernels.physics.device_rates import data_rate
from silicast.workload.graphs.op import OpBatch

L2_BYTES_PER_CLOCK_AND_CORE = 128
"""What one SM can take in a clock at most: the width of its L1 (CUDA programming guide)."""


@final
class AttentionTraffic(Struct, frozen=True):
    """Bytes of a batch of ops, shape (ops,), and the time DRAM needs for them.

    Attributes:
        reads, writes: compulsory bytes of the attention kernel.
        cached: those of ``reads`` that are keys and values.
        moved: reads and writes.
        dram_bytes: bytes that L2 does not hold from the call before.
        dram_s: their time at the achieved bandwidth.
        append_s: time of writing new keys and values to the cache (and RoPE), a kernel before.
        kv_bytes: bytes of one stored key or value element.
    """

    reads: F64
    writes: F64
    cached: F64
    moved: F64
    dram_bytes: F64
    dram_s: F64
    append_s: F64
    kv_bytes: float


def prefill_traffic(
    batch: OpBatch,
    work: AttentionSequences,
    device: Device,
    scheme: Scheme,
    c: Mapping[str, float],
    keys: I64,
    cache_per_s: F64 | float,
) -> AttentionTraffic:
    """Traffic of prefill or decode attention over ``work``, whose live keys are ``keys``.

    Args:
        cache_per_s: what the cache of all cores delivers.
    """
    heads, groups = column(batch, "num_heads", 1), column(batch, "num_kv_heads", 1)
    width = column(batch, "head_dim", 128)
    kv_bytes = element_bytes(batch.variant.kv_dtype or batch.variant.dtype)
    q_bytes = element_bytes(batch.variant.dtype)
    tokens = work.total(work.q)
    elements = tokens * heads * width
    queries = elements * q_bytes
    results = elements * 2.0
    cached = 2.0 * work.total(keys) * groups * width * kv_bytes
    mask = xp.float64(column(batch, "mask_bytes", 0))
    appended = tokens * 0.0
    if scheme.appends:
        appended = 2.0 * tokens * groups * width * (2.0 + kv_bytes)
    if scheme.appends and q_bytes < 2.0:
        appended = appended + elements * (2.0 + q_bytes)
    if scheme.rotates:
        appended = appended + elements * (2.0 + q_bytes)
    if kv_bytes < q_bytes and scheme.widens_cache:
        appended = appended + cached * c["widened_bytes"]
    moved = queries + cached + results + mask
    footprint = (moved + 0.5 * appended) * l2_copies(device)
    outside = outside_l2(footprint, device, c, batch.variant.cache)
    bandwidth = data_rate(device) * c["dram_efficiency"]
    inner = cache_per_s * c["l2_efficiency"]
    per_byte = outside / bandwidth + (1.0 - outside) / inner
    dram_bytes = moved * outside
    return AttentionTraffic(
        reads=queries + cached + mask,
        writes=results,
        cached=cached,
        moved=moved,
        dram_bytes=dram_bytes,
        dram_s=dram_bytes / bandwidth,
        append_s=appended * per_byte,
        kv_bytes=kv_bytes,
    )


SPLIT_L2 = frozenset(("ampere", "hopper", "blackwell"))
"""Architectures whose L2 is two halves, each for the cores beside it (NVIDIA's A100 and H100
architecture white papers): what cores of both halves read is kept twice."""


def l2_copies(device: Device) -> float:
    """How often the L2 keeps a byte that all cores read."""
    return 2.0 if device.architecture in SPLIT_L2 else 1.0


def outside_l2(footprint: F64, device: Device, c: Mapping[str, float], cache: str) -> F64:
    """Fraction of a repeatedly used footprint that must come from DRAM again.

    A footprint that fits stays; a larger one, used in a fixed order, is evicted before it is used
    again, so that the fraction rises steeply once the capacity is passed.
    """
    if cache == "cold":
        every: F64 = xp.full_like(footprint, 1.0)
        return every
    usable = c["l2_usable"] * device.l2.capacity_bytes
    return xp.minimum(xp.maximum((footprint / usable - 1.0) / c["l2_fade"], 0.0), 1.0)


def attention_bound(
    device: Device, pipe: str, dtype: str, flops: F64, traffic: AttentionTraffic, cache: str
) -> dict[str, F64]:
    """Resource -> seconds it needs alone at its largest rate; the maximum is the bound.

    ``cache`` "cold": nothing read is in L2, results may stay there. Otherwise whatever fits may
    be resident, because campaigns and engines call the kernel again on the same operands.
    """
    resident = device.l2.capacity_bytes
    outside = traffic.reads if cache == "cold" else xp.maximum(0.0, traffic.moved - resident)
    inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    return {
        "tensor": flops / device.bound_per_s(pipe, dtype),
        "dram": outside / device.dram.bandwidth_bytes_per_s,
        "l2": traffic.moved / inner,
    }
