"""How fast the cores of a CPU are, and how its matrix instructions pad."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from silicast.core import xp
from silicast.core.dtypes import BITS
from silicast.core.numerics import F64
from silicast.hardware.device import Device
from silicast.kernels.fallback_kernels import adapter
from silicast.kernels.implementation import register_adapter
from silicast.kernels.physics import load_physics
from silicast.kernels.work_model import Rates, caches

GROUP = "vector_cpu"
TILE_ROWS, TILE_COLUMNS, TILE_ROW_BYTES = 16.0, 16.0, 64.0
"""AMX: a tile has 16 rows of 64 bytes; the result 16 x 16 (Intel 64 manual)."""

VECTOR_COLUMNS = 16.0
"""Columns of the inner kernel of a vector product: one 64-byte register of fp32, or two halves."""


@lru_cache(maxsize=1024)
def cpu_rates(device: Device, dtype: str) -> Rates:
    """Rates of ``device`` for products in ``dtype``.

    Raises:
        SilicastError: the device does not multiply in ``dtype``.
    """
    c = load_physics(GROUP).constants(device.architecture)
    levels = [(size, rate * c["chip_efficiency"]) for size, rate in caches(device).values()]
    return replace(
        Rates.of(device, dtype, c, float(device.cores)),
        levels=tuple(sorted(levels)),
        thread_bytes=c["thread_bytes"],
        fork_s=c["fork_s"] if device.cores > 1 else 0.0,
        fresh_from_bytes=c["fresh_from_bytes"],
        fresh_s_per_byte=c["page_fault_s"]
        / (c["page_bytes"] * min(float(device.cores), c["fault_cores"])),
    )


def padded_ops(device: Device, dtype: str, rows: F64, columns: F64, depth: F64) -> F64:
    """Operations of one product with its sides rounded up to the instruction's tile."""
    if device.matrix_pipe(dtype) == "tensor":
        step = TILE_ROW_BYTES * 8.0 / BITS.get(dtype, 16.0)
        m, n = xp.ceil(rows / TILE_ROWS) * TILE_ROWS, xp.ceil(columns / TILE_COLUMNS) * TILE_COLUMNS
        tiled: F64 = 2.0 * m * n * xp.ceil(depth / step) * step
        return tiled
    padded: F64 = 2.0 * rows * xp.ceil(columns / VECTOR_COLUMNS) * VECTOR_COLUMNS * depth
    return padded


register_adapter("vector_cpu", adapter("vector_cpu", GROUP, cpu_rates))
