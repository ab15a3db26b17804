"""What no attention kernel can beat: live FLOPs at peak rate, compulsory bytes at peak bandwidth."""

from __future__ import annotations

import numpy as np

from silicast.core.numerics import F64
from silicast.hardware.device import Device

L2_BYTES_PER_CLOCK_AND_CORE = 128
"""What one SM can take in a clock: the width of its L1 (NVIDIA CUDA programming guide)."""


def attention_bound(
    device: Device, pipe: str, dtype: str, flops: F64, reads: F64, writes: F64, cache: str
) -> dict[str, F64]:
    """Resource -> seconds it needs alone at its largest rate; the maximum is the bound.

    ``cache`` "cold": nothing read is in L2, results may stay there. Otherwise whatever fits may
    be resident, because campaigns and engines call the kernel again on the same operands.
    """
    peak = device.bound_per_s(pipe, dtype)
    bandwidth = device.dram.bandwidth_bytes_per_s
    resident = device.l2.capacity_bytes
    outside = reads if cache == "cold" else np.maximum(0.0, reads + writes - resident)
    inner = device.cores * device.clocks.max_hz * L2_BYTES_PER_CLOCK_AND_CORE
    return {
        "tensor": flops / peak,
        "dram": outside / bandwidth,
        "l2": (reads + writes) / inner,
    }
